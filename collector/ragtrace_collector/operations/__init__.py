"""What whoever runs the collector sees and uses: pages, own metrics and traces, logs, signals, systemd."""
