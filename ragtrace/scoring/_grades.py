"""Converts verdicts of any accepted form for the scoring rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragtrace.errors import InputError
from ragtrace.model import ChunkVerdict, Verdict, VerdictLabel

Grade: TypeAlias = VerdictLabel | int
"""A verdict: a label, or a judge's number (0 is no)."""

Judged: TypeAlias = (
    "Verdict | ChunkVerdict | VerdictLabel | str | bool | int | float | Mapping[str, Any]"
    " | Sequence[Judged] | None"
)
"""A verdict in any accepted form: see `score`."""

_WORDS = {
    **{label.value: label for label in VerdictLabel},
    **dict.fromkeys(("s", "yes", "true", "attributed", "faithful"), VerdictLabel.SUPPORTED),
    **dict.fromkeys(("c", "no", "false", "not attributed"), VerdictLabel.CONTRADICTED),
    **dict.fromkeys(("n", "not mentioned", "neutral", "borderline", "idk"), VerdictLabel.UNSUPPORTED),
    "partly relevant": VerdictLabel.PARTLY_RELEVANT,
    "partial": VerdictLabel.PARTLY_RELEVANT,
}
_VERDICT_KEYS = ("label", "verdict", "attributed", "is_supported", "score")
_ACCEPTED = (
    "a Verdict or ChunkVerdict, a label (supported, contradicted, unsupported, unjudged, relevant,"
    " borderline, irrelevant; S, C, N; yes, no), a bool, an int, None for a missing verdict, or a mapping"
    f" with one of {', '.join(_VERDICT_KEYS)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeQuestion:
    """A question that was generated from the answer."""

    noncommittal: bool
    cosine: float
    """Cosine between it and the asked question."""


def read_grades(verdicts: Iterable[Any]) -> tuple[Grade | None, ...]:
    """Read verdicts; ``None`` is one that is missing or unjudged.

    Raises:
        InputError: something is not a verdict; names the accepted forms.
    """
    return tuple(_grade(verdict) for verdict in verdicts)


def read_ratings(ratings: Iterable[Any]) -> tuple[int | None, ...]:
    """Read the ratings (0, 1, 2) of several judges; ``None`` and NaN stand for a judge that failed.

    Raises:
        InputError: something is not a rating.
    """
    return tuple(_rating(rating) for rating in ratings)


def read_questions(
    made: Iterable[Any], *, question: str | None, embeddings: Mapping[str, Sequence[float]]
) -> tuple[MadeQuestion, ...]:
    """Read questions generated from the answer, with a cosine or the vectors to compute it from.

    Raises:
        InputError: a question has neither.
    """
    asked = embeddings.get(question) if question is not None else None
    return tuple(_made(item, asked, embeddings) for item in made)


def _grade(given: Any) -> Grade | None:
    if isinstance(given, Verdict | ChunkVerdict):
        given = given.label
    if isinstance(given, Mapping):
        given = _of_mapping(given)
    if given is None or given is VerdictLabel.UNJUDGED:
        return None
    if isinstance(given, VerdictLabel):
        return given
    if isinstance(given, bool | int):
        return int(given)
    if isinstance(given, str):
        return _of_word(given)
    raise InputError(f"a verdict of type {type(given).__name__} is not understood: give {_ACCEPTED}")


def _of_mapping(given: Mapping[str, Any]) -> Any:
    for key in _VERDICT_KEYS:
        if key in given:
            return given[key]
    raise InputError(f"a verdict with the keys {sorted(map(str, given))} is not understood: give {_ACCEPTED}")


def _of_word(word: str) -> Grade | None:
    bare = word.strip().casefold()
    label = _WORDS.get(bare) or _WORDS.get(bare.replace("_", " "))
    if label is None:
        raise InputError(f"the verdict {word!r} is not understood: give {_ACCEPTED}")
    return None if label is VerdictLabel.UNJUDGED else label


def _rating(given: Any) -> int | None:
    if isinstance(given, Mapping):
        given = given.get("rating")
    if given is None or (isinstance(given, float) and math.isnan(given)):
        return None
    if isinstance(given, int | float) and given in (0, 1, 2):
        return int(given)
    raise InputError(
        f"the rating {given!r} is not understood: give 0, 1 or 2, or None for a judge that failed"
    )


def _made(
    given: Any, asked: Sequence[float] | None, embeddings: Mapping[str, Sequence[float]]
) -> MadeQuestion:
    if isinstance(given, bool | int | float):
        return MadeQuestion(noncommittal=False, cosine=float(given))
    if not isinstance(given, Mapping):
        given = {"question": given}
    noncommittal = bool(given.get("noncommittal", False))
    if isinstance(given.get("cosine"), int | float):
        return MadeQuestion(noncommittal=noncommittal, cosine=float(given["cosine"]))
    vector = given.get("vector", embeddings.get(str(given.get("question"))))
    if vector is None or asked is None:
        raise InputError(
            "a question made from the answer needs a `cosine`; or a `vector`, or its text in `embeddings`,"
            " together with the vector of `question` there"
        )
    return MadeQuestion(noncommittal=noncommittal, cosine=_cosine(vector, asked))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else math.nan
