"""The rules that compute a tool's result from verdicts.

A rule divides by the existing verdicts if the tool does, whatever the number of claims, and counts missing
verdicts as a no if the tool does. It clamps only where the tool clamps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from ragtrace.model import Compat, CompatStatus, VerdictCounts, VerdictLabel
from ragtrace.scoring._grades import Grade
from ragtrace.scoring._inputs import (
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
