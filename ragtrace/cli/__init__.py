"""The command line: parses, calls the library, prints."""

from ragtrace.cli.app import main

__all__ = ["main"]
