"""The runner of mutants tells what notices from what does not; and each mutant still fits the product."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant
from tests.mutants.running import Fate, Row, Yard
from tests.sharing import ROOT

PROMISE = "def kept(promise: str) -> bool:\n    return promise == 'given'\n"
TESTS = """
import pytest
from ragtrace.promise import kept

@pytest.fixture
def checked():
    assert kept("given")

def test_a_promise_is_kept():
    assert kept("given")

def test_what_was_not_promised_is_not():
    assert not kept("other")

def test_with_a_fixture(checked):
    pass

def test_of_something_else():
    pass

def test_that_fails_in_any_case():
    assert False

def test_by_patience():
    if not kept("given"):
        raise TimeoutError("it never came")
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """Make a checkout with one promise in it."""
    root = tmp_path / "toy"
    for file, text in {
        "ragtrace/__init__.py": "",
        "ragtrace/promise.py": PROMISE,
        "collector/ragtrace_collector/__init__.py": "",
        "tests/patience.py": "PATIENCE_S: Final = 300\n",
        "tests/test_promise.py": TESTS,
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    return root


def mutant(test: str, *, old: str = "== 'given'", new: str = "== 'broken'", hangs: bool = False) -> Mutant:
    return Mutant(
        promise="toy",
        breaks="the promise",
        file="ragtrace/promise.py",
        old=old,
        new=new,
        tests=(f"tests/test_promise.py::{test}",),
        hangs=hangs,
    )


def rows(toy: Path, *mutants: Mutant) -> list[Row]:
    return list(Yard(toy.parent / "yard", root=toy, at_once=1).rows(mutants))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "fate"),
    [
        (mutant("test_a_promise_is_kept"), Fate.KILLED),
        (mutant("test_of_something_else"), Fate.SURVIVED),
        (mutant("test_what_was_not_promised_is_not"), Fate.SURVIVED),
        (mutant("test_a_promise_is_kept", new="== ("), Fate.UNTESTED),
        (mutant("test_with_a_fixture"), Fate.UNTESTED),
        (mutant("test_that_is_not_there"), Fate.UNTESTED),
        (mutant("test_a_promise_is_kept", old="is_kept"), Fate.DOES_NOT_APPLY),
        (mutant("test_by_patience"), Fate.HUNG),
        (mutant("test_by_patience", hangs=True), Fate.KILLED),
    ],
    ids=[
        "noticed", "not noticed", "noticed by another test alone", "broken code", "broken fixture",
        "no such test", "text is gone", "patience", "patience as expected",
    ],
)  # fmt: skip
def test_a_mutant_is_killed_by_a_failing_test_and_by_nothing_else(
    toy: Path, given: Mutant, fate: Fate
) -> None:
    (row,) = rows(toy, given)
    assert row.fate is fate, row


@pytest.mark.slow
def test_a_test_that_fails_in_any_case_kills_nothing(toy: Path) -> None:
    first, again = rows(toy, mutant("test_that_fails_in_any_case"))
    assert (first.fate, again.fate) == (Fate.KILLED, Fate.NOT_SHOWN)


@pytest.mark.slow
def test_each_mutant_is_alone_in_its_copy_and_the_checkout_stays_as_it_is(toy: Path) -> None:
    survivor = mutant("test_a_promise_is_kept", new="in ('given', 'other')")
    fates = [row.fate for row in rows(toy, mutant("test_a_promise_is_kept"), survivor)]
    assert fates == [Fate.KILLED, Fate.SURVIVED]
    assert (toy / "ragtrace/promise.py").read_text() == PROMISE


@pytest.mark.parametrize("each", CATALOGUE, ids=[each.breaks for each in CATALOGUE])
def test_the_mutant_applies_and_its_tests_are_there(each: Mutant) -> None:
    each.check(ROOT)
    mutated = each.applied_to((ROOT / each.file).read_text("utf-8"))
    if each.file.endswith(".py"):  # templates have no syntax of their own to check here
        compile(mutated, each.file, "exec")


def test_no_two_mutants_have_one_name() -> None:
    assert len({each.breaks for each in CATALOGUE}) == len(CATALOGUE) >= 30
