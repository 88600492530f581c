"""The command line: parses, calls the library, prints."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""


def main() -> NoReturn:
    """Run the program and exit; answer to Ctrl-C while it loads."""
    try:
        from ragtrace.cli.app import run
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(INTERRUPTED)
    run()
