"""The script ``ragtrace``: loads the program, and answers to Ctrl-C while it loads."""

import sys
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the program and exit."""
    try:
        from ragtrace.cli.app import run
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(INTERRUPTED)
    run()
