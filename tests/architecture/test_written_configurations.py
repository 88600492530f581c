"""Configurations that programs for the night write: a setting that went breaks them here, in seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ragtrace_collector.config import CollectorConfig

TESTS = Path(__file__).parents[1]
MARKS = {"assemble", "attach", "evaluate", "judge", "receive", "sample", "store"}
"""A dictionary with one of these sections is a configuration; others are of scripts and of other programs."""
COMPUTED = "<computed>"
"""Stands for what only the run of a program says; nothing is said about it here."""


def configurations(program: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the dictionaries of a program's source that hold sections of a configuration, and where."""
    for path in sorted((TESTS / program).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Dict):
                written = {key: value for key, value in value_of(node).items() if value != COMPUTED}
                if any(isinstance(written.get(name), dict) for name in MARKS):
                    yield f"{path.relative_to(TESTS)}:{node.lineno}", written


def value_of(node: ast.expr) -> Any:
    """Return what an expression says, as far as it is written out."""
    match node:
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return {key.value: value_of(value) for key, value in pairs if isinstance(key, ast.Constant)}
        case ast.List():
            return [value_of(each) for each in node.elts]
        case ast.Constant():
            return node.value
    return COMPUTED


@pytest.mark.parametrize("program", ["benchmarks", "faults", "soak"])
def test_every_configuration_that_is_written_out_is_one_of_this_collector(program: str) -> None:
    found = dict(configurations(program))
    assert len(found) > 1
    for where, written in found.items():
        try:
            CollectorConfig.model_validate(written)
        except ValidationError as exc:
            # a part is not whole: other sections may be elsewhere
            told = [error for error in exc.errors() if error["loc"] and error["type"] != "missing"]
            wrong = [error for error in told if COMPUTED not in str(error["input"])]
            assert not wrong, where
