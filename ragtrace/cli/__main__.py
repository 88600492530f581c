"""``python -m ragtrace.cli``: the same as the script ``ragtrace``."""

from ragtrace.cli.script import main

main()
