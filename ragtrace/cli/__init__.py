"""The command line: parses, calls the library, prints."""

from ragtrace.cli.script import main
