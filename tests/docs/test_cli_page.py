"""docs/cli.md is what ``--help`` says. ``REGENERATE_GOLDEN=1 make test ARGS=tests/docs`` writes it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from ragtrace.cli.app import cli
from tests.integration.cli.program import run

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
REGENERATE = "REGENERATE_GOLDEN"
HEAD = """\
# The commands

What `--help` says; a test compares it. Exit codes everywhere: 0 done; 1 failed, or something that was
asked for failed; 2 wrong usage, settings or input; 3 the budget is spent; 130 interrupted. Data
goes to stdout, messages to stderr.
"""


def page() -> Iterator[str]:
    yield HEAD
    for name in (None, *cli.list_commands(click.Context(cli))):
        command = ["ragtrace", *([name] if name else [])]
        help_text = run(*command[1:], "--help").stdout
        yield f"## {' '.join(command)}\n\n```text\n{help_text.rstrip()}\n```\n"


def test_the_page_says_what_help_says() -> None:
    written = "\n".join(page())
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PAGE.write_text(written, "utf-8")
    assert PAGE.read_text("utf-8") == written, f"run once with {REGENERATE}=1 if this is meant"
