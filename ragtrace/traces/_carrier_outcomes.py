"""The outcomes of an evaluation as the carrier's attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, count
from typing import Final, Literal

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    Evaluation,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    VerdictLabel,
)

__all__ = [
    "annotator_kind",
    "brief",
    "evaluation_objects",
    "explain",
    "keyed",
    "outcome_attributes",
    "overall_label",
    "status_of",
]

Status = Literal["ok", "partial", "error", "skipped"]

_BRIEF_CHARS: Final = 200
_BRIEF_CHUNK_IDS: Final = 3
_OWN_PROFILE: Final = "ragtrace"
_WORDS: Final = {VerdictLabel.UNSUPPORTED: "not mentioned"}


def keyed(evaluation: Evaluation) -> Iterator[tuple[str, MetricOutcome]]:
    """Yield each outcome with its name in attribute keys.

    The name is the metric's; where it ran more than once, the profile stands behind it, then a number.
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


def overall_label(evaluation: Evaluation) -> Label:
    """Say how the answer did: one failing metric fails it; a judge's error counts only if nothing passed."""
    labels = {outcome.label for outcome in evaluation.outcomes}
    return next((label for label in (Label.FAIL, Label.PASS, Label.ERROR) if label in labels), Label.SKIPPED)


def status_of(evaluation: Evaluation) -> Status:
    """Say how the evaluation went: ``ragtrace.eval.status``."""
    if evaluation.failures:
        return "error" if len(evaluation.failures) == len(evaluation.outcomes) else "partial"
    return "ok" if any(result.score is not None for result in evaluation.results) else "skipped"


def outcome_attributes(evaluation: Evaluation) -> dict[str, AttributeValue]:
    """Return the flat scalars that back ends search by. A failure has no score."""
    status = status_of(evaluation)
    attributes: dict[str, AttributeValue] = {semconv.EVAL_STATUS: status}
    skipped = next((result.skip_reason for result in evaluation.results if result.skip_reason), None)
    if status == "skipped" and skipped:
        attributes[semconv.EVAL_SKIP_REASON] = skipped.value
    for key, outcome in keyed(evaluation):
        attributes[f"{semconv.LABEL_PREFIX}{key}"] = outcome.label.value
        if isinstance(outcome, MetricResult):
            attributes[f"{semconv.THRESHOLD_PREFIX}{key}"] = float(outcome.threshold)
            if outcome.score is not None:
                attributes[f"{semconv.SCORE_PREFIX}{key}"] = float(outcome.score)
    overall = overall_label(evaluation)
    if overall in (Label.PASS, Label.FAIL):
        attributes[semconv.PASS] = overall is Label.PASS
    return attributes


def evaluation_objects(evaluation: Evaluation, *, content: bool) -> Iterator[dict[str, AttributeValue]]:
    """Yield OpenInference's ``evaluations.<i>.evaluation.*``, one object a metric, flat and zero-based."""
    for index, (key, outcome) in enumerate(keyed(evaluation)):
        prefix = f"{semconv.OI_EVALUATIONS}.{index}.evaluation."
        score = outcome.score if isinstance(outcome, MetricResult) else None
        metadata = {"profile": outcome.profile, "evaluator_version": outcome.evaluator_version}
        yield {
            f"{prefix}name": key,
            **({f"{prefix}score": float(score)} if score is not None else {}),
            f"{prefix}label": outcome.label.value,
            f"{prefix}explanation": explain(outcome, content=content),
            f"{prefix}annotator_kind": annotator_kind(evaluation),
            f"{prefix}identifier": f"{_OWN_PROFILE}/{key}",
            f"{prefix}metadata": json.dumps(metadata, sort_keys=True),
        }


def annotator_kind(evaluation: Evaluation) -> Literal["LLM", "CODE"]:
    """Say honestly whether a language model judged, in OpenInference's words."""
    return "CODE" if evaluation.judge.computes else "LLM"


def explain(outcome: MetricOutcome, *, content: bool) -> str:
    """Explain an outcome in one sentence; without content, by its counts alone."""
    if isinstance(outcome, MetricFailure):
        return outcome.message or outcome.error_type
    return (outcome.explanation if content else "") or _summary(outcome)


def brief(evaluation: Evaluation) -> str:
    """Return one line for people: ``faithfulness 0.50 fail: 1 of 2 claims contradicted (faq-12)``."""
    line = "; ".join(_line(key, outcome) for key, outcome in keyed(evaluation)) or "nothing was measured"
    return line if len(line) <= _BRIEF_CHARS else line[: _BRIEF_CHARS - 1] + "…"


def _line(key: str, outcome: MetricOutcome) -> str:
    if isinstance(outcome, MetricFailure):
        return f"{key} error: {outcome.error_type}"
    if outcome.score is None:
        return f"{key} skipped: {_summary(outcome)}"
    chunk_ids = _chunk_ids(outcome)
    where = f" ({', '.join(chunk_ids)})" if chunk_ids else ""
    return f"{key} {outcome.score:.2f} {outcome.label.value}: {_summary(outcome)}{where}"


def _summary(result: MetricResult) -> str:
    if result.skip_reason:
        return result.skip_reason.value
    counts = result.counts
    if not counts.total:
        return f"score {result.score:.2f}, threshold {result.threshold:.2f}"
    if counts.supported == counts.total:
        return f"all {counts.total} claims supported" if counts.total > 1 else "its one claim is supported"
    numbers = {label: getattr(counts, label.value) for label in _WORST_FIRST}
    (first, number), *rest = [(label, number) for label, number in numbers.items() if number]
    more = "".join(f", {number} {_WORDS.get(label, label.value)}" for label, number in rest)
    return f"{number} of {_claims(counts.total)} {_WORDS.get(first, first.value)}{more}"


_WORST_FIRST = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.RELEVANT,
)


def _claims(number: int) -> str:
    return "1 claim" if number == 1 else f"{number} claims"


def _chunk_ids(result: MetricResult) -> list[str]:
    """Return the first chunks that contradict a claim."""
    contradicted = [each for each in result.verdicts if each.label is VerdictLabel.CONTRADICTED]
    ids = dict.fromkeys(chunk_id for verdict in contradicted for chunk_id in verdict.chunk_ids)
    return list(ids)[:_BRIEF_CHUNK_IDS]
