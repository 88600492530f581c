"""What people say of verdicts: kept in a file, written onto traces, and read by ``ragtrace calibrate``."""
