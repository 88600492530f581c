"""Other tools' rules of scoring, over the same verdicts.

Tools of the same field turn the same verdicts into different numbers: what the context does not mention is
unfaithful to RAGAS and promptfoo and faithful to DeepEval; an answer without claims is NaN, 1, 0 or an error.
Each rule gives what the tool itself reports when its judge says what these verdicts say.
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
    ``unsupported``, ``unjudged``, ``relevant``, ``borderline``, ``irrelevant``, or ``S``, ``C``, ``N``,
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
        penalize_ambiguous_claims: deepeval: what is unsupported does not pass.

    Raises:
        InputError: the tool has no such metric, or the verdicts are in no form that is understood.
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
    """Return the metrics that have a rule in the profile, by our names.

    Raises:
        InputError: there is no such profile.
    """
    return tuple(sorted(RULES[_profile(profile)]))


def canonical(metric: str) -> str:
    """Return our name of a metric that another tool calls by its own."""
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
