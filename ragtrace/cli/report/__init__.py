"""``ragtrace report``: what a sample of judged answers says about all traffic."""

from ragtrace.cli.report.command import report
