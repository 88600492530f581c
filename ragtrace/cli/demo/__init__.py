"""``ragtrace demo``: the whole job, on human-labelled traffic."""

from ragtrace.cli.demo.command import demo
