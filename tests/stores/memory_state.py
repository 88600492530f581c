"""What the store in memory keeps, and the two entries that each change of an answer or item makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ragtrace.budget import Period, Spend
from ragtrace.conversations.span import SessionName
from ragtrace.drift.runs import AnchorRun, SeenModel
from ragtrace.traces.attach import Sample
from ragtrace_collector.ledger.account import Account, AnswerStatus, Delivery, Ledger
from ragtrace_collector.ledger.outcomes import FinalOutcome, State
from ragtrace_collector.sampling.follow_up import LowAnswer
from ragtrace_collector.sampling.windows import WindowRow
from ragtrace_collector.store.port import DeadLetter, Job
from ragtrace_collector.store.trace_key import tenant_of, trace_id_of
from tests.stores.memory_index import MemoryIndex
from tests.stores.memory_sessions import MemorySession

Key = tuple[str, str]
"""A trace's key, and a span id."""

OTHERS: Final = "(others)"
MOST_TENANTS: Final = 1_000
_ROW_BYTES: Final = 200


def stored(sample: Sample | None) -> Sample:
    """Return a sample as it is read again: no answer is kept with probability zero."""
    return replace(sample, probability=sample.probability or None) if sample else NO_SAMPLE


NO_SAMPLE: Final = Sample(rule="", rate=0.0, probability=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer: a new value for each change."""

    trace_id: str
    span_id: str
    tenant: str
    service: str
    sample: Sample
    state: Literal["queued", "leased", "ended"]
    seen_ns: int
    due_ns: int
    ended_ns: int | None = None
    outcome: str = ""
    reason: str = ""
    attempts: int = 0
    crashes: int = 0
    wanted: str = ""
    """Digest of the record as last decided."""
    wanted_slices: int = 0
    judged: str = ""
    """Digest of the record as last judged."""
    revisions_left: int = 0
    carriers: int = 0
    replaces: str = ""
    is_moved: bool = False
    is_past: bool = False
    """Its spans were forgotten."""
    carrier: str = ""
    evaluator: str = ""
    is_on_span: bool = False

    @property
    def key(self) -> Key:
        return self.trace_id, self.span_id

    @property
    def is_superseded(self) -> bool:
        return self.outcome == State.SUPERSEDED

    @property
    def account(self) -> tuple[State, str]:
        """Its state in the ledger, and why."""
        if self.state == "ended":
            return FinalOutcome.of(self.outcome)
        if self.state == "queued" and self.reason:
            return State.POSTPONED, self.reason
        return State(self.state), ""

    def queued_again(self, now_ns: int) -> Answer:
        return replace(
            self,
            state="queued",
            outcome="",
            reason="",
            ended_ns=None,
            attempts=0,
            crashes=0,
            seen_ns=now_ns,
            due_ns=now_ns,
        )


@dataclass(slots=True, kw_only=True)
class StoredTraceRow:
    """One trace: how many slices came, and with how many it was decided."""

    last_arrival_ns: int
    decided_ns: int | None = None
    slices: int = 0
    decided_slices: int = 0
    is_cut: bool = False

    @property
    def is_open(self) -> bool:
        return self.slices > self.decided_slices


@dataclass(slots=True, kw_only=True)
class Item:
    """One outbox item."""

    sink: str
    payload: bytes
    answer: Key | None
    rejected_ns: int | None = None


@dataclass(slots=True, kw_only=True)
class Suspect:
    """A trace that is being read, was at a crash, or was set aside."""

    is_looked_at: bool = False
    crashes: int = 0
    poison: str = ""


@dataclass(slots=True, kw_only=True)
class HeldTrace:
    since_ns: int
    size: int


@dataclass(slots=True)
class MemoryState:
    """All that a store in memory keeps: handed to the next one, it is what a restart would read."""

    slices: dict[str, list[bytes]] = field(default_factory=dict)
    traces: dict[str, StoredTraceRow] = field(default_factory=dict)
    answers: dict[Key, Answer] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    deliveries: dict[tuple[str, str, str], tuple[int, Delivery]] = field(default_factory=dict)
    held: dict[str, HeldTrace] = field(default_factory=dict)
    additions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    suspects: dict[str, Suspect] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    """By the tenant of the account."""
    accounts: Counter[tuple[State, str, str, str]] = field(default_factory=Counter)
    sums: dict[str, Counter[str]] = field(default_factory=dict)
    spent: dict[tuple[str, Period, int], Spend] = field(default_factory=dict)
    windows: dict[tuple[str, int, str], WindowRow] = field(default_factory=dict)
    low: dict[Key, LowAnswer] = field(default_factory=dict)
    left_out: set[tuple[str, int, str, str]] = field(default_factory=set)
    """Key, time, trace and span of answers that were sampled out."""
    index: MemoryIndex = field(default_factory=MemoryIndex)
    anchor_runs: list[AnchorRun] = field(default_factory=list)
    judge_models: dict[tuple[str, str, str], SeenModel] = field(default_factory=dict)
    sessions: dict[SessionName, MemorySession] = field(default_factory=dict)
    last_item: int = 0
    dead_letters: dict[tuple[str, int, int], tuple[int, DeadLetter]] = field(default_factory=dict)
    """By topic, partition and offset; each with when it was noted."""
    dead_letter_sums: Counter[str] = field(default_factory=Counter)
    received_mail: dict[str, int] = field(default_factory=dict)
    """By id, when it was received."""

    # answers: every change goes through `put` or `forget`, which make both entries

    def put(self, answer: Answer) -> None:
        """Store an answer, and count it: as seen when it is new, and under its state."""
        old = self.answers.get(answer.key)
        if old is None and answer.tenant not in self.seen and len(self.seen) >= MOST_TENANTS:
            self.seen.setdefault(OTHERS, 0)
        elif old is None:
            self.seen.setdefault(answer.tenant, 0)
        self.answers[answer.key] = answer
        if old is None:
            self._enter(answer)
        elif (old.account, old.sample.rule) != (answer.account, answer.sample.rule):
            self._leave(old)
            self._enter(answer)

    def forget(self, key: Key) -> None:
        """Delete an answer. One that has not ended counts as expired."""
        old = self.answers.pop(key)
        self.deliveries = {at: found for at, found in self.deliveries.items() if at[:2] != key}
        if old.state != "ended":
            self.accounts[old.account[0], old.account[1], old.sample.rule, self._tenant(old)] -= 1
            self.accounts[State.EXPIRED, "retention", old.sample.rule, self._tenant(old)] += 1

    def of_trace(self, trace_id: str) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers.values() if answer.trace_id == trace_id)

    def _enter(self, answer: Answer) -> None:
        self.seen[self._tenant(answer)] += not answer.is_superseded
        self.accounts[answer.account[0], answer.account[1], answer.sample.rule, self._tenant(answer)] += 1

    def _leave(self, answer: Answer) -> None:
        self.seen[self._tenant(answer)] -= not answer.is_superseded
        self.accounts[answer.account[0], answer.account[1], answer.sample.rule, self._tenant(answer)] -= 1

    def _tenant(self, answer: Answer) -> str:
        return answer.tenant if answer.tenant in self.seen else OTHERS

    def post(self, payloads: Mapping[str, bytes], answer: Key | None = None) -> None:
        """Put a payload for each sink into the outbox."""
        for sink, payload in payloads.items():
            self.last_item += 1
            self.items[self.last_item] = Item(sink=sink, payload=payload, answer=answer)
            self.sums.setdefault(sink, Counter()).update(put=1, waiting=1)
            if answer:
                delivery = Delivery(sink=sink, state="waiting")
                self.deliveries[*answer, sink] = (self.last_item, delivery)

    def move_item(self, number: int, state: str, reason: str = "") -> None:
        """Count a waiting item under another state, and note it where its carrier is."""
        item = self.items[number]
        self.sums[item.sink]["waiting"] -= 1
        self.sums[item.sink][state] += 1
        at = (*item.answer, item.sink) if item.answer else None
        if at in self.deliveries and self.deliveries[at][0] == number:
            self.deliveries[at] = (number, Delivery(sink=item.sink, state=state, reason=reason))

    # readings

    def used_bytes(self) -> int:
        payloads = sum(len(payload) for payloads in self.slices.values() for payload in payloads)
        outbox = sum(len(item.payload) for item in self.items.values())
        additions = sum(len(payload) for found in self.additions.values() for payload in found.values())
        carriers = sum(len(each.payload) for kept in self.index.carriers.values() for each in kept)
        rows = len(self.answers) + len(self.traces) + len(self.index.rows)
        return payloads + outbox + additions + carriers + _ROW_BYTES * rows

    def ledger(self, tenant: str | None, since_ns: int | None) -> Ledger:
        """Return the ledger: its sums, or those of the answers seen since a time; of all tenants, or one."""
        found = self._whole_ledger() if since_ns is None else self._ledger_since(since_ns)
        return self._of_tenant(found, tenant, since_ns) if tenant else found

    def _whole_ledger(self) -> Ledger:
        rows = sorted(self.accounts.items(), key=lambda row: (-row[1], row[0]))
        return Ledger(
            seen=sum(self.seen.values()),
            superseded=sum(number for (state, *_), number in rows if state is State.SUPERSEDED),
            accounts=tuple(
                Account(state=state, reason=reason, rule=rule, tenant=tenant, number=number)
                for (state, reason, rule, tenant), number in rows
                if state is not State.SUPERSEDED
            ),
            oldest_pending_ns=_oldest(self.answers.values()),
            open_traces=sum(trace.is_open for trace in self.traces.values()),
            held_traces=len(self.held),
            poison_traces=sum(bool(suspect.poison) for suspect in self.suspects.values()),
            outbox_items={sink: dict(sums) for sink, sums in self.sums.items()},
            dead_letters=dict(self.dead_letter_sums),
            store_bytes=self.used_bytes(),
        )

    def _ledger_since(self, since_ns: int) -> Ledger:
        since = [answer for answer in self.answers.values() if answer.seen_ns >= since_ns]
        counted = Counter(
            (*answer.account, answer.sample.rule, answer.tenant, answer.service)
            for answer in since
            if not answer.is_superseded
        )
        rows = sorted(counted.items(), key=lambda row: (-row[1], row[0]))
        return replace(
            self._whole_ledger(),
            seen=counted.total(),
            superseded=len(since) - counted.total(),
            accounts=tuple(
                Account(state=state, reason=reason, rule=rule, tenant=tenant, service=service, number=number)
                for (state, reason, rule, tenant, service), number in rows
            ),
            oldest_pending_ns=_oldest(since),
        )

    def _of_tenant(self, ledger: Ledger, tenant: str, since_ns: int | None) -> Ledger:
        accounts = tuple(account for account in ledger.accounts if account.tenant == tenant)
        own = [
            answer
            for answer in self.answers.values()
            if answer.tenant == tenant and answer.seen_ns >= (since_ns or 0)
        ]
        superseded = (
            sum(
                number
                for (state, *_, owner), number in self.accounts.items()
                if (state, owner) == (State.SUPERSEDED, tenant)
            )
            if since_ns is None
            else sum(answer.is_superseded for answer in own)
        )
        return Ledger(
            seen=sum(account.number for account in accounts),
            superseded=superseded,
            accounts=accounts,
            oldest_pending_ns=_oldest(own),
            open_traces=sum(trace.is_open for key, trace in self.traces.items() if tenant_of(key) == tenant),
            held_traces=sum(tenant_of(key) == tenant for key in self.held),
            outbox_items={},
        )

    def answer_statuses(self, trace_id: str) -> tuple[AnswerStatus, ...]:
        found = sorted(self.of_trace(trace_id), key=lambda answer: (answer.seen_ns, answer.span_id))
        return tuple(self._status(answer) for answer in found)

    def _status(self, answer: Answer) -> AnswerStatus:
        state, reason = answer.account
        return AnswerStatus(
            trace_id=trace_id_of(answer.trace_id),
            span_id=answer.span_id,
            state=state,
            reason=reason,
            rule=answer.sample.rule,
            rate=answer.sample.rate,
            probability=answer.sample.probability,
            tenant=answer.tenant,
            service=answer.service,
            attempts=answer.attempts,
            last_error=answer.reason,
            seen_ns=answer.seen_ns,
            due_ns=answer.due_ns,
            ended_ns=answer.ended_ns,
            carrier=answer.carrier,
            evaluator=answer.evaluator,
            is_on_span=answer.is_on_span,
            suspicion=answer.sample.suspicion,
            deliveries=tuple(self._deliveries(answer.key)),
        )

    def _deliveries(self, key: Key) -> Iterator[Delivery]:
        for at in sorted(self.deliveries):
            if at[:2] == key:
                yield self.deliveries[at][1]

    def job(self, answer: Answer) -> Job:
        """Return an answer as its worker gets it."""
        trace = self.traces.get(answer.trace_id)
        return Job(
            trace_id=answer.trace_id,
            span_id=answer.span_id,
            sample=answer.sample,
            attempts=answer.attempts,
            crashes=answer.crashes,
            reason=answer.reason,
            seen_ns=answer.seen_ns,
            tenant=answer.tenant,
            service=answer.service,
            revisions_left=answer.revisions_left,
            carriers=answer.carriers,
            replaces=answer.replaces,
            slices=trace.slices if trace else 0,
            is_cut=trace.is_cut if trace else False,
        )


def _oldest(answers: Iterable[Answer]) -> int | None:
    return min((answer.seen_ns for answer in answers if answer.state != "ended"), default=None)
