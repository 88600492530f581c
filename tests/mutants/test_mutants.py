"""The runner of mutants tells what notices from what does not; and each mutant still fits the product."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.catalogue import CATALOGUE, Mutant
from tests.mutants.running import Fate, fate_of
from tests.sharing import ROOT

PROMISE = "def kept(promise: str) -> bool:\n    return promise == 'given'\n"
TESTS = """
from promise import kept

def test_a_promise_is_kept():
    assert kept("given")

def test_what_was_not_promised_is_not():
    assert not kept("other")

def test_that_fails_in_any_case():
    assert False
"""
BROKEN = Mutant(
    promise="toy",
    breaks="the promise",
    file="promise.py",
    old="== 'given'",
    new="== 'broken'",
    test="test_promise.py::test_a_promise_is_kept",
)


@pytest.mark.slow
@pytest.mark.night
def test_a_mutant_is_killed_by_a_failing_test_and_by_nothing_else(tmp_path: Path) -> None:
    toy = tmp_path / "toy"
    toy.mkdir()
    (toy / "promise.py").write_text(PROMISE)
    (toy / "test_promise.py").write_text(TESTS)
    cases = {
        Fate.KILLED: BROKEN,
        Fate.SURVIVED: replace(BROKEN, test="test_promise.py::test_what_was_not_promised_is_not"),
        Fate.UNTESTED: replace(BROKEN, new="== ("),
        Fate.NOT_SHOWN: replace(BROKEN, test="test_promise.py::test_that_fails_in_any_case"),
        Fate.DOES_NOT_APPLY: replace(BROKEN, old="is_kept"),
    }
    found = {fate: fate_of(mutant, tmp_path / fate.name, root=toy) for fate, mutant in cases.items()}
    assert {fate: fate for fate in cases} == {fate: each for fate, (each, _) in found.items()}, found
    assert (toy / "promise.py").read_text() == PROMISE


def test_each_mutant_applies_and_its_test_is_there() -> None:
    for each in CATALOGUE:
        compile(each.applied_to(ROOT), each.file, "exec")
        file, _, name = each.test.partition("[")[0].partition("::")
        assert f"def {name}" in (ROOT / file).read_text("utf-8"), each.test
