"""The inputs of the scoring rules, converted from any accepted form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringInput:
    """The inputs of a score besides the verdicts."""

    metric: str
    n_claims: int | None = None
    n_contexts: int | None = None
    question: str | None = None
    embeddings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    strict_mode: bool = False
    penalize: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringVerdicts:
    """The converted verdicts of a rule."""

    grades: tuple[Grade, ...] = ()
    """The existing verdicts."""
    total: int = 0
    """The number of items to judge."""
    per_context: tuple[tuple[Grade, ...], ...] = ()
    ratings: tuple[int | None, ...] = ()
    questions: tuple[MadeQuestion, ...] = ()
    number: float = 0.0
    no_context: bool = False
    strict_mode: bool = False
    penalize: bool = False


def read_verdicts(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read a list of verdicts."""
    grades = read_grades(_list(given, asked, *_KEYS.get(asked.metric, ("verdicts",))))
    present = tuple(grade for grade in grades if grade is not None)
    return ScoringVerdicts(
        grades=present,
        total=_total(given, asked, len(grades)),
        no_context=asked.n_contexts == 0,
        strict_mode=asked.strict_mode,
        penalize=asked.penalize,
    )


def read_of_two(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read grades of 0, 1 and 2: irrelevant, partly relevant, relevant."""
    read = read_verdicts(given, asked)
    return replace(read, grades=tuple(_OF_TWO.get(grade, grade) for grade in read.grades))


def read_contexts(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read a list of verdicts per context; a single verdict counts as a list of one."""
    lists = [_verdicts_of(each) for each in _list(given, asked, "per_context", "verdicts")]
    per_context = tuple(tuple(g for g in read_grades(verdicts) if g is not None) for verdicts in lists)
    return ScoringVerdicts(per_context=per_context, strict_mode=asked.strict_mode)


def read_ratings_given(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read the ratings of two judges."""
    no_context = asked.n_contexts == 0
    if isinstance(given, Mapping) and "per_context" in given:
        no_context = no_context or not given["per_context"]
    return ScoringVerdicts(ratings=read_ratings(_list(given, asked, "ratings")), no_context=no_context)


def read_questions_made(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read the questions generated from an answer."""
    made = _list(given, asked, "questions")
    return ScoringVerdicts(
        questions=read_questions(made, question=asked.question, embeddings=asked.embeddings)
    )


def read_number(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read the number that a judge gave."""
    value = given.get("overall_score") if isinstance(given, Mapping) else given
    if isinstance(value, Sequence) and len(value) == 1 and not isinstance(value, str):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"rag_evals scores {asked.metric} by the judge's own number: give it, such as 0.8")
    return ScoringVerdicts(number=float(value))


_KEYS = {
    "hallucination": ("context_verdicts", "verdicts"),
    "context_precision": ("node_verdicts", "verdicts"),
    "chunk_precision": ("node_verdicts", "verdicts"),
    "context_recall": ("attributions", "verdicts"),
}


_OF_CHUNKS = ("context_precision", "chunk_precision", "context_relevance")
_OF_TWO: Mapping[Grade, Grade] = {
    0: VerdictLabel.IRRELEVANT,
    1: VerdictLabel.PARTLY_RELEVANT,
    2: VerdictLabel.RELEVANT,
}


def _verdicts_of(context: Any) -> Sequence[Any]:
    if isinstance(context, Mapping) and "verdicts" in context:
        context = context["verdicts"]
    single = isinstance(context, str | Mapping) or not isinstance(context, Iterable)
    return [context] if single else list(context)


def _list(given: Any, asked: ScoringInput, *keys: str) -> Sequence[Any]:
    if isinstance(given, Mapping):
        found = next((given[key] for key in keys if key in given), None)
        if found is None:
            raise InputError(f"to score {asked.metric}, the mapping needs one of the keys {', '.join(keys)}")
        given = found
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InputError(f"to score {asked.metric}, give a list: {type(given).__name__} is none")
    return list(given)


def _total(given: Any, asked: ScoringInput, came: int) -> int:
    number = asked.n_contexts if asked.metric in _OF_CHUNKS else asked.n_claims
    if number is not None:
        return number
    listed = given.get("claims") if isinstance(given, Mapping) and asked.metric == "faithfulness" else None
    return came if listed is None else len(listed)
