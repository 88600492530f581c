"""``ragtrace evaluate``: judge the records of a file."""

from ragtrace.cli.evaluate.command import evaluate
