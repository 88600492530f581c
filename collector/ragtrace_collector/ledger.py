"""Ledger: what happened to every answer: states and reasons, their sums, and which share got a score."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ragtrace.model import Evaluation, Label
from ragtrace.ports import Clock, Metric
from ragtrace.traces.extract import Unread


class State(StrEnum):
    """The state of one answer: pending, or exactly one of the final states."""

    QUEUED = "queued"
    LEASED = "leased"
    POSTPONED = "postponed"

    JUDGED = "judged"
    SAMPLED_OUT = "sampled_out"
    FILTERED = "filtered"
    INELIGIBLE = "ineligible"
    OVER_BUDGET = "over_budget"
    SHED = "shed"
    FAILED = "failed"
    EXPIRED = "expired"

    SUPERSEDED = "superseded"
    """Late spans moved the answer to another span, which is counted instead."""

    def because(self, reason: str) -> str:
        """Return an outcome: the state and the reason. A reason is a class of causes, never a message."""
        return f"{self}:{reason}"


PARTLY: Final = State.JUDGED.because("partly")
"""The reason is a flag: at least one metric has a score, and at least one failed."""
POISON: Final = State.FAILED.because("poison")
MOST_CRASHES: Final = 3
"""An answer or a trace that so many processes crashed at is set aside."""
PENDING: Final = (State.QUEUED, State.LEASED, State.POSTPONED)
TERMINAL: Final = (
    State.JUDGED,
    State.SAMPLED_OUT,
    State.FILTERED,
    State.INELIGIBLE,
    State.OVER_BUDGET,
    State.SHED,
    State.FAILED,
    State.EXPIRED,
)


class FinalOutcome(NamedTuple):
    """How an answer ended, parsed from an outcome such as ``failed:judge_timeout``."""

    state: State
    reason: str = ""

    @classmethod
    def of(cls, outcome: str) -> FinalOutcome:
        """Parse an outcome.

        Raises:
            ValueError: it names no final state.
        """
        state, _, reason = outcome.partition(":")
        if state not in (*TERMINAL, State.SUPERSEDED):
            raise ValueError(f"{state!r} is not a final state (see `ragtrace_collector.ledger`)")
        return cls(State(state), reason)

    def __str__(self) -> str:
        return self.state.because(self.reason) if self.reason else str(self.state)


class OutcomeDescription(NamedTuple):
    """What a state or reason means, and what to do about it."""

    meaning: str
    advice: str = "nothing"


def meaning_of(state: str, reason: str = "") -> OutcomeDescription:
    """Return the description of a reason, or else of its state."""
    return OutcomeDescription(*(_MEANINGS.get(f"{state}:{reason}") or _MEANINGS[state]))


def vocabulary() -> Mapping[str, OutcomeDescription]:
    """Return every state, and every described reason as ``state:reason``, in order."""
    return {outcome: OutcomeDescription(*told) for outcome, told in _MEANINGS.items()}


_CAPTURE: Final = "docs/instrument.md says what to switch on; `ragtrace explain` shows what was read"
_JUDGE: Final = "run `ragtrace doctor --config FILE`; then judge the gap again with `ragtrace backfill`"

_MEANINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "queued": ("it waits for a free worker", "if the number grows: raise `judge.max_concurrency`"),
    "leased": ("it is being judged now",),
    "postponed": ("an attempt failed; it is retried when due", "look at the reason"),
    "postponed:judge_unavailable": (
        "the judge could not be reached, or was overloaded",
        "look at the judge's own health and limits",
    ),
    "postponed:judge_timeout": ("the judge did not answer in time", "raise `judge.timeout`"),
    "postponed:judge_refused": (
        "key, quota, model or permission: you must fix it",
        "run `ragtrace doctor --config FILE`",
    ),
    "postponed:evaluation_timeout": (
        "an attempt took longer than ten times `judge.timeout`",
        "raise it, or choose a faster judge",
    ),
    "postponed:over_budget": (
        "the budget is spent until its next window",
        "raise the budget, or lower `sample.ratio`",
    ),
    "judged": ("its scores are in the trace, or on their way",),
    "judged:partly": (
        "a metric failed on it for good; the others have their scores",
        f"`ragtrace why` names the metric, and the log has the reason; {_JUDGE}",
    ),
    "sampled_out": ("no rule chose it", "if too few are judged: raise `sample.ratio`, or add a rule"),
    "filtered": ("a `drop` rule of `sample.rules` excludes it",),
    "filtered:evaluation": ("it belongs to an evaluator: evaluations are never evaluated",),
    "ineligible": ("there was nothing to judge",),
    "ineligible:no_content": ("the instrumentation did not record the text", _CAPTURE),
    "ineligible:no_retrieval": (
        "no retrieval was recorded for it, and its prompt has no marked passages",
        (
            "if it is a RAG call: record its chunks with `@ragtrace.retrieval`; or if the prompt holds them:"
            " set `extract.context: prompt`"
        ),
    ),
    "ineligible:empty_retrieval": (
        "the retrieval found nothing",
        "if there are many: check the retriever, because the application answers without a source",
    ),
    "ineligible:redacted": ("the text was replaced by a redaction mark", "see docs/privacy.md"),
    "ineligible:truncated": (
        "the text was truncated on its way",
        "raise the SDK's OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    ),
    "ineligible:incomplete": (
        "its reader left, an error ended it, or attributes or spans were dropped",
        "`ragtrace explain` and the page say which; of dropped ones, check limits and samplers on the way",
    ),
    "ineligible:failed_call": ("the RAG call ended in an error and has no answer",),
    "ineligible:refusal": ("the answer declines to answer",),
    "ineligible:no_claims": ("the answer makes no claim that can be checked",),
    "ineligible:all_unjudged": ("the judge decided nothing", "a judge that is a model decides more"),
    "ineligible:undecided": (
        "too few claims were decided to tell pass from fail",
        "a judge that is a model decides more; `evaluate.metrics[].pass_when` says how many it takes",
    ),
    "ineligible:no_reference": ("the metric needs a reference answer", "give one, or drop the metric"),
    "ineligible:missing_part": ("a metric that this one combines has no score",),
    "ineligible:out_of_range": ("the tool whose rule is configured gives a number outside [0, 1]",),
    "ineligible:peer_nan": ("the tool whose rule is configured gives no number here",),
    "over_budget": (
        "the budget was spent",
        "raise the budget or lower `sample.ratio`; `ragtrace backfill` judges it later",
    ),
    "shed": (
        "there were more answers than could be judged",
        "raise `judge.max_concurrency` or lower the rate",
    ),
    "shed:rate_limit": (
        "there were more than `sample.limit` in a minute before the rates were lowered",
        "if there are many: raise the limit, or lower `sample.ratio`",
    ),
    "failed": ("every attempt failed; it has no score", "the log has the reason"),
    "failed:judge_unavailable": ("the judge stayed unavailable for all `evaluate.retry_delays`", _JUDGE),
    "failed:judge_timeout": ("the judge never answered in time", f"raise `judge.timeout`; {_JUDGE}"),
    "failed:judge_refused": ("key, quota, model or permission", _JUDGE),
    "failed:judge_unable": (
        "the judge lacks what the request needs, such as log-probabilities",
        "set `judge.verify: json`",
    ),
    "failed:judge_compromised": (
        "the judge got a canary claim wrong, or left it out: none of its verdicts on this record count",
        "set `judge.second`",
    ),
    "failed:judge_declined": (
        "the model, or its provider's content filter, refused to judge this answer",
        "set `judge.second`, or choose another model",
    ),
    "failed:context_cut": (
        "the judge's server cut the prompt: the judge saw less than was sent",
        "serve the model with a larger context (Ollama: `num_ctx`)",
    ),
    "failed:judge_nonsense": (
        "the judge answered, but not in the form asked for",
        "choose another model; `ragtrace calibrate` tells",
    ),
    "failed:judge_cut_off": (
        "the judge's reply ended at its token limit",
        "raise the limit of the model or gateway",
    ),
    "failed:judge_oversized": (
        "the judge's reply is longer than the limit (4 MiB, decompressed)",
        "check which server is at the judge's address",
    ),
    "failed:judge_error": ("the judge failed with another error", _JUDGE),
    "failed:evaluation_timeout": (
        "each attempt took longer than ten times `judge.timeout`",
        "raise it, or choose a faster judge",
    ),
    "failed:poison": (
        (
            "the process crashed each time it judged this answer or read its trace, or reading took more CPU"
            " time than `assemble.max_cpu`: it was set aside so that the others go on"
        ),
        "check the memory limit, and your own metrics, judges and patterns",
    ),
    "expired": ("its time ran out before it was judged", "check the age of the oldest pending answer"),
    "expired:deadline": (
        "it was not judged within `evaluate.deadline`",
        "raise `judge.max_concurrency`, or lower the rate",
    ),
    "expired:retention": (
        "it was deleted before it was judged",
        "raise `assemble.linger` or `store.max_bytes`",
    ),
    "superseded": ("late spans moved the answer to another span, which is counted instead",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How many answers are in one state, for one reason."""

    state: State
    reason: str = ""
    rule: str = ""
    """The sampling rule that chose or skipped the answer."""
    tenant: str = ""
    service: str = ""
    """Known only while the answers' rows are in the store; the totals lack it."""
    number: int

    @property
    def outcome(self) -> str:
        """``judged``, ``failed:judge_timeout``."""
        return str(FinalOutcome(self.state, self.reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadTraces(Unread):
    """Traces of one producer that hold text and in which nothing was read. They have no answers."""

    number: int
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One reading of the account. All numbers are of one moment, and outlive the rows that they count."""

    seen: int
    """Answers seen, without those superseded."""
    accounts: Sequence[Account]
    """Without those superseded. An account stays when it is empty."""
    superseded: int = 0
    oldest_pending_ns: int | None = None
    """Unix time in nanoseconds when the oldest pending answer was seen."""
    open_traces: int = 0
    """Traces that wait for a decision, for the first time or because spans joined them."""
    held_traces: int = 0
    """Traces whose spans are held back for their scores."""
    poison_traces: int = 0
    """Traces that were set aside and are still in the store."""
    unread: Sequence[UnreadTraces] = ()
    """By producer, beside the answers; the largest first. An account stays when it is empty."""
    outbox_items: Mapping[str, Mapping[str, int]]
    """``put``, ``waiting``, ``delivered``, ``unconfirmed`` and ``rejected``: put is their sum."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Messages of topics that could not be used, by reason."""
    store_bytes: int = 0

    @property
    def pending(self) -> int:
        """Answers that have not ended."""
        return sum(each.number for each in self.accounts if each.state in PENDING)

    @property
    def ended(self) -> int:
        """Answers that have ended."""
        return sum(each.number for each in self.accounts if each.state not in PENDING)

    @property
    def adds_up(self) -> bool:
        """Whether the two entries of each answer and outbox item agree. If not, someone changed the file."""
        outbox_items = all(
            sums.get("put", 0) == sum(number for state, number in sums.items() if state != "put")
            for sums in self.outbox_items.values()
        )
        return outbox_items and self.seen == self.pending + self.ended

    def age_s(self, now_ns: int) -> float:
        """Return how long the oldest pending answer has waited, in seconds; 0 if none is pending."""
        return 0.0 if self.oldest_pending_ns is None else max(0, now_ns - self.oldest_pending_ns) / 1e9

    def by(self, key: Callable[[Account], str]) -> Mapping[str, int]:
        """Return sums by a key of the accounts, the largest first, without empty ones."""
        sums: Counter[str] = Counter()
        for account in self.accounts:
            sums[key(account)] += account.number
        return {name: number for name, number in sums.most_common() if number}

    def sums(self) -> Mapping[str, int]:
        """Return three sums; the first is the sum of the other two."""
        return {
            "seen": self.seen,
            "pending": self.pending,
            "ended": self.ended,
            "superseded": self.superseded,
        }

    def left(self) -> Mapping[str, int]:
        """Return the unfinished work."""
        return {
            "open_traces": self.open_traces,
            "held_traces": self.held_traces,
            "pending": self.pending,
            "undelivered": self.outbox_items_in("waiting"),
        }

    def by_name(self) -> Mapping[str, int]:
        """Return outcomes and queues in one flat mapping by name."""
        return {
            **self.by(lambda account: account.outcome),
            "open_traces": self.open_traces,
            "held_traces": self.held_traces,
            "poison_traces": self.poison_traces,
            "unread_traces": sum(each.number for each in self.unread),
            "undelivered": self.outbox_items_in("waiting"),
            "unconfirmed": self.outbox_items_in("unconfirmed"),
            "rejected": self.outbox_items_in("rejected"),
        }

    def outbox_items_in(self, state: str) -> int:
        """Return how many outbox items are in a state, as ``waiting`` or ``delivered``."""
        return sum(sums.get(state, 0) for sums in self.outbox_items.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where the newest carrier of an answer is, for one sink."""

    sink: str
    state: str
    """``waiting``, ``delivered``, ``unconfirmed`` (success, but unreadable) or ``rejected``."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStatus:
    """What the store has about one answer, without content."""

    trace_id: str
    span_id: str
    state: State
    reason: str
    rule: str
    rate: float
    probability: float | None
    """None if the answer had more than one chance to be sampled."""
    tenant: str
    service: str
    attempts: int
    last_error: str
    """The class of the last attempt's failure."""
    seen_ns: int
    due_ns: int
    """When it is tried next, while pending."""
    ended_ns: int | None
    carrier: str
    """The carrier's span id."""
    evaluator: str
    """The version of the evaluator that wrote it."""
    is_on_span: bool = False
    """Whether the scores are on the answer span itself, which was held back for them."""
    suspicion: float | None = None
    """By the screen, if the rate depends on it."""
    deliveries: tuple[Delivery, ...] = ()


WINDOW_MINUTES: Final = 10
_MINUTE_NS: Final = 60 * 10**9
_SEVERAL: Final = 5
_WITHOUT_SCORE: Final = (State.FAILED, State.EXPIRED, State.OVER_BUDGET)


class CoverageOf(NamedTuple):
    """Of one metric."""

    scored: int
    chosen: int
    """Answers that were to be judged: scored, failed, or waiting after a failed attempt."""


class _Minute(NamedTuple):
    number: int
    """Since 1970."""
    scored: Counter[str]
    chosen: Counter[str]
    lost: Counter[str]
    """Answers without any score, by outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts the answers that ended in the last `WINDOW_MINUTES`, without those with nothing to judge."""

    clock: Clock
    _minutes: deque[_Minute] = field(default_factory=lambda: deque(maxlen=WINDOW_MINUTES))

    def note(self, outcome: str, evaluation: Evaluation | None, metrics: Sequence[Metric]) -> None:
        """Count an answer that ended; ``metrics`` are what it was to be judged by."""
        if FinalOutcome.of(outcome).state in _WITHOUT_SCORE:
            self._now().chosen.update(_names((metric.name, metric.profile) for metric in metrics))
            self._now().lost[outcome] += 1
            return
        outcomes = evaluation.outcomes if evaluation else ()
        names = _names((each.metric, each.profile) for each in outcomes)
        for name, each in zip(names, outcomes, strict=True):
            if each.label is not Label.SKIPPED:
                self._now().chosen[name] += 1
                self._now().scored[name] += each.label is not Label.ERROR

    def by_metric(self, metrics: Sequence[Metric], *, waiting: int) -> Mapping[str, CoverageOf]:
        """Return the coverage of each metric; ``waiting`` answers wait after a failed attempt."""
        recent = self._recent()
        scored = sum((minute.scored for minute in recent), Counter[str]())
        chosen = sum((minute.chosen for minute in recent), Counter[str]())
        names = {*_names((metric.name, metric.profile) for metric in metrics), *chosen}
        return {name: CoverageOf(scored[name], chosen[name] + waiting) for name in sorted(names)}

    def why_none(self) -> str | None:
        """Return the outcome of most answers if none of several got a score; ``None`` if one did."""
        recent = self._recent()
        lost = sum((minute.lost for minute in recent), Counter[str]())
        if lost.total() < _SEVERAL or any(minute.scored.total() for minute in recent):
            return None
        return lost.most_common(1)[0][0]

    def _recent(self) -> Sequence[_Minute]:
        oldest = self._now().number - WINDOW_MINUTES
        return [minute for minute in self._minutes if minute.number > oldest]

    def _now(self) -> _Minute:
        number = self.clock.now_ns() // _MINUTE_NS
        if not self._minutes or self._minutes[-1].number < number:
            self._minutes.append(_Minute(number, Counter(), Counter(), Counter()))
        return self._minutes[-1]


def _names(metrics: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the name of each metric as its scores have it: with the profile if the metric came before."""
    known: set[str] = set()
    for name, profile in metrics:
        yield f"{name}.{profile}" if name in known else name
        known.add(name)
