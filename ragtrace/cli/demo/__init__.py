"""``ragtrace demo``: the whole job, on human-labeled traffic."""

from ragtrace.cli.demo.command import demo
