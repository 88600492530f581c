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
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from ragtrace.errors import InputError
from ragtrace.model import Compat, CompatStatus, VerdictCounts, VerdictLabel
from ragtrace.scoring._inputs import (
    Grade,
    Judged,
    ScoringInput,
    ScoringVerdicts,
    read_contexts,
    read_number,
    read_of_two,
    read_questions_made,
    read_ratings_given,
    read_verdicts,
)
from ragtrace.scoring.formulas import (
    average_precision,
    contradicted_share,
    mean_relevance,
    relevant_share,
    serving_share,
    strict_faithfulness,
)

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
