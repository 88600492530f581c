"""Constructed claims in seven languages: each is true of its context, and false after one change.

A case is a context, a claim in other words that is true of it, and three changes: a number, a name, and a
negation. The last also gives a pair the other way round: with a context that negates, the claim without the
negation is the false one. Everything is invented for this purpose. English is there for comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.checkout import ROOT

KINDS: Final = ("number changed", "name changed", "negation added", "negation dropped")
_CASES: Final = json.loads((ROOT / "tests" / "data" / "language_pairs.json").read_text(encoding="utf-8"))
LANGUAGES: Final = tuple(_CASES)


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim that is true of a context, and one that is false."""

    language: str
    kind: str
    context: str
    true: str
    false: str


def pairs() -> Iterator[Pair]:
    """Yield four pairs for each case.

    Raises:
        ValueError: what is to be changed is not in the claim once.
    """
    for language, of_language in _CASES.items():
        for case in of_language["cases"]:
            context, claim = case["context"], case["claim"]
            for kind, (old, new) in zip(
                KINDS, (case["number"], case["name"], case["negation"]), strict=False
            ):
                if claim.count(old) != 1:
                    raise ValueError(f"{old!r} must be in {claim!r} once")
                yield Pair(language, kind, context, claim, claim.replace(old, new))
            negated = claim.replace(*case["negation"])
            yield Pair(language, KINDS[-1], f"{of_language['another']} {negated}", negated, claim)
