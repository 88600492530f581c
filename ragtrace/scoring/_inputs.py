"""The inputs of the scoring rules, converted from any accepted form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragtrace.errors import InputError
from ragtrace.model import VerdictLabel
from ragtrace.scoring._grades import Grade, MadeQuestion, read_grades, read_questions, read_ratings


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
    """Read a list of verdicts.

    Raises:
        InputError: the form is unknown.
    """
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
    """Read grades of 0, 1 and 2: irrelevant, partly relevant, relevant.

    Raises:
        InputError: the form is unknown.
    """
    read = read_verdicts(given, asked)
    return replace(read, grades=tuple(_OF_TWO.get(grade, grade) for grade in read.grades))


def read_contexts(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read a list of verdicts per context; a single verdict counts as a list of one.

    Raises:
        InputError: the form is unknown.
    """
    lists = [_verdicts_of(each) for each in _list(given, asked, "per_context", "verdicts")]
    per_context = tuple(tuple(g for g in read_grades(verdicts) if g is not None) for verdicts in lists)
    return ScoringVerdicts(per_context=per_context, strict_mode=asked.strict_mode)


def read_ratings_given(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read the ratings of two judges.

    Raises:
        InputError: the form is unknown.
    """
    no_context = asked.n_contexts == 0
    if isinstance(given, Mapping) and "per_context" in given:
        no_context = no_context or not given["per_context"]
    return ScoringVerdicts(ratings=read_ratings(_list(given, asked, "ratings")), no_context=no_context)


def read_questions_made(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read the questions generated from an answer.

    Raises:
        InputError: the form is unknown.
    """
    made = _list(given, asked, "questions")
    return ScoringVerdicts(
        questions=read_questions(made, question=asked.question, embeddings=asked.embeddings)
    )


def read_number(given: Any, asked: ScoringInput) -> ScoringVerdicts:
    """Read the number that a judge gave.

    Raises:
        InputError: the form is unknown.
    """
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
