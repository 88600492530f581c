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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragtrace.errors import InputError
from ragtrace.model import Compat, CompatStatus
from ragtrace.scoring._grades import Judged
from ragtrace.scoring._inputs import ScoringInput
from ragtrace.scoring.rules import RULES, Read, Rule

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
    read, rule = _rule(metric, profile)
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


def _rule(metric: str, profile: str) -> tuple[Read, Rule]:
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
