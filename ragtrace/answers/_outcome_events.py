"""The outcomes on a carrier: its events and flat attributes back to results and failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ragtrace import semconv
from ragtrace.answers._step_events import read_intermediate, read_steps
from ragtrace.answers._values import Attributes, integer_of, number_of, text_of
from ragtrace.answers._verdict_events import EventVerdicts
from ragtrace.answers.summary import first_faithfulness
from ragtrace.model import (
    Compat,
    CompatStatus,
    Diagnosis,
    Direction,
    JudgeIdentity,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    SkipReason,
    Usage,
)
from ragtrace.traces.trace import Span

ValueT = TypeVar("ValueT", Label, SkipReason, Direction, Diagnosis, CompatStatus)

_OWN_PROFILE: Final = "ragtrace"
_COMPOSITE: Final = "rag_score"
_UNREADABLE: Final = "unreadable_carrier"
_UNKNOWN_ERROR: Final = "unknown"
_NO_ATTRIBUTES: Final[Attributes] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a carrier says about one metric: its event, and the attributes of the span."""

    key: str
    """Its name in attribute keys."""
    event: Attributes
    span: Attributes

    @property
    def label(self) -> Label | None:
        """The label; an event with an error type has none."""
        if text_of(self.event, semconv.ERROR_TYPE):
            return Label.ERROR
        return _known(Label, text_of(self.event, semconv.EVALUATION_LABEL)) or _known(
            Label, text_of(self.span, f"{semconv.LABEL_PREFIX}{self.key}")
        )

    @property
    def names(self) -> tuple[str, str]:
        """Metric and profile."""
        profile, found, metric = (text_of(self.event, semconv.EVALUATOR_ID) or "").partition("/")
        return (metric, profile) if found else (self.key, _OWN_PROFILE)

    @property
    def explanation(self) -> str:
        """The sentence about it, with the judge's reason."""
        return text_of(self.event, semconv.EVALUATION_EXPLANATION) or ""

    @property
    def version(self) -> str:
        """The evaluator version."""
        return text_of(self.event, semconv.EVALUATOR_VERSION) or ""

    @property
    def usage(self) -> Usage:
        """The judge's tokens; calls are on the carrier for all metrics together only."""
        return Usage(
            input_tokens=max(0, integer_of(self.event, semconv.JUDGE_INPUT_TOKENS) or 0),
            output_tokens=max(0, integer_of(self.event, semconv.JUDGE_OUTPUT_TOKENS) or 0),
        )

    @property
    def compat(self) -> Compat | None:
        """The other tool's own result."""
        status = _known(CompatStatus, text_of(self.span, f"{semconv.COMPAT_STATUS_PREFIX}{self.key}"))
        score = number_of(self.span, f"{semconv.COMPAT_SCORE_PREFIX}{self.key}")
        return Compat(status=status, score=score) if status else None

    def number(self, key: str, prefix: str) -> float | None:
        """Return a number of the event, or else of the span."""
        told = number_of(self.event, key)
        return number_of(self.span, f"{prefix}{self.key}") if told is None else told

    def text(self, key: str, prefix: str) -> str | None:
        """Return a text of the event, or else of the span."""
        return text_of(self.event, key) or text_of(self.span, f"{prefix}{self.key}")


def read_judge(carrier: Span) -> JudgeIdentity:
    """Return the judge of the whole evaluation."""
    judges = [judge for event in _results(carrier).values() if (judge := _judge_in(event))]
    provider = text_of(carrier.attributes, semconv.JUDGE_PROVIDER)
    model = text_of(carrier.attributes, semconv.JUDGE_MODEL)
    if provider is None and model is None and judges:
        return judges[0]
    screen = text_of(carrier.attributes, semconv.JUDGE_SCREEN)
    whole = JudgeIdentity(provider=provider or "", model=model or "", screen=screen or "")
    return next((judge for judge in judges if judge.named == whole.named), whole)


def read_outcomes(
    carrier: Span, verdicts: EventVerdicts, judge: JudgeIdentity
) -> tuple[Mapping[str, MetricOutcome], tuple[str, ...]]:
    """Return the outcomes by name, faithfulness first, and sentences on what is unreadable."""
    events, span, notices = _results(carrier), carrier.attributes, []
    outcomes: dict[str, MetricOutcome] = {}
    for key in _names(span, events):
        told = _Told(key=key, event=events.get(key, _NO_ATTRIBUTES), span=span)
        outcomes[key] = outcome = _outcome(told, verdicts, judge)
        if isinstance(outcome, MetricFailure) and outcome.error_type == _UNREADABLE:
            notices.append(f"{key}: {outcome.message}")
        elif isinstance(outcome, MetricResult) and outcome.score is None and outcome.skip_reason is None:
            notices.append(f"{key} was skipped, and the carrier does not say why")
    return _with_diagnosis(outcomes, span), tuple(notices)


def _results(carrier: Span) -> Mapping[str, Attributes]:
    named = (event for event in carrier.events if event.name == semconv.EVALUATION_RESULT)
    return {
        name: event.attributes
        for event in named
        if (name := text_of(event.attributes, semconv.EVALUATION_NAME))
    }


def _names(span: Attributes, events: Mapping[str, Attributes]) -> list[str]:
    """Return the metrics in one order everywhere: events begin with failed ones, and back ends sort keys."""
    prefix = semconv.LABEL_PREFIX
    labeled = (key.removeprefix(prefix) for key in span if key.startswith(prefix))
    return sorted({*labeled, *events}, key=first_faithfulness)


def _outcome(told: _Told, verdicts: EventVerdicts, judge: JudgeIdentity) -> MetricOutcome:
    match told.label:
        case Label.ERROR:
            return _failure(told)
        case Label.SKIPPED:
            return replace(_result(told, None, verdicts, judge), skip_reason=_skip_reason(told))
        case label:
            score = told.number(semconv.EVALUATION_SCORE, semconv.SCORE_PREFIX)
            if score is None or not 0 <= score <= 1:
                return _unreadable(told, "its carrier has no readable score")
            return _labeled(_result(told, score, verdicts, judge), label, told)


def _labeled(result: MetricResult, label: Label | None, told: _Told) -> MetricOutcome:
    """Let the label be the one that was written, whatever rule gave it."""
    if label is None and result.threshold is None:
        return _unreadable(told, "its carrier says neither whether it passed nor where it passes")
    is_by_rule = result.threshold is None or (label is not None and result.label is not label)
    return replace(result, passed=label is Label.PASS) if is_by_rule else result


def _result(told: _Told, score: float | None, verdicts: EventVerdicts, judge: JudgeIdentity) -> MetricResult:
    (metric, profile), prefix = told.names, semconv.DETAIL_PREFIX
    details = {
        key.removeprefix(prefix): number_of(told.event, key) for key in told.event if key.startswith(prefix)
    }
    own = _judge_in(told.event)
    return MetricResult(
        metric=metric,
        profile=profile,
        score=score,
        threshold=told.number(semconv.THRESHOLD, semconv.THRESHOLD_PREFIX),
        direction=_known(Direction, text_of(told.event, semconv.DIRECTION)) or Direction.HIGHER_IS_BETTER,
        evaluator_version=told.version,
        explanation=told.explanation,
        verdicts=verdicts.claims_of(told.key),
        chunk_verdicts=verdicts.chunks_of(told.key),
        details={name: value for name, value in details.items() if value is not None},
        prompt_sha256=text_of(told.event, semconv.PROMPT_SHA256),
        usage=told.usage,
        intermediate=read_intermediate(told.event),
        duration_ms=max(0, integer_of(told.event, semconv.EVAL_DURATION_MS) or 0),
        steps=read_steps(told.event),
        compat=told.compat,
        pass_when=told.text(semconv.PASS_WHEN, semconv.PASS_WHEN_PREFIX),
        judge=None if own is None or own.named == judge.named else own,
    )


def _failure(told: _Told) -> MetricFailure:
    metric, profile = told.names
    error_type = text_of(told.event, semconv.ERROR_TYPE) or _in_brief(told, Label.ERROR) or _UNKNOWN_ERROR
    return MetricFailure(
        metric=metric,
        profile=profile,
        error_type=error_type,
        message=told.explanation or error_type,
        evaluator_version=told.version,
        usage=told.usage,
        compat=told.compat,
        duration_ms=max(0, integer_of(told.event, semconv.EVAL_DURATION_MS) or 0),
        steps=read_steps(told.event),
    )


def _unreadable(told: _Told, message: str) -> MetricFailure:
    return replace(_failure(told), error_type=_UNREADABLE, message=message)


def _skip_reason(told: _Told) -> SkipReason | None:
    said = (
        text_of(told.event, semconv.EVAL_SKIP_REASON),
        told.explanation,
        text_of(told.span, semconv.EVAL_SKIP_REASON),
    )
    return next((reason for word in said if (reason := _known(SkipReason, word))), None)


def _in_brief(told: _Told, label: Label) -> str | None:
    brief = text_of(told.span, semconv.BRIEF) or ""
    found = re.search(rf"(?:^|; ){re.escape(told.key)} {label.value}: (\w+)(?:;|$)", brief)
    return found[1] if found else None


def _judge_in(event: Attributes) -> JudgeIdentity | None:
    provider, model = text_of(event, semconv.JUDGE_PROVIDER), text_of(event, semconv.JUDGE_MODEL)
    if provider is None or model is None:
        return None
    kind = text_of(event, semconv.EVALUATOR_TYPE)
    return JudgeIdentity(
        provider=provider,
        model=model,
        computes=kind in ("deterministic", "human"),
        is_human=kind == "human",
        screen=text_of(event, semconv.JUDGE_SCREEN) or "",
    )


def _with_diagnosis(outcomes: dict[str, MetricOutcome], span: Attributes) -> Mapping[str, MetricOutcome]:
    """Put the answer's diagnosis on the composite metric, or else on a result that has no verdicts."""
    diagnosis = _known(Diagnosis, text_of(span, semconv.DIAGNOSIS))
    results = {key: result for key, result in outcomes.items() if isinstance(result, MetricResult)}
    scored = {key: result for key, result in results.items() if result.score is not None}
    bare = (key for key, result in scored.items() if not (result.verdicts or result.chunk_verdicts))
    own = (key for key, result in scored.items() if result.metric == _COMPOSITE)
    key = next(own, None) or next(bare, None) or next(iter(scored), None)
    if diagnosis is None or key is None:
        return outcomes
    return outcomes | {key: replace(results[key], diagnosis=diagnosis)}


def _known(values: type[ValueT], word: str | None) -> ValueT | None:
    try:
        return values(word) if word else None
    except ValueError:
        return None
