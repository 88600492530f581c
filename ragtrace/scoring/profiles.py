"""Other tools' scoring rules, applied to the same verdicts.

Tools turn the same verdicts into different numbers. For example, a claim that the context does not mention is
unfaithful in RAGAS and promptfoo but faithful in DeepEval; an answer without claims is NaN, 1, 0 or an error.
Each rule returns what the tool itself reports if its judge gives these verdicts.

The verdicts depend on the metric and, if tools measure different things, on the profile:

================================  =======================================================================
faithfulness                      a verdict per claim
hallucination                     a verdict per context (yes: the answer agrees with it)
answer_relevance                  deepeval: a verdict per statement; ragas and promptfoo: the questions
                                  generated from the answer; rag_evals: the judge's number
context_precision,                a verdict per chunk, by rank
chunk_precision
context_recall                    a verdict per sentence of the reference
context_relevance                 deepeval and promptfoo: for each context a list of verdicts, one per
                                  statement; ragas: the ratings (0, 1, 2) of its two judges
groundedness                      the ratings of ragas' two judges
================================  =======================================================================

A question is a cosine, or ``{"question", "noncommittal", "cosine"}``. Instead of the cosine, its text may be
a key of ``embeddings``, which must then contain the asked ``question`` too. A mapping instead of the list may
have several of these under ``verdicts``, ``node_verdicts``, ``context_verdicts``, ``attributions``,
``per_context``, ``ratings``, ``questions`` and ``claims``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

from ragtrace.errors import InputError
from ragtrace.model import ChunkVerdict, Compat, CompatStatus, Verdict, VerdictLabel
from ragtrace.scoring.formulas import average_precision

Grade: TypeAlias = VerdictLabel | int
"""A verdict: a label, or a judge's number (0 is no)."""

Judged: TypeAlias = (
    "Verdict | ChunkVerdict | VerdictLabel | str | bool | int | float | Mapping[str, Any]"
    " | Sequence[Judged] | None"
)
"""A verdict in any accepted form: see `score`."""

_WORDS = {
    **{label.value: label for label in VerdictLabel},
    **dict.fromkeys(("s", "yes"), VerdictLabel.SUPPORTED),
    **dict.fromkeys(("c", "no"), VerdictLabel.CONTRADICTED),
    **dict.fromkeys(("n", "not_mentioned", "neutral", "borderline", "idk"), VerdictLabel.UNSUPPORTED),
}
_VERDICT_KEYS = ("label", "verdict", "attributed")
_ACCEPTED = (
    "a Verdict or ChunkVerdict, a label (supported, contradicted, unsupported, unjudged, relevant,"
    " borderline, irrelevant; S, C, N; yes, no), a bool, an int, None for a missing verdict, or a mapping"
    f" with one of {', '.join(_VERDICT_KEYS)}"
)
_KEYS = {
    "hallucination": "context_verdicts",
    "context_precision": "node_verdicts",
    "chunk_precision": "node_verdicts",
    "context_recall": "attributions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeQuestion:
    """A question that was generated from the answer."""

    noncommittal: bool
    cosine: float
    """Cosine between it and the asked question."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a rule scores. It reads the verdicts in the form that it needs.

    Raises:
        InputError: they have another one; names the accepted forms.
    """

    metric: str
    verdicts: Any
    n_claims: int | None = None
    n_contexts: int | None = None
    question: str | None = None
    embeddings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    strict_mode: bool = False
    penalize: bool = False

    @cached_property
    def grades(self) -> tuple[Grade, ...]:
        """The verdicts that there are."""
        return tuple(grade for grade in map(_grade, self._listed_verdicts) if grade is not None)

    @property
    def total(self) -> int:
        """The number of items to judge."""
        number = self.n_contexts if self.metric.startswith(("context", "chunk")) else self.n_claims
        if number is None and isinstance(self.verdicts, Mapping) and self.metric == "faithfulness":
            number = len(self.verdicts.get("claims", self._listed_verdicts))
        return len(self._listed_verdicts) if number is None else number

    @property
    def per_context(self) -> list[list[Grade]]:
        """The verdicts on each context; a single one counts as a list of one."""
        contexts = self._listed("per_context", "verdicts")
        listed = (each if isinstance(each, list | tuple) else [each] for each in contexts)
        return [[grade for grade in map(_grade, each) if grade is not None] for each in listed]

    @property
    def ratings(self) -> list[int | None]:
        """The ratings of two judges; ``None`` and NaN stand for one that failed."""
        return [_rating(each) for each in self._listed("ratings")]

    @property
    def no_context(self) -> bool:
        """Whether there is none to rate."""
        named = isinstance(self.verdicts, Mapping) and self.verdicts.get("per_context") == []
        return self.n_contexts == 0 or named

    @cached_property
    def questions(self) -> list[MadeQuestion]:
        """The questions generated from the answer, with their cosines."""
        return [self._question(each) for each in self._listed("questions")]

    @property
    def number(self) -> float:
        """The number that a judge gave."""
        if isinstance(self.verdicts, bool) or not isinstance(self.verdicts, int | float):
            raise InputError(f"{self.metric} is scored by the judge's own number: give it, such as 0.8")
        return float(self.verdicts)

    @cached_property
    def _listed_verdicts(self) -> Sequence[Any]:
        return self._listed(*filter(None, (_KEYS.get(self.metric), "verdicts")))

    def _listed(self, *keys: str) -> Sequence[Any]:
        given = self.verdicts
        if isinstance(given, Mapping):
            given = next((given[key] for key in keys if key in given), None)
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InputError(
                f"to score {self.metric}, give a list, or a mapping with one of the keys {', '.join(keys)}"
            )
        return list(given)

    def _question(self, made: Any) -> MadeQuestion:
        if isinstance(made, int | float):
            return MadeQuestion(noncommittal=False, cosine=float(made))
        told = made if isinstance(made, Mapping) else {"question": made}
        cosine = told.get("cosine")
        if cosine is None:
            vector, asked = (self.embeddings.get(str(text)) for text in (told.get("question"), self.question))
            if vector is None or asked is None:
                raise InputError(
                    "a question made from the answer needs a `cosine`, or its text in `embeddings` together"
                    " with that of `question`"
                )
            cosine = _cosine(vector, asked)
        return MadeQuestion(noncommittal=bool(told.get("noncommittal")), cosine=float(cosine))


def _grade(given: Any) -> Grade | None:
    if isinstance(given, Mapping):
        given = next((given[key] for key in _VERDICT_KEYS if key in given), given)
    if isinstance(given, Verdict | ChunkVerdict):
        given = given.label
    if isinstance(given, str):
        given = _WORDS.get(given.strip().casefold(), given)
    if given is None or given is VerdictLabel.UNJUDGED:
        return None
    if isinstance(given, VerdictLabel):
        return given
    if isinstance(given, int):
        return int(given)
    raise InputError(f"the verdict {given!r} is not understood: give {_ACCEPTED}")


def _rating(given: Any) -> int | None:
    if given is None or (isinstance(given, float) and math.isnan(given)):
        return None
    if isinstance(given, int | float) and given in (0, 1, 2):
        return int(given)
    raise InputError(
        f"the rating {given!r} is not understood: give 0, 1 or 2, or None for a judge that failed"
    )


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else math.nan


ALIASES = {
    "answer_relevancy": "answer_relevance",
    "contextual_precision": "context_precision",
    "context_utilization": "context_precision",
    "contextual_recall": "context_recall",
    "contextual_relevancy": "context_relevance",
    "response_groundedness": "groundedness",
}
"""Other tools' names of metrics (RAGAS, DeepEval)."""
PROFILES = ("ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileScore:
    """The score of verdicts under a tool's rule."""

    status: CompatStatus
    """How the tool's own run ends: ``ok``, ``nan``, ``error`` or ``grader_error``."""
    raw: float | None = None
    """The number that the tool reports; it may be outside [0, 1]. A grader error reports 0."""

    @property
    def score(self) -> float | None:
        """The number, if it is a share."""
        is_share = self.status is CompatStatus.OK and self.raw is not None and 0 <= self.raw <= 1
        return self.raw if is_share else None

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
    name, rules = canonical(metric), _rules(profile)
    if name not in rules:
        there = ", ".join(sorted(rules))
        raise InputError(f"the profile {profile!r} has no rule for {metric!r}: choose from {there}")
    given = Given(
        metric=name,
        verdicts=verdicts,
        n_claims=n_claims,
        n_contexts=n_contexts,
        question=question,
        embeddings=embeddings or {},
        strict_mode=strict_mode,
        penalize=penalize_ambiguous_claims,
    )
    return rules[name](given)


def scored_metrics(profile: str) -> tuple[str, ...]:
    """Return the metrics with a rule in the profile, by ragtrace's names.

    Raises:
        InputError: there is no such profile.
    """
    return tuple(sorted(_rules(profile)))


def canonical(metric: str) -> str:
    """Return ragtrace's name of another tool's metric."""
    return ALIASES.get(metric, metric)


def _rules(profile: str) -> Mapping[str, Rule]:
    if profile not in RULES:
        raise InputError(f"there is no profile {profile!r}: choose from {', '.join(PROFILES)}")
    return RULES[profile]


Rule: TypeAlias = Callable[[Given], ProfileScore]
"""Returns what the tool reports."""


def _yes(grade: Grade) -> bool:
    if isinstance(grade, VerdictLabel):
        return grade in (VerdictLabel.SUPPORTED, VerdictLabel.RELEVANT)
    return grade != 0


def _maybe(grade: Grade) -> bool:
    return grade in (VerdictLabel.UNSUPPORTED, VerdictLabel.PARTLY_RELEVANT)


def _number(grade: Grade) -> int:
    return int(_yes(grade)) if isinstance(grade, VerdictLabel) else grade


def _ok(value: float) -> ProfileScore:
    return _NAN if math.isnan(value) else ProfileScore(status=CompatStatus.OK, raw=float(value))


_NAN = ProfileScore(status=CompatStatus.NAN)
_RAISES = ProfileScore(status=CompatStatus.ERROR)
_GRADER_ERROR = ProfileScore(status=CompatStatus.GRADER_ERROR, raw=0.0)


def _share(passing: Iterable[bool], total: int, *, empty: ProfileScore) -> ProfileScore:
    return _ok(sum(passing) / total) if total else empty


def _share_of_yes(empty: ProfileScore) -> Rule:
    return lambda given: _share(map(_yes, given.grades), len(given.grades), empty=empty)


def _ragas_questions(given: Given) -> ProfileScore:
    """If all questions are noncommittal, 0. The score leaves [0, 1] if the cosines do, as in RAGAS."""
    if not given.questions:
        return _ok(0.0)
    return _ok(_mean_cosine(given) * (not all(made.noncommittal for made in given.questions)))


def _ragas_legacy_questions(given: Given) -> ProfileScore:
    return _ragas_questions(given) if given.questions else _NAN


def _mean_cosine(given: Given) -> float:
    return sum(made.cosine for made in given.questions) / len(given.questions)


def _ragas_precision(given: Given) -> ProfileScore:
    """RAGAS calculates with the integers that its judge wrote."""
    if not given.grades:
        return _RAISES
    return _precision_with_epsilon([_number(grade) for grade in given.grades])


def _ragas_legacy_precision(given: Given) -> ProfileScore:
    return _precision_with_epsilon([int(_yes(grade)) for grade in given.grades])


def _precision_with_epsilon(numbers: Sequence[int]) -> ProfileScore:
    sums = accumulate(numbers)
    weighted = sum(so_far / rank * n for rank, (n, so_far) in enumerate(zip(numbers, sums, strict=True), 1))
    return _ok(weighted / (sum(numbers) + 1e-10))


def _ragas_recall(given: Given) -> ProfileScore:
    numbers = [_number(grade) for grade in given.grades]
    return _ok(sum(numbers) / len(numbers)) if numbers else _NAN


def _ragas_ratings(given: Given) -> ProfileScore:
    """The mean of two judges, or the one that did not fail."""
    came = [rating for rating in given.ratings if rating is not None]
    if given.no_context:
        return _RAISES
    return _ok(sum(came) / len(came) / 2) if came else _NAN


def _ragas_legacy_ratings(given: Given) -> ProfileScore:
    """Like ``max(a, b)``: NaN if the first judge failed, the first rating if the second did."""
    if given.no_context:
        return _ok(0.0)
    if given.ratings and given.ratings[0] is None:
        return _NAN
    return _ragas_ratings(given)


def _deepeval(given: Given, share: ProfileScore) -> ProfileScore:
    strict = given.strict_mode and share.raw is not None and share.raw < 1
    return _ok(0.0) if strict else share


def _deepeval_faithfulness(given: Given) -> ProfileScore:
    passing = [_yes(grade) or (_maybe(grade) and not given.penalize) for grade in given.grades]
    return _deepeval(given, _share(passing, len(passing), empty=_ok(1.0)))


def _deepeval_relevance(given: Given) -> ProfileScore:
    passing = [_yes(grade) or _maybe(grade) for grade in given.grades]
    return _deepeval(given, _share(passing, len(passing), empty=_ok(1.0)))


def _deepeval_4_hallucination(given: Given) -> ProfileScore:
    """From 4.2.0 on, 1 is good: the share of contexts that the answer agrees with."""
    return _deepeval(given, _share(map(_yes, given.grades), len(given.grades), empty=_ok(1.0)))


def _deepeval_3_hallucination(given: Given) -> ProfileScore:
    """Up to 4.1, 0 is good: the share of contexts that the answer contradicts."""
    contradicted = [not _yes(grade) for grade in given.grades]
    share = _share(contradicted, len(contradicted), empty=_ok(0.0))
    return _ok(1.0) if given.strict_mode and share.raw else share


def _deepeval_precision(given: Given) -> ProfileScore:
    precision = average_precision([_yes(grade) for grade in given.grades])
    return _deepeval(given, _ok(precision or 0.0))


def _deepeval_recall(given: Given) -> ProfileScore:
    return _deepeval(given, _share(map(_yes, given.grades), len(given.grades), empty=_ok(0.0)))


def _deepeval_context_relevance(given: Given) -> ProfileScore:
    """All statements have equal weight, so a verbose context weighs more."""
    statements = [_yes(grade) for verdicts in given.per_context for grade in verdicts]
    return _deepeval(given, _share(statements, len(statements), empty=_ok(0.0)))


def _promptfoo_faithfulness(given: Given) -> ProfileScore:
    """A missing verdict counts as a no. The only clamp keeps surplus noes from going below 0."""
    if not given.grades or not given.total:
        return _GRADER_ERROR
    noes = sum(not _yes(grade) for grade in given.grades)
    missing = max(0, given.total - len(given.grades))
    return _ok(min(1.0, max(0.0, 1 - (noes + missing) / given.total)))


def _promptfoo_questions(given: Given) -> ProfileScore:
    return _ok(_mean_cosine(given)) if given.questions else _GRADER_ERROR


def _promptfoo_context_relevance(given: Given) -> ProfileScore:
    """The unit is the context: it counts if anything in it is relevant."""
    relevant = [any(map(_yes, verdicts)) for verdicts in given.per_context]
    return _share(relevant, len(relevant), empty=_ok(0.0))


def _rag_evals_faithfulness(given: Given) -> ProfileScore:
    return _share(map(_yes, given.grades), given.total, empty=_ok(0.0))


def _rag_evals_precision(given: Given) -> ProfileScore:
    """A plain mean that ignores ranks; without chunks, it divides by zero."""
    return _share(map(_yes, given.grades), given.total, empty=_RAISES)


_RAGAS: Mapping[str, Rule] = {
    "faithfulness": _share_of_yes(_NAN),
    "answer_relevance": _ragas_questions,
    "context_precision": _ragas_precision,
    "context_recall": _ragas_recall,
    "context_relevance": _ragas_ratings,
    "groundedness": _ragas_ratings,
}
_DEEPEVAL: Mapping[str, Rule] = {
    "faithfulness": _deepeval_faithfulness,
    "hallucination": _deepeval_4_hallucination,
    "answer_relevance": _deepeval_relevance,
    "context_precision": _deepeval_precision,
    "context_recall": _deepeval_recall,
    "context_relevance": _deepeval_context_relevance,
}
RULES: Mapping[str, Mapping[str, Rule]] = {
    "ragas": _RAGAS,
    "ragas-legacy": {
        **_RAGAS,
        "answer_relevance": _ragas_legacy_questions,
        "context_precision": _ragas_legacy_precision,
        "context_recall": _share_of_yes(_NAN),
        "context_relevance": _ragas_legacy_ratings,
        "groundedness": _ragas_legacy_ratings,
    },
    "deepeval-4": _DEEPEVAL,
    "deepeval-3": {**_DEEPEVAL, "hallucination": _deepeval_3_hallucination},
    "promptfoo": {
        "faithfulness": _promptfoo_faithfulness,
        "answer_relevance": _promptfoo_questions,
        "context_recall": _share_of_yes(_GRADER_ERROR),
        "context_relevance": _promptfoo_context_relevance,
    },
    "rag_evals": {
        "faithfulness": _rag_evals_faithfulness,
        "answer_relevance": lambda given: _ok(given.number),
        "context_precision": _rag_evals_precision,
        "chunk_precision": _rag_evals_precision,
    },
}
