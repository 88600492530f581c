"""The table: each fault, how often it was tried, and what it cost. All zeros is what is promised."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from tests.faults.scene import Ground, Tally

Grounds: TypeAlias = Callable[[Path], Ground]
"""Makes a ground with an empty store, and a folder that is not there yet."""
Try: TypeAlias = Callable[[Ground], Tally]
"""Strikes a collector on a ground of its own, and gives account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is done to a collector, in several tries."""

    name: str
    tries: Sequence[Try]
    is_for_all: bool = False
    """Whether it strikes what other tries use, too: then there is one try at a time."""
    not_tried: str = ""
    """Why it has no tries."""


Made: TypeAlias = Callable[[Grounds], Fault]
"""A fault, made when it is tried: of some the tries are not known before statements are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a fault cost."""

    fault: str
    tries: int
    tally: Tally
    broken: Sequence[str] = ()
    """Tries that did not come to an account, and why: each counts as one that is unaccounted for."""
    not_tried: str = ""

    def __str__(self) -> str:
        if self.not_tried:
            return f"{self.fault:<58} not tried: {self.not_tried}"
        tally = self.tally
        return f"{self.fault:<58} {self.tries:>5} {tally.lost:>5} {tally.doubled:>7} {tally.unaccounted:>11}"

    def __bool__(self) -> bool:
        return any(self.tally) or bool(self.broken)


def heading() -> str:
    return f"{'fault':<58} {'tries':>5} {'lost':>5} {'doubled':>7} {'unaccounted':>11}"


def rows(faults: Sequence[Made], grounds: Grounds, *, at_once: int) -> Iterator[Row]:
    """Try the faults one after the other, several tries of one at a time."""
    with TemporaryDirectory(prefix="ragtrace-faults-") as folder:
        for number, fault in enumerate(made(grounds) for made in faults):
            its = [grounds(Path(folder, f"{number}-{position}")) for position in range(len(fault.tries))]
            with ThreadPoolExecutor(1 if fault.is_for_all else at_once) as pool:
                yield _row(fault, list(pool.map(_attempt, fault.tries, its)))


def _attempt(one: Try, ground: Ground) -> Tally | str:
    try:
        return one(ground)
    except Exception:  # noqa: BLE001 -- a try that breaks is told in its row, and the others go on
        return traceback.format_exc()


def _row(fault: Fault, results: Sequence[Tally | str]) -> Row:
    broken = [each for each in results if isinstance(each, str)]
    accounts = [each for each in results if not isinstance(each, str)]
    total = Tally.sum([Tally(unaccounted=len(broken)), *accounts])
    return Row(fault=fault.name, tries=len(results), tally=total, broken=broken, not_tried=fault.not_tried)
