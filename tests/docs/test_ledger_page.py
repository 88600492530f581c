"""docs/ledger.md has the vocabulary of the code, and commands that exist."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from ragtrace_collector.ledger.outcomes import vocabulary
from tests.integration.cli.program import run

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
REGENERATE = "REGENERATE_GOLDEN"
TABLE = re.compile(r"(?<=\| --- \| --- \| --- \|\n).*?(?=\n\n## )", re.DOTALL)


def rows() -> str:
    return "".join(
        f"| `{name}` | {meaning.meaning} | {meaning.advice} |\n" for name, meaning in vocabulary().items()
    )


def test_the_page_has_every_state_and_reason_with_what_to_do() -> None:
    written = TABLE.sub(lambda _: rows().rstrip(), PAGE.read_text("utf-8"))
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        PAGE.write_text(written, "utf-8")
    assert PAGE.read_text("utf-8") == written, f"run once with {REGENERATE}=1 if this is meant"


@pytest.mark.parametrize(
    "command",
    sorted(set(re.findall(r"^ragtrace ((?:why|ledger).*)$", PAGE.read_text("utf-8"), re.MULTILINE))),
)
def test_the_commands_on_the_page_are_understood(command: str) -> None:
    name, *words = shlex.split(command)
    options = {word for word in words if word.startswith("--")}
    known = run(name, "--help").output
    assert all(option in known for option in options)
