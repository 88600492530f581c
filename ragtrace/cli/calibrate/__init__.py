"""``ragtrace calibrate``: measure a judge against human labels."""

from ragtrace.cli.calibrate.command import calibrate
