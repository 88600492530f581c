"""What of a text is recorded: all, a redacted form, a digest, or nothing."""
