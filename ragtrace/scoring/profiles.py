"""Other tools' rules of scoring, over the same verdicts.

Tools of the same field turn the same verdicts into different numbers: what the context does not mention is
unfaithful to RAGAS and promptfoo and faithful to DeepEval; an answer without claims is NaN, 1, 0 or an error.
Each rule here gives what the tool itself reports when its judge says what these verdicts say. Where a tool
divides by the verdicts that came, whatever the number of claims, so does its rule; where it counts a missing
verdict as a no, so does its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from ragtrace.errors import InputError
from ragtrace.model import Compat, CompatStatus, VerdictCounts, VerdictLabel
from ragtrace.scoring.given import (
    Grade,
    Judged,
    MadeQuestion,
    read_grades,
    read_questions,
    read_ratings,
)
from ragtrace.scoring.readings import (
    average_precision,
    contradicted_share,
    mean_relevance,
    relevant_share,
    strict_faithfulness,
)

__all__ = ["ALIASES", "PROFILES", "ProfileScore", "canonical", "score", "scored_metrics"]

ALIASES = {
    "answer_relevancy": "answer_relevance",
    "contextual_precision": "context_precision",
    "context_utilization": "context_precision",
    "contextual_recall": "context_recall",
    "contextual_relevancy": "context_relevance",
    "response_groundedness": "groundedness",
}
"""What other tools call a metric: RAGAS, DeepEval."""
PROFILES = ("ragtrace", "ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileScore:
    """What verdicts are worth under a tool's rule."""

    score: float | None
    """In [0, 1], or ``None`` where the rule gives no such number."""
    status: CompatStatus
    """How the tool's own run ends: ``ok``, ``nan``, ``error`` or ``grader_error``."""
    raw: float | None
    """The number the tool reports, which may lie outside [0, 1]; a grader error reports 0."""

    @property
    def compat(self) -> Compat:
        """The same, as it stands on a metric's outcome."""
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
    """Score verdicts as a tool would: pure arithmetic, and nothing clamped but where the tool clamps.

    A verdict may be a `Verdict` or `ChunkVerdict`, a label (``supported``, ``contradicted``,
    ``not_mentioned``, ``unjudged``, ``relevant``, ``borderline``, ``irrelevant``, or ``S``, ``C``, ``N``,
    ``yes``, ``no``), a bool or an int (any number but 0 is a yes; RAGAS calculates with it), ``None`` for one
    that is missing, or a mapping with such a ``label``, ``verdict`` or ``attributed``.

    What is listed depends on the metric and, where tools measure different things, on the profile:

    ================================  =======================================================================
    faithfulness                      a verdict a claim
    hallucination                     deepeval: a verdict a context (yes: it agrees); ragtrace: one a claim
    answer_relevance                  deepeval and ragtrace: a verdict a statement; ragas and promptfoo: the
                                      questions made from the answer; rag_evals: the judge's number
    context_precision,                a verdict a chunk, in the order of the ranks
    chunk_precision
    context_recall                    a verdict a sentence of the reference
    context_relevance                 deepeval and promptfoo: for each context a list of verdicts, one a
                                      statement; ragas: the ratings (0, 1, 2) of its two judges; ragtrace: a
                                      verdict a chunk
    groundedness                      ragas: the ratings of its two judges; ragtrace: a verdict a sentence
    ================================  =======================================================================

    A question is a cosine, or ``{"question", "noncommittal", "cosine"}``; instead of the cosine there may be
    a ``vector``, or its text may stand in ``embeddings`` as that of the asked ``question`` must. A mapping
    in place of the list may hold several of these under ``verdicts``, ``node_verdicts``,
    ``context_verdicts``, ``attributions``, ``per_context``, ``ratings``, ``questions`` and ``claims``.

    Args:
        metric: Our name of the metric, or the tool's.
        profile: One of `PROFILES`.
        verdicts: As above.
        n_claims: How many claims there were, where there are fewer verdicts.
        n_contexts: How many contexts there were, where the verdicts do not tell.
        question: The question that was asked.
        embeddings: Vectors by text.
        strict_mode: deepeval: what is not perfect is 0.
        penalize_ambiguous_claims: deepeval: what is not mentioned does not pass.

    Raises:
        InputError: the tool has no such metric, or the verdicts are in no form that is understood.
    """
    read, rule = _rule(metric, profile)
    asked = _Asked(
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
    """Return the metrics that have a rule in the profile, by our names.

    Raises:
        InputError: there is no such profile.
    """
    return tuple(sorted(_RULES[_profile(profile)]))


def canonical(metric: str) -> str:
    """Return our name of a metric that another tool calls by its own."""
    return ALIASES.get(metric, metric)


_PROFILE_ALIASES = {"ragas_legacy": "ragas-legacy", "rag-evals": "rag_evals", "deepeval": "deepeval-4"}


def _profile(name: str) -> str:
    profile = _PROFILE_ALIASES.get(name, name)
    if profile not in PROFILES:
        raise InputError(f"there is no profile {name!r}: choose from {', '.join(PROFILES)}")
    return profile


def _rule(metric: str, profile: str) -> tuple[_Read, _Rule]:
    rules = _RULES[_profile(profile)]
    found = rules.get(canonical(metric))
    if found is None:
        there = ", ".join(sorted(rules))
        raise InputError(f"the profile {profile!r} has no rule for {metric!r}: choose from {there}")
    return found


def _in_range(compat: Compat) -> float | None:
    if compat.status is not CompatStatus.OK or compat.score is None:
        return None
    return compat.score if 0 <= compat.score <= 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is to be scored, besides the verdicts."""

    metric: str
    n_claims: int | None
    n_contexts: int | None
    question: str | None
    embeddings: Mapping[str, Sequence[float]]
    strict_mode: bool
    penalize: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a rule reads."""

    grades: tuple[Grade, ...] = ()
    """The verdicts that came."""
    total: int = 0
    """How many things were to be judged."""
    per_context: tuple[tuple[Grade, ...], ...] = ()
    ratings: tuple[int | None, ...] = ()
    questions: tuple[MadeQuestion, ...] = ()
    number: float = 0.0
    no_context: bool = False
    strict_mode: bool = False
    penalize: bool = False


_Read: TypeAlias = Callable[[Any, _Asked], _Given]
_Rule: TypeAlias = Callable[[_Given], Compat]


def _read_verdicts(given: Any, asked: _Asked) -> _Given:
    grades = read_grades(_list(given, asked, *_KEYS.get(asked.metric, ("verdicts",))))
    present = tuple(grade for grade in grades if grade is not None)
    return _Given(
        grades=present,
        total=_total(given, asked, len(grades)),
        no_context=asked.n_contexts == 0,
        strict_mode=asked.strict_mode,
        penalize=asked.penalize,
    )


def _read_contexts(given: Any, asked: _Asked) -> _Given:
    lists = _list(given, asked, "per_context", "verdicts")
    if any(isinstance(verdicts, str) or not isinstance(verdicts, Iterable) for verdicts in lists):
        lists = [[verdict] for verdict in lists]  # a verdict a context: one statement each
    per_context = tuple(
        tuple(grade for grade in read_grades(verdicts) if grade is not None) for verdicts in lists
    )
    return _Given(per_context=per_context, strict_mode=asked.strict_mode)


def _read_ratings(given: Any, asked: _Asked) -> _Given:
    no_context = asked.n_contexts == 0
    if isinstance(given, Mapping) and "per_context" in given:
        no_context = no_context or not given["per_context"]
    return _Given(ratings=read_ratings(_list(given, asked, "ratings")), no_context=no_context)


def _read_questions(given: Any, asked: _Asked) -> _Given:
    made = _list(given, asked, "questions")
    return _Given(questions=read_questions(made, question=asked.question, embeddings=asked.embeddings))


def _read_number(given: Any, asked: _Asked) -> _Given:
    value = given.get("overall_score") if isinstance(given, Mapping) else given
    if isinstance(value, Sequence) and len(value) == 1 and not isinstance(value, str):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"rag_evals scores {asked.metric} by the judge's own number: give it, such as 0.8")
    return _Given(number=float(value))


_KEYS = {
    "hallucination": ("context_verdicts", "verdicts"),
    "context_precision": ("node_verdicts", "verdicts"),
    "chunk_precision": ("node_verdicts", "verdicts"),
    "context_recall": ("attributions", "verdicts"),
}


def _list(given: Any, asked: _Asked, *keys: str) -> Sequence[Any]:
    if isinstance(given, Mapping):
        found = next((given[key] for key in keys if key in given), None)
        if found is None:
            raise InputError(f"to score {asked.metric}, the mapping needs one of the keys {', '.join(keys)}")
        given = found
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InputError(f"to score {asked.metric}, give a list: {type(given).__name__} is none")
    return list(given)


def _total(given: Any, asked: _Asked, came: int) -> int:
    if asked.n_claims is not None:
        return asked.n_claims
    listed = given.get("claims") if isinstance(given, Mapping) and asked.metric == "faithfulness" else None
    return came if listed is None else len(listed)


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


def _ragas_faithfulness(given: _Given) -> Compat:
    return _share(map(_yes, given.grades), len(given.grades), empty=_NAN)


def _ragas_questions(given: _Given) -> Compat:
    """All questions noncommittal: 0. RAGAS leaves [0, 1] where the cosines do."""
    if not given.questions:
        return _ok(0.0)
    return _ok(_mean_cosine(given) * (not all(made.noncommittal for made in given.questions)))


def _ragas_legacy_questions(given: _Given) -> Compat:
    return _ragas_questions(given) if given.questions else _NAN


def _mean_cosine(given: _Given) -> float:
    return sum(made.cosine for made in given.questions) / len(given.questions)


def _ragas_precision(given: _Given) -> Compat:
    """RAGAS calculates with the very integers its judge wrote."""
    if not given.grades:
        return _RAISES
    return _precision_with_epsilon([_number(grade) for grade in given.grades])


def _ragas_legacy_precision(given: _Given) -> Compat:
    return _precision_with_epsilon([int(_yes(grade)) for grade in given.grades])


def _precision_with_epsilon(numbers: Sequence[int]) -> Compat:
    sums = accumulate(numbers)
    weighted = sum(so_far / rank * n for rank, (n, so_far) in enumerate(zip(numbers, sums, strict=True), 1))
    return _ok(weighted / (sum(numbers) + 1e-10))


def _ragas_recall(given: _Given) -> Compat:
    numbers = [_number(grade) for grade in given.grades]
    return _ok(sum(numbers) / len(numbers)) if numbers else _NAN


def _ragas_ratings(given: _Given) -> Compat:
    """The mean of two judges, or the one that did not fail."""
    came = [rating for rating in given.ratings if rating is not None]
    if given.no_context:
        return _RAISES
    return _ok(sum(came) / len(came) / 2) if came else _NAN


def _ragas_legacy_ratings(given: _Given) -> Compat:
    """As ``max(a, b)`` goes: where the first judge failed it is NaN, where the second did it is the first."""
    if given.no_context:
        return _ok(0.0)
    if given.ratings and given.ratings[0] is None:
        return _NAN
    return _ragas_ratings(given)


def _deepeval(given: _Given, share: Compat) -> Compat:
    strict = given.strict_mode and share.score is not None and share.score < 1
    return _ok(0.0) if strict else share


def _deepeval_faithfulness(given: _Given) -> Compat:
    passing = [_yes(grade) or (_maybe(grade) and not given.penalize) for grade in given.grades]
    return _deepeval(given, _share(passing, len(passing), empty=_ok(1.0)))


def _deepeval_relevance(given: _Given) -> Compat:
    passing = [_yes(grade) or _maybe(grade) for grade in given.grades]
    return _deepeval(given, _share(passing, len(passing), empty=_ok(1.0)))


def _deepeval_4_hallucination(given: _Given) -> Compat:
    """From 4.2.0 on, 1 is good: the share of contexts that the answer agrees with."""
    return _deepeval(given, _share(map(_yes, given.grades), len(given.grades), empty=_ok(1.0)))


def _deepeval_3_hallucination(given: _Given) -> Compat:
    """Up to 4.1, 0 is good: the share of contexts that the answer contradicts."""
    contradicted = [not _yes(grade) for grade in given.grades]
    share = _share(contradicted, len(contradicted), empty=_ok(0.0))
    return _ok(1.0) if given.strict_mode and share.score else share


def _deepeval_precision(given: _Given) -> Compat:
    precision = average_precision([_yes(grade) for grade in given.grades])
    return _deepeval(given, _ok(precision or 0.0))


def _deepeval_recall(given: _Given) -> Compat:
    return _deepeval(given, _share(map(_yes, given.grades), len(given.grades), empty=_ok(0.0)))


def _deepeval_context_relevance(given: _Given) -> Compat:
    """Statements of all contexts weigh alike: a verbose context weighs more."""
    statements = [_yes(grade) for verdicts in given.per_context for grade in verdicts]
    return _deepeval(given, _share(statements, len(statements), empty=_ok(0.0)))


def _promptfoo_faithfulness(given: _Given) -> Compat:
    """A missing verdict counts as a no; its one clamp keeps surplus noes from going below 0."""
    if not given.grades or not given.total:
        return _GRADER_ERROR
    noes = sum(not _yes(grade) for grade in given.grades)
    missing = max(0, given.total - len(given.grades))
    return _ok(min(1.0, max(0.0, 1 - (noes + missing) / given.total)))


def _promptfoo_questions(given: _Given) -> Compat:
    return _ok(_mean_cosine(given)) if given.questions else _GRADER_ERROR


def _promptfoo_recall(given: _Given) -> Compat:
    return _share(map(_yes, given.grades), len(given.grades), empty=_GRADER_ERROR)


def _promptfoo_context_relevance(given: _Given) -> Compat:
    """The unit is the context: it counts where anything in it is relevant."""
    relevant = [any(map(_yes, verdicts)) for verdicts in given.per_context]
    return _share(relevant, len(relevant), empty=_ok(0.0))


def _rag_evals_faithfulness(given: _Given) -> Compat:
    return _share(map(_yes, given.grades), given.total, empty=_ok(0.0))


def _rag_evals_precision(given: _Given) -> Compat:
    """A plain mean, whatever the rank; without a chunk it divides by zero."""
    return _share(map(_yes, given.grades), given.total, empty=_RAISES)


def _rag_evals_relevance(given: _Given) -> Compat:
    return _ok(given.number)


def _own(reading: Callable[[VerdictCounts], float | None]) -> _Rule:
    def rule(given: _Given) -> Compat:
        return _maybe_ok(reading(_counts(given.grades)))

    return rule


def _own_precision(given: _Given) -> Compat:
    return _maybe_ok(average_precision([_yes(grade) for grade in given.grades]))


def _own_relevance(given: _Given) -> Compat:
    passing = [_yes(grade) or _maybe(grade) for grade in given.grades]
    return _share(passing, len(passing), empty=_NAN)


def _own_questions(given: _Given) -> Compat:
    """An answer that declines has no score here."""
    declines = any(made.noncommittal for made in given.questions)
    return _NAN if declines or not given.questions else _ok(_mean_cosine(given))


def _maybe_ok(value: float | None) -> Compat:
    return _NAN if value is None else _ok(value)


def _counts(grades: Sequence[Grade]) -> VerdictCounts:
    yes = sum(map(_yes, grades))
    maybe = sum(map(_maybe, grades))
    no = len(grades) - yes - maybe
    if any(grade in _RELEVANCE for grade in grades):
        return VerdictCounts(relevant=yes, partly_relevant=maybe, irrelevant=no)
    return VerdictCounts(supported=yes, unsupported=maybe, contradicted=no)


_RELEVANCE = (VerdictLabel.RELEVANT, VerdictLabel.PARTLY_RELEVANT, VerdictLabel.IRRELEVANT)

_RAGAS: Mapping[str, tuple[_Read, _Rule]] = {
    "faithfulness": (_read_verdicts, _ragas_faithfulness),
    "answer_relevance": (_read_questions, _ragas_questions),
    "context_precision": (_read_verdicts, _ragas_precision),
    "context_recall": (_read_verdicts, _ragas_recall),
    "context_relevance": (_read_ratings, _ragas_ratings),
    "groundedness": (_read_ratings, _ragas_ratings),
}
_DEEPEVAL: Mapping[str, tuple[_Read, _Rule]] = {
    "faithfulness": (_read_verdicts, _deepeval_faithfulness),
    "hallucination": (_read_verdicts, _deepeval_4_hallucination),
    "answer_relevance": (_read_verdicts, _deepeval_relevance),
    "context_precision": (_read_verdicts, _deepeval_precision),
    "context_recall": (_read_verdicts, _deepeval_recall),
    "context_relevance": (_read_contexts, _deepeval_context_relevance),
}
_RULES: Mapping[str, Mapping[str, tuple[_Read, _Rule]]] = {
    "ragas": _RAGAS,
    "ragas-legacy": {
        **_RAGAS,
        "answer_relevance": (_read_questions, _ragas_legacy_questions),
        "context_precision": (_read_verdicts, _ragas_legacy_precision),
        "context_recall": (_read_verdicts, _ragas_faithfulness),
        "context_relevance": (_read_ratings, _ragas_legacy_ratings),
        "groundedness": (_read_ratings, _ragas_legacy_ratings),
    },
    "deepeval-4": _DEEPEVAL,
    "deepeval-3": {**_DEEPEVAL, "hallucination": (_read_verdicts, _deepeval_3_hallucination)},
    "promptfoo": {
        "faithfulness": (_read_verdicts, _promptfoo_faithfulness),
        "answer_relevance": (_read_questions, _promptfoo_questions),
        "context_recall": (_read_verdicts, _promptfoo_recall),
        "context_relevance": (_read_contexts, _promptfoo_context_relevance),
    },
    "rag_evals": {
        "faithfulness": (_read_verdicts, _rag_evals_faithfulness),
        "answer_relevance": (_read_number, _rag_evals_relevance),
        "context_precision": (_read_verdicts, _rag_evals_precision),
        "chunk_precision": (_read_verdicts, _rag_evals_precision),
    },
    "ragtrace": {
        "faithfulness": (_read_verdicts, _own(strict_faithfulness)),
        "hallucination": (_read_verdicts, _own(contradicted_share)),
        "answer_relevance": (_read_verdicts, _own_relevance),
        "context_precision": (_read_verdicts, _own_precision),
        "chunk_precision": (_read_verdicts, _own(relevant_share)),
        "context_recall": (_read_verdicts, _own(strict_faithfulness)),
        "context_relevance": (_read_verdicts, _own(mean_relevance)),
        "groundedness": (_read_verdicts, _own(strict_faithfulness)),
        "question_similarity": (_read_questions, _own_questions),
    },
}
