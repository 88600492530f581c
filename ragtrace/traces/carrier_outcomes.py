"""The outcomes of an evaluation as the carrier's attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from typing import Final, Literal

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    Evaluation,
    JudgeIdentity,
    Label,
    MetricOutcome,
    MetricResult,
)
from ragtrace.traces.carrier_table import METRIC, OUTCOMES

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
    status, overall, results = status_of(evaluation), overall_label(evaluation), evaluation.results
    of_metrics: dict[str, AttributeValue] = {}
    for key, outcome in keyed(evaluation):
        of_metrics |= METRIC.write(outcome, {}, metric=key)
    skipped = next((result.skip_reason for result in results if result.skip_reason), None)
    given: dict[str, AttributeValue] = {
        semconv.EVAL_STATUS: status,
        semconv.EVAL_SKIP_REASON: skipped if status == "skipped" else None,
        semconv.PASS: overall is Label.PASS if overall in (Label.PASS, Label.FAIL) else None,
        "<metrics>": of_metrics,
        semconv.BLAME_CLASSES: tuple(found.value for found in evaluation.blame.classes),
        semconv.DIAGNOSIS: next((result.diagnosis for result in results if result.diagnosis), None),
        semconv.COMPOSITE: next((result.score for result in results if result.metric == _COMPOSITE), None),
    }
    return OUTCOMES.write(evaluation, given)


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
