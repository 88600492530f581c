"""The outcomes of an evaluation as the carrier's attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from typing import Final, Literal

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    Blame,
    Diagnosis,
    Evaluation,
    JudgeIdentity,
    Label,
    MetricOutcome,
    MetricResult,
)

Status = Literal["ok", "partial", "error", "skipped"]

_OWN_PROFILE: Final = "ragtrace"
_COMPOSITE: Final = "rag_score"
_WORST_FIRST: Final = (Label.FAIL, Label.ERROR, Label.SKIPPED, Label.PASS)


def keyed(evaluation: Evaluation) -> Iterator[tuple[str, MetricOutcome]]:
    """Yield each outcome with its name in attribute keys.

    The name is the metric's. If it ran more than once, the profile follows, then a number.
    """
    taken: set[str] = set()
    for outcome in evaluation.outcomes:
        names = chain(
            (outcome.metric, f"{outcome.metric}.{outcome.profile}"),
            (f"{outcome.metric}.{outcome.profile}.{number}" for number in count(2)),
        )
        key = next(name for name in names if name not in taken)
        taken.add(key)
        yield key, outcome


def worst_first(outcomes: Iterable[tuple[str, MetricOutcome]]) -> list[tuple[str, MetricOutcome]]:
    """Sort outcomes for display: failed ones first."""
    return sorted(outcomes, key=lambda keyed: _WORST_FIRST.index(keyed[1].label))


def overall_label(evaluation: Evaluation) -> Label:
    """Return the label of the answer: one failing metric fails it; an error counts only if nothing passed."""
    labels = {outcome.label for outcome in evaluation.outcomes}
    return next((label for label in (Label.FAIL, Label.PASS, Label.ERROR) if label in labels), Label.SKIPPED)


def status_of(evaluation: Evaluation) -> Status:
    """Return the evaluation's status: ``ragtrace.eval.status``."""
    if evaluation.failures:
        return "error" if len(evaluation.failures) == len(evaluation.outcomes) else "partial"
    return "ok" if any(result.score is not None for result in evaluation.results) else "skipped"


def outcome_attributes(evaluation: Evaluation) -> dict[str, AttributeValue]:
    """Return flat scalars for search in back ends. A failure has no score."""
    status = status_of(evaluation)
    attributes: dict[str, AttributeValue] = {semconv.EVAL_STATUS: status}
    skipped = next((result.skip_reason for result in evaluation.results if result.skip_reason), None)
    if status == "skipped" and skipped:
        attributes[semconv.EVAL_SKIP_REASON] = skipped.value
    if evaluation.compromised:
        attributes[semconv.EVAL_COMPROMISED] = True
    if evaluation.suspicion is not None:
        attributes[semconv.SUSPICION] = evaluation.suspicion
    overall = overall_label(evaluation)
    if overall in (Label.PASS, Label.FAIL):
        attributes[semconv.PASS] = overall is Label.PASS
    for key, outcome in keyed(evaluation):
        attributes |= _of_metric(key, outcome)
    return {**attributes, **_of_composite(evaluation)}


def _of_metric(key: str, outcome: MetricOutcome) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {f"{semconv.LABEL_PREFIX}{key}": outcome.label.value}
    if isinstance(outcome, MetricResult):
        if outcome.threshold is not None:
            attributes[f"{semconv.THRESHOLD_PREFIX}{key}"] = float(outcome.threshold)
        if outcome.pass_when is not None:
            attributes[f"{semconv.PASS_WHEN_PREFIX}{key}"] = outcome.pass_when
        if outcome.score is not None:
            attributes[f"{semconv.SCORE_PREFIX}{key}"] = float(outcome.score)
    if compat := outcome.compat:
        attributes[f"{semconv.COMPAT_STATUS_PREFIX}{key}"] = compat.status.value
        if compat.score is not None and math.isfinite(compat.score):
            attributes[f"{semconv.COMPAT_SCORE_PREFIX}{key}"] = float(compat.score)
    return attributes


def _of_composite(evaluation: Evaluation) -> dict[str, AttributeValue]:
    diagnoses = (result.diagnosis for result in evaluation.results if result.diagnosis)
    composites = (result.score for result in evaluation.results if result.metric == _COMPOSITE)
    found = {semconv.DIAGNOSIS: next(diagnoses, None), semconv.COMPOSITE: next(composites, None)}
    return _of_blame(evaluation.blame) | {
        key: value.value if isinstance(value, Diagnosis) else value for key, value in found.items()
    }


def _of_blame(blame: Blame) -> dict[str, AttributeValue]:
    told: dict[str, AttributeValue] = {}
    if blame.primary is not None:
        told[semconv.BLAME_CLASS] = blame.primary.value
        told[semconv.BLAME_CLASSES] = tuple(found.value for found in blame.classes)
    if blame.missing:
        told[semconv.BLAME_MISSING] = blame.missing
    return told


def evaluation_objects(
    evaluation: Evaluation, explain: Callable[[MetricOutcome], str]
) -> Iterator[dict[str, AttributeValue]]:
    """Yield OpenInference's ``evaluations.<i>.evaluation.*``, one object per metric, flat and zero-based."""
    for index, (key, outcome) in enumerate(keyed(evaluation)):
        prefix = f"{semconv.OI_EVALUATIONS}.{index}.evaluation."
        score = outcome.score if isinstance(outcome, MetricResult) else None
        metadata = {"profile": outcome.profile, "evaluator_version": outcome.evaluator_version}
        yield {
            f"{prefix}name": key,
            **({f"{prefix}score": float(score)} if score is not None else {}),
            f"{prefix}label": outcome.label.value,
            f"{prefix}explanation": explain(outcome),
            f"{prefix}annotator_kind": _annotator_kind(judge_of(outcome, evaluation)),
            f"{prefix}identifier": f"{_OWN_PROFILE}/{key}",
            f"{prefix}metadata": json.dumps(metadata, sort_keys=True),
        }


def judge_of(outcome: MetricOutcome, evaluation: Evaluation) -> JudgeIdentity:
    """Return the judge of an outcome: the evaluation's, or the second one after a failed canary claim."""
    substitute = outcome.judge if isinstance(outcome, MetricResult) else None
    return substitute or evaluation.judge


def _annotator_kind(judge: JudgeIdentity) -> Literal["LLM", "CODE", "HUMAN"]:
    """Return OpenInference's annotator kind: whether a language model, code or people judged."""
    if judge.is_human:
        return "HUMAN"
    return "CODE" if judge.computes else "LLM"
