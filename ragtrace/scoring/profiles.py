"""Other tools' scoring rules, applied to the same verdicts.

Tools turn the same verdicts into different numbers. For example, a claim that the context does not mention is
unfaithful in RAGAS and promptfoo but faithful in DeepEval; an answer without claims is NaN, 1, 0 or an error.
Each rule returns what the tool itself reports if its judge gives these verdicts.

The verdicts depend on the metric and, if tools measure different things, on the profile:

================================  =======================================================================
faithfulness                      a verdict per claim
hallucination                     deepeval: a verdict per context (yes: it agrees); ragtrace: per claim
answer_relevance                  deepeval and ragtrace: a verdict per statement; ragas and promptfoo: the
                                  questions generated from the answer; rag_evals: the judge's number
context_precision,                a verdict per chunk, by rank
chunk_precision
context_recall                    a verdict per sentence of the reference
context_relevance                 deepeval and promptfoo: for each context a list of verdicts, one per
                                  statement; ragas: the ratings (0, 1, 2) of its two judges; ragtrace: a
                                  verdict per chunk
groundedness                      ragas: the ratings of its two judges; ragtrace: a verdict per sentence
================================  =======================================================================

A question is a cosine, or ``{"question", "noncommittal", "cosine"}``. Instead of the cosine, it may have a
``vector``, or its text may be a key of ``embeddings``, which must then contain the asked ``question`` too. A
mapping instead of the list may have several of these under ``verdicts``, ``node_verdicts``,
``context_verdicts``, ``attributions``, ``per_context``, ``ratings``, ``questions`` and ``claims``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeAlias

from ragtrace.errors import InputError
from ragtrace.model import ChunkVerdict, Compat, CompatStatus, Verdict, VerdictCounts, VerdictLabel
from ragtrace.scoring.formulas import (
    average_precision,
    contradicted_share,
    mean_relevance,
    relevant_share,
    serving_share,
    strict_faithfulness,
)

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


ALIASES = {
    "answer_relevancy": "answer_relevance",
    "contextual_precision": "context_precision",
    "context_utilization": "context_precision",
    "contextual_recall": "context_recall",
    "contextual_relevancy": "context_relevance",
    "response_groundedness": "groundedness",
}
"""Other tools' names of metrics (RAGAS, DeepEval)."""
PROFILES = ("ragtrace", "ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileScore:
    """The score of verdicts under a tool's rule."""

    score: float | None
    """In [0, 1], or ``None`` if the rule gives no such number."""
    status: CompatStatus
    """How the tool's own run ends: ``ok``, ``nan``, ``error`` or ``grader_error``."""
    raw: float | None
    """The number that the tool reports; it may be outside [0, 1]. A grader error reports 0."""

    @property
    def compat(self) -> Compat:
        """The same as a field of a metric's outcome."""
        return Compat(status=self.status, score=self.raw)


def score(
    metric: str,
    profile: str,
    verdicts: Sequence[Judged] | Mapping[str, Any] | float,
    *,
    n_claims: int | None = None,
    n_contexts: int | None = None,
    question: str | None = None,
    embeddings: Mapping[str, Sequence[float]] | None = None,
    strict_mode: bool = False,
    penalize_ambiguous_claims: bool = False,
) -> ProfileScore:
    """Score verdicts as a tool would. It is pure arithmetic and clamps only where the tool clamps.

    A verdict may be a `Verdict` or `ChunkVerdict`, a label (``supported``, ``contradicted``,
    ``unsupported``, ``unjudged``, ``relevant``, ``borderline``, ``irrelevant``, or ``S``, ``C``, ``N``,
    ``yes``, ``no``), a bool or an int (any number except 0 is a yes; RAGAS calculates with it), ``None`` if
    it is missing, or a mapping with such a ``label``, ``verdict`` or ``attributed``.

    The module's docstring lists the verdicts of each metric.

    Args:
        metric: ragtrace's name of the metric, or the tool's.
        profile: One of `PROFILES`.
        verdicts: As described above.
        n_claims: The number of claims, if there are fewer verdicts.
        n_contexts: The number of contexts, if the verdicts do not show it.
        question: The asked question.
        embeddings: Vectors by text.
        strict_mode: deepeval: any score below 1 is 0.
        penalize_ambiguous_claims: deepeval: unsupported claims do not pass.

    Raises:
        InputError: the tool has no such metric, or the form of the verdicts is unknown.
    """
    read, rule = _rule_of(metric, profile)
    asked = ScoringInput(
        metric=canonical(metric),
        n_claims=n_claims,
        n_contexts=n_contexts,
        question=question,
        embeddings=embeddings or {},
        strict_mode=strict_mode,
        penalize=penalize_ambiguous_claims,
    )
    compat = rule(read(verdicts, asked))
    return ProfileScore(score=_in_range(compat), status=compat.status, raw=compat.score)


def scored_metrics(profile: str) -> tuple[str, ...]:
    """Return the metrics with a rule in the profile, by ragtrace's names.

    Raises:
        InputError: there is no such profile.
    """
    return tuple(sorted(RULES[_profile(profile)]))


def canonical(metric: str) -> str:
    """Return ragtrace's name of another tool's metric."""
    return ALIASES.get(metric, metric)


_PROFILE_ALIASES = {"ragas_legacy": "ragas-legacy", "rag-evals": "rag_evals", "deepeval": "deepeval-4"}


def _profile(name: str) -> str:
    profile = _PROFILE_ALIASES.get(name, name)
    if profile not in PROFILES:
        raise InputError(f"there is no profile {name!r}: choose from {', '.join(PROFILES)}")
    return profile


def _rule_of(metric: str, profile: str) -> tuple[Read, Rule]:
    rules = RULES[_profile(profile)]
    found = rules.get(canonical(metric))
    if found is None:
        there = ", ".join(sorted(rules))
        raise InputError(f"the profile {profile!r} has no rule for {metric!r}: choose from {there}")
    return found


def _in_range(compat: Compat) -> float | None:
    if compat.status is not CompatStatus.OK or compat.score is None:
        return None
    return compat.score if 0 <= compat.score <= 1 else None


Read: TypeAlias = Callable[[Any, ScoringInput], ScoringVerdicts]
"""Converts the input for a rule."""
Rule: TypeAlias = Callable[[ScoringVerdicts], Compat]
"""Returns what the tool reports."""


def _yes(grade: Grade) -> bool:
    if isinstance(grade, VerdictLabel):
        return grade in (VerdictLabel.SUPPORTED, VerdictLabel.RELEVANT)
    return grade != 0


def _maybe(grade: Grade) -> bool:
    return grade in (VerdictLabel.UNSUPPORTED, VerdictLabel.PARTLY_RELEVANT)


def _number(grade: Grade) -> int:
    return int(_yes(grade)) if isinstance(grade, VerdictLabel) else grade


def _ok(value: float) -> Compat:
    return _NAN if math.isnan(value) else Compat(status=CompatStatus.OK, score=float(value))


_NAN = Compat(status=CompatStatus.NAN)
_RAISES = Compat(status=CompatStatus.ERROR)
_GRADER_ERROR = Compat(status=CompatStatus.GRADER_ERROR, score=0.0)


def _share(passing: Iterable[bool], total: int, *, empty: Compat) -> Compat:
    return _ok(sum(passing) / total) if total else empty


def _ragas_faithfulness(given: ScoringVerdicts) -> Compat:
    return _share(map(_yes, given.grades), len(given.grades), empty=_NAN)


def _ragas_questions(given: ScoringVerdicts) -> Compat:
    """If all questions are noncommittal, 0. The score leaves [0, 1] if the cosines do, as in RAGAS."""
    if not given.questions:
        return _ok(0.0)
    return _ok(_mean_cosine(given) * (not all(made.noncommittal for made in given.questions)))


def _ragas_legacy_questions(given: ScoringVerdicts) -> Compat:
    return _ragas_questions(given) if given.questions else _NAN


def _mean_cosine(given: ScoringVerdicts) -> float:
    return sum(made.cosine for made in given.questions) / len(given.questions)


def _ragas_precision(given: ScoringVerdicts) -> Compat:
    """RAGAS calculates with the integers that its judge wrote."""
    if not given.grades:
        return _RAISES
    return _precision_with_epsilon([_number(grade) for grade in given.grades])


def _ragas_legacy_precision(given: ScoringVerdicts) -> Compat:
    return _precision_with_epsilon([int(_yes(grade)) for grade in given.grades])


def _precision_with_epsilon(numbers: Sequence[int]) -> Compat:
    sums = accumulate(numbers)
    weighted = sum(so_far / rank * n for rank, (n, so_far) in enumerate(zip(numbers, sums, strict=True), 1))
    return _ok(weighted / (sum(numbers) + 1e-10))


def _ragas_recall(given: ScoringVerdicts) -> Compat:
    numbers = [_number(grade) for grade in given.grades]
    return _ok(sum(numbers) / len(numbers)) if numbers else _NAN


def _ragas_ratings(given: ScoringVerdicts) -> Compat:
    """The mean of two judges, or the one that did not fail."""
    came = [rating for rating in given.ratings if rating is not None]
    if given.no_context:
        return _RAISES
    return _ok(sum(came) / len(came) / 2) if came else _NAN


def _ragas_legacy_ratings(given: ScoringVerdicts) -> Compat:
    """Like ``max(a, b)``: NaN if the first judge failed, the first rating if the second did."""
    if given.no_context:
        return _ok(0.0)
    if given.ratings and given.ratings[0] is None:
        return _NAN
    return _ragas_ratings(given)


def _deepeval(given: ScoringVerdicts, share: Compat) -> Compat:
    strict = given.strict_mode and share.score is not None and share.score < 1
    return _ok(0.0) if strict else share


def _deepeval_faithfulness(given: ScoringVerdicts) -> Compat:
    passing = [_yes(grade) or (_maybe(grade) and not given.penalize) for grade in given.grades]
    return _deepeval(given, _share(passing, len(passing), empty=_ok(1.0)))


def _deepeval_relevance(given: ScoringVerdicts) -> Compat:
    passing = [_yes(grade) or _maybe(grade) for grade in given.grades]
    return _deepeval(given, _share(passing, len(passing), empty=_ok(1.0)))


def _deepeval_4_hallucination(given: ScoringVerdicts) -> Compat:
    """From 4.2.0 on, 1 is good: the share of contexts that the answer agrees with."""
    return _deepeval(given, _share(map(_yes, given.grades), len(given.grades), empty=_ok(1.0)))


def _deepeval_3_hallucination(given: ScoringVerdicts) -> Compat:
    """Up to 4.1, 0 is good: the share of contexts that the answer contradicts."""
    contradicted = [not _yes(grade) for grade in given.grades]
    share = _share(contradicted, len(contradicted), empty=_ok(0.0))
    return _ok(1.0) if given.strict_mode and share.score else share


def _deepeval_precision(given: ScoringVerdicts) -> Compat:
    precision = average_precision([_yes(grade) for grade in given.grades])
    return _deepeval(given, _ok(precision or 0.0))


def _deepeval_recall(given: ScoringVerdicts) -> Compat:
    return _deepeval(given, _share(map(_yes, given.grades), len(given.grades), empty=_ok(0.0)))


def _deepeval_context_relevance(given: ScoringVerdicts) -> Compat:
    """All statements have equal weight, so a verbose context weighs more."""
    statements = [_yes(grade) for verdicts in given.per_context for grade in verdicts]
    return _deepeval(given, _share(statements, len(statements), empty=_ok(0.0)))


def _promptfoo_faithfulness(given: ScoringVerdicts) -> Compat:
    """A missing verdict counts as a no. The only clamp keeps surplus noes from going below 0."""
    if not given.grades or not given.total:
        return _GRADER_ERROR
    noes = sum(not _yes(grade) for grade in given.grades)
    missing = max(0, given.total - len(given.grades))
    return _ok(min(1.0, max(0.0, 1 - (noes + missing) / given.total)))


def _promptfoo_questions(given: ScoringVerdicts) -> Compat:
    return _ok(_mean_cosine(given)) if given.questions else _GRADER_ERROR


def _promptfoo_recall(given: ScoringVerdicts) -> Compat:
    return _share(map(_yes, given.grades), len(given.grades), empty=_GRADER_ERROR)


def _promptfoo_context_relevance(given: ScoringVerdicts) -> Compat:
    """The unit is the context: it counts if anything in it is relevant."""
    relevant = [any(map(_yes, verdicts)) for verdicts in given.per_context]
    return _share(relevant, len(relevant), empty=_ok(0.0))


def _rag_evals_faithfulness(given: ScoringVerdicts) -> Compat:
    return _share(map(_yes, given.grades), given.total, empty=_ok(0.0))


def _rag_evals_precision(given: ScoringVerdicts) -> Compat:
    """A plain mean that ignores ranks; without chunks, it divides by zero."""
    return _share(map(_yes, given.grades), given.total, empty=_RAISES)


def _rag_evals_relevance(given: ScoringVerdicts) -> Compat:
    return _ok(given.number)


def _of_claims(reading: Callable[[VerdictCounts], float | None]) -> Rule:
    def rule(given: ScoringVerdicts) -> Compat:
        yes, maybe, no = _counts(given.grades)
        return _maybe_ok(reading(VerdictCounts(supported=yes, unsupported=maybe, contradicted=no)))

    return rule


def _of_relevance(reading: Callable[[VerdictCounts], float | None]) -> Rule:
    def rule(given: ScoringVerdicts) -> Compat:
        yes, maybe, no = _counts(given.grades)
        return _maybe_ok(reading(VerdictCounts(relevant=yes, partly_relevant=maybe, irrelevant=no)))

    return rule


def _own_precision(given: ScoringVerdicts) -> Compat:
    return _maybe_ok(average_precision([_yes(grade) for grade in given.grades]))


def _own_questions(given: ScoringVerdicts) -> Compat:
    """Refusals have no score here."""
    declines = any(made.noncommittal for made in given.questions)
    return _NAN if declines or not given.questions else _ok(_mean_cosine(given))


def _maybe_ok(value: float | None) -> Compat:
    return _NAN if value is None else _ok(value)


def _counts(grades: Sequence[Grade]) -> tuple[int, int, int]:
    yes = sum(map(_yes, grades))
    maybe = sum(map(_maybe, grades))
    no = len(grades) - yes - maybe
    return yes, maybe, no


_RAGAS: Mapping[str, tuple[Read, Rule]] = {
    "faithfulness": (read_verdicts, _ragas_faithfulness),
    "answer_relevance": (read_questions_made, _ragas_questions),
    "context_precision": (read_verdicts, _ragas_precision),
    "context_recall": (read_verdicts, _ragas_recall),
    "context_relevance": (read_ratings_given, _ragas_ratings),
    "groundedness": (read_ratings_given, _ragas_ratings),
}
_DEEPEVAL: Mapping[str, tuple[Read, Rule]] = {
    "faithfulness": (read_verdicts, _deepeval_faithfulness),
    "hallucination": (read_verdicts, _deepeval_4_hallucination),
    "answer_relevance": (read_verdicts, _deepeval_relevance),
    "context_precision": (read_verdicts, _deepeval_precision),
    "context_recall": (read_verdicts, _deepeval_recall),
    "context_relevance": (read_contexts, _deepeval_context_relevance),
}
RULES: Mapping[str, Mapping[str, tuple[Read, Rule]]] = {
    "ragas": _RAGAS,
    "ragas-legacy": {
        **_RAGAS,
        "answer_relevance": (read_questions_made, _ragas_legacy_questions),
        "context_precision": (read_verdicts, _ragas_legacy_precision),
        "context_recall": (read_verdicts, _ragas_faithfulness),
        "context_relevance": (read_ratings_given, _ragas_legacy_ratings),
        "groundedness": (read_ratings_given, _ragas_legacy_ratings),
    },
    "deepeval-4": _DEEPEVAL,
    "deepeval-3": {**_DEEPEVAL, "hallucination": (read_verdicts, _deepeval_3_hallucination)},
    "promptfoo": {
        "faithfulness": (read_verdicts, _promptfoo_faithfulness),
        "answer_relevance": (read_questions_made, _promptfoo_questions),
        "context_recall": (read_verdicts, _promptfoo_recall),
        "context_relevance": (read_contexts, _promptfoo_context_relevance),
    },
    "rag_evals": {
        "faithfulness": (read_verdicts, _rag_evals_faithfulness),
        "answer_relevance": (read_number, _rag_evals_relevance),
        "context_precision": (read_verdicts, _rag_evals_precision),
        "chunk_precision": (read_verdicts, _rag_evals_precision),
    },
    "ragtrace": {
        "faithfulness": (read_verdicts, _of_claims(strict_faithfulness)),
        "hallucination": (read_verdicts, _of_claims(contradicted_share)),
        "answer_relevance": (read_verdicts, _of_relevance(serving_share)),
        "context_precision": (read_verdicts, _own_precision),
        "chunk_precision": (read_verdicts, _of_relevance(relevant_share)),
        "context_recall": (read_verdicts, _of_claims(strict_faithfulness)),
        "context_relevance": (read_of_two, _of_relevance(mean_relevance)),
        "groundedness": (read_verdicts, _of_claims(strict_faithfulness)),
        "question_similarity": (read_questions_made, _own_questions),
    },
}
