"""One objective under watch: each judged answer is one more look, and an alarm is raised once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Label
from ragtrace.sequential import ShareDetector, SinceChange
from ragtrace_collector.alerts.objectives import failing_share
from ragtrace_collector.config import SampleConfig, SloConfig
from ragtrace_collector.store.port import WatchedAnswer

_LOOKS: Final = 10_000
"""The number of answers that `slo[].alerts.false_alarm` is about."""
_RESOLVES_AT: Final = 2_000.0
"""Evidence for "better again": within n answers as bad as halfway, it comes by chance in n of 2,000 cases."""
_LEAST_RISE: Final = 0.02
_MOST_FAILING: Final = 20
_MOST_WORST: Final = 5


class NoticeStatus(StrEnum):
    """What a notice says."""

    FIRING = "firing"
    RESOLVED = "resolved"
    ENDED = "ended"
    """The objective was changed or removed: nobody watches whether it got better."""
    TEST = "test"


class FailingAnswer(NamedTuple):
    """An answer that was not good."""

    key: AnswerKey
    score: float | None
    id: int
    """Of the watched answer: later ones have larger numbers, whatever clocks do."""


class Alarm(NamedTuple):
    """A broken objective, from the answer that proved it."""

    id: str
    """The same for the notice that it is over."""
    fired_ns: int
    since_ns: int
    """When the first answer was judged from which on too many failed, about."""
    judged: int
    failing: int
    share: float
    """The failing share of the traffic: an estimate, and too high by selection."""
    worst: tuple[FailingAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SloState:
    """What is known of an objective. With an alarm, the detector looks for "better again"."""

    claim: str
    """A digest of what is tested: a state of another claim says nothing."""
    detector: ShareDetector
    alarm: Alarm | None = None
    since_ns: int = 0
    judged: int = 0
    """Answers that were counted since the start or the last change of the claim."""
    failing: int = 0
    last_ns: int = 0
    recent: tuple[FailingAnswer, ...] = field(default=())

    def text(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> SloState:
        """Read what `text` wrote."""
        told = json.loads(text)
        detector, alarm = told.pop("detector"), told.pop("alarm")
        recent = _answers(told.pop("recent"))
        if alarm is not None:
            alarm = Alarm(*alarm)._replace(worst=_answers(alarm[-1]))
        return cls(
            detector=ShareDetector(
                most=detector["most"],
                evidence=tuple(detector["evidence"]),
                since=SinceChange(*detector["since"]),
            ),
            alarm=alarm,
            recent=recent,
            **told,
        )


def _answers(rows: list[list[object]]) -> tuple[FailingAnswer, ...]:
    return tuple(FailingAnswer(AnswerKey(*key), *rest) for key, *rest in rows)  # type: ignore[misc, arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class SloWatch:
    """How one objective is tested."""

    slo: SloConfig
    most_weight: float
    """The largest number of answers that one represents, by the lowest rate of the configuration."""

    @classmethod
    def of(cls, slo: SloConfig, sample: SampleConfig) -> SloWatch:
        """Read the weights from the rates at which answers are sampled."""
        rates = [sample.ratio, *(rule.rate for rule in sample.rules if not rule.drop)]
        return cls(slo=slo, most_weight=1 / min((rate for rate in rates if rate), default=1.0))

    @property
    def claim(self) -> str:
        """A digest of what is tested."""
        slo = self.slo
        parts = [slo.metric, slo.at_least, slo.objective, slo.dimensions, self.most_weight]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def limit(self) -> float:
        """The evidence that an alarm takes."""
        return _LOOKS / self.slo.alerts.false_alarm

    def begin(self) -> SloState:
        """Return the state before the first answer."""
        return SloState(claim=self.claim, detector=ShareDetector(most=failing_share(self.slo)))

    def after(
        self, state: SloState, answer: WatchedAnswer
    ) -> tuple[SloState, tuple[NoticeStatus, Alarm] | None]:
        """Return the state after one more judged answer, and what people must be told."""
        summary = answer.summary
        metric = _metric_of(self.slo, summary)
        if metric is None or summary.probability is None:
            return state, None
        is_good = _is_good(self.slo, metric)
        weight = 1 / summary.probability / self.most_weight
        happened = is_good if state.alarm else not is_good
        detector = state.detector.after(happened, weight=weight, time=answer.id)
        begins = detector.since.values == 1
        state = replace(
            state,
            detector=detector,
            since_ns=summary.judged_ns if begins and not state.alarm else state.since_ns,
            judged=state.judged + 1,
            failing=state.failing + (not is_good),
            last_ns=summary.judged_ns,
        )
        if not is_good:
            found = FailingAnswer(summary.key, metric.score, answer.id)
            state = replace(state, recent=(*state.recent, found)[-_MOST_FAILING:])
        return self._decided(state, answer)

    def _decided(
        self, state: SloState, answer: WatchedAnswer
    ) -> tuple[SloState, tuple[NoticeStatus, Alarm] | None]:
        if state.alarm is None and state.detector.total >= self.limit:
            alarm = self._alarm(state, answer)
            return replace(state, alarm=alarm, detector=_recovery(alarm, failing_share(self.slo))), (
                NoticeStatus.FIRING,
                alarm,
            )
        if state.alarm is not None and state.detector.total >= _RESOLVES_AT:
            since = state.detector.since
            over = state.alarm._replace(
                judged=since.values, failing=since.values - since.happened, share=1 - (since.share or 0.0)
            )
            begun = self.begin()
            return replace(state, alarm=None, detector=begun.detector, recent=()), (
                NoticeStatus.RESOLVED,
                over,
            )
        return state, None

    def _alarm(self, state: SloState, answer: WatchedAnswer) -> Alarm:
        since = state.detector.since
        of_it = [failing for failing in state.recent if failing.id >= since.first]
        worst = sorted(of_it, key=lambda failing: (failing.score is None, failing.score or 0.0, -failing.id))
        named = f"{self.slo.name}/{self.claim}/{answer.id}"
        return Alarm(
            id=hashlib.sha256(named.encode()).hexdigest()[:24],
            fired_ns=answer.summary.judged_ns,
            since_ns=state.since_ns,
            judged=since.values,
            failing=since.happened,
            share=since.share or 0.0,
            worst=tuple(worst[:_MOST_WORST]),
        )


def _recovery(alarm: Alarm, allowed: float) -> ShareDetector:
    """Look for evidence that less fails than halfway between what may fail and what failed."""
    halfway = max(allowed + _LEAST_RISE, (allowed + alarm.share) / 2)
    return ShareDetector(most=1 - min(halfway, 0.99))


def _metric_of(slo: SloConfig, summary: AnswerSummary) -> MetricSummary | None:
    """Return the metric's result, if the answer is of the objective's traffic and was judged."""
    about = {
        "service": summary.service,
        "model": summary.model,
        "prompt_version": summary.prompt_version,
        "tenant": summary.key.tenant,
    }
    if any(about[key] != value for key, value in slo.dimensions.items()):
        return None
    metric = summary.metric(slo.metric)
    if metric is None or metric.label not in (Label.PASS, Label.FAIL):
        return None
    return None if slo.at_least is not None and metric.score is None else metric


def _is_good(slo: SloConfig, metric: MetricSummary) -> bool:
    if slo.at_least is None or metric.score is None:
        return metric.label is Label.PASS
    return metric.score >= slo.at_least
