"""``python -m ragtrace.cli``: the same as the script ``ragtrace``."""

from ragtrace.cli import main

main()
