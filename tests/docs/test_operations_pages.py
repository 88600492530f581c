"""docs/operations.md and docs/runbook.md: nothing that the collector tells of itself is missing there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.cli.program import run

ROOT = Path(__file__).parents[2]
OPERATIONS, RUNBOOK = ROOT / "docs" / "operations.md", ROOT / "docs" / "runbook.md"


def log_calls() -> Iterator[tuple[Path, ast.Call]]:
    """Yield every call that writes to the collector's log."""
    for file in (ROOT / "collector" / "ragtrace_collector").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log."):
                yield file, node


def event_names() -> set[str]:
    """Return the literal names that are given to events."""
    text = "".join(
        file.read_text("utf-8") for file in (ROOT / "collector" / "ragtrace_collector").rglob("*.py")
    )
    return set(re.findall(r'(?:\bevent\(|_of\(job, )"([a-z_]+)"', text))


@pytest.mark.slow
def test_every_line_of_the_log_names_its_event() -> None:
    unnamed = [
        f"{file.name}:{call.lineno}"
        for file, call in log_calls()
        if "extra" not in {keyword.arg for keyword in call.keywords}
    ]
    assert unnamed == []


def test_the_page_has_every_event_of_the_log() -> None:
    told = re.search(r"\| `event_name` \|.*?\n\n", OPERATIONS.read_text("utf-8"), re.DOTALL)
    assert told is not None
    first_cells = [line.split(" | ")[0] for line in told[0].splitlines()[2:]]
    assert set(re.findall(r"`([a-z_]+)`", "".join(first_cells))) == event_names()


def test_the_runbook_has_every_alert() -> None:
    files = ("alerts.yml", "objective.yml", "judging-rules.yml")
    names = dict.fromkeys(name for file in files for name in alerts_in(file))
    assert re.findall(r"^## (\w+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE) == [*names]


def alerts_in(file: str) -> list[str]:
    groups = yaml.safe_load((ROOT / "examples/deploy/prometheus" / file).read_text())["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


COMMANDS = sorted(
    {
        command
        for page in (OPERATIONS, RUNBOOK)
        for command in re.findall(
            r"^(?:/opt/ragtrace/bin/)?ragtrace (.*?)(?: +#.*| && .*| > .*)?$",
            page.read_text("utf-8"),
            re.MULTILINE,
        )
    }
)


def test_the_commands_on_the_pages_are_understood() -> None:
    for command in COMMANDS:
        name, *words = shlex.split(command)
        known = run(name, "--help").output
        assert all(word in known for word in words if word.startswith("--")), command
