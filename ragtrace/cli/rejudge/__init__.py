"""``ragtrace rejudge``: score kept verdicts again without a call, or compare two evaluators."""

from ragtrace.cli.rejudge.command import rejudge
