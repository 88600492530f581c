"""``python -m ragtrace.cli``: the same as the script ``ragtrace``."""

from ragtrace.cli.app import main

main()
