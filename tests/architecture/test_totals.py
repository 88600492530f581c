"""The project's size only falls: `totals.json` has today's totals as bounds.

When a total falls, lower its bound in the same commit; a bound may be at most 2 % above its total.
"""

from __future__ import annotations

import ast
import json

import pytest

from tests.architecture.source import ROOT, modules
from tests.architecture.totals import totals

BOUNDS = json.loads((ROOT / "tests/architecture/totals.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    return totals()


@pytest.mark.slow
def test_every_total_has_a_bound(counted: dict[str, int]) -> None:
    free = {"packages", "words_of_changelog", "blank", "docstring", "comment"}
    assert set(BOUNDS) == set(counted) - free


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
def test_a_total_only_falls_and_its_bound_follows(counted: dict[str, int], name: str) -> None:
    total, bound = counted[name], BOUNDS[name]
    assert total <= bound, f"{name} grew: take away as you add"
    assert bound <= total * 1.02 or bound - total <= 1, (
        f"{name} fell: lower its bound in totals.json to {total}"
    )


def test_what_is_public_has_a_docstring() -> None:
    missing = [
        f"{module.name}.{node.name}"
        for module in modules()
        if not any(part.startswith("_") for part in module.name.split("."))
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not any(ast.unparse(each).endswith("overload") for each in node.decorator_list)
        and not ast.get_docstring(node)
    ]
    assert missing == []
    assert [module.name for module in modules() if not ast.get_docstring(module.tree)] == []
