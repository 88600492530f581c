"""What all processes decide from one log: the same, and never more than a limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.budget import Budget, BudgetWindow, ExceededLimit, Limit, Period, Reservation, Spend
from ragtrace_collector.store.budget_log.records import (
    VERSION,
    CheckpointRecord,
    NewerRecord,
    Record,
    ReserveRecord,
    SettleRecord,
    decode_record,
    encode_record,
)
from ragtrace_collector.store.budget_log.replica import (
    BudgetDecision,
    BudgetEntry,
    BudgetReplica,
    CheckpointRead,
    ForgottenWindow,
)
from ragtrace_collector.store.budget_log.table import (
    MOST_PROCESSES,
    WINDOW_OF_NUMBERS,
    RecordId,
    SeenRecords,
)

MINUTE: Final = 60 * 1_000_000_000
NOON: Final = int(datetime(2026, 2, 27, 12, 0, 30, tzinfo=UTC).timestamp()) * 1_000_000_000
LIMITS: Final = {Period.MINUTE: Limit(tokens=60, calls=4), Period.DAY: Limit(tokens=200)}
LIVE: Final = Budget(name="live", limits=LIMITS)
KEPT: Final = {Period.MINUTE: 3, Period.DAY: 2, Period.MONTH: 1}
EVERY: Final = 4
FOREIGN: Final = (
    *(None, b"", b"garbage", b"\xff\x00", b"[" * 100_000, b"1", b"[]", b"{}", b'{"ragtrace_budget":0}'),
    *(b'{"ragtrace_budget":true}', b'{"ragtrace_budget":1}', b'{"ragtrace_budget":1,"kind":"spend"}'),
)

processes = st.integers(0, 2)
moments = st.integers(-3, 3).map(lambda minutes: NOON + minutes * MINUTE)
spends = st.builds(Spend, calls=st.just(1), tokens=st.integers(1, 60))
steps = st.one_of(
    st.tuples(st.just("reserve"), processes, spends, moments),
    st.tuples(st.just("settle"), processes, st.floats(0, 1)),
    st.tuples(st.just("repeat"), st.integers(0, 1 << 20)),
    st.tuples(st.just("foreign"), st.sampled_from(FOREIGN)),
    st.tuples(st.just("checkpoint"), processes, st.integers(0, 1 << 20)),
)


@dataclass(slots=True)
class History:
    """A log as several processes write it, and what a process that read all of it decided."""

    values: list[bytes | None] = field(default_factory=list)
    states: list[bytes] = field(default_factory=list)
    """At each offset, of what is before it."""
    decisions: list[BudgetDecision] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    open: list[Reservation] = field(default_factory=list)
    spent: dict[BudgetWindow, Spend] = field(default_factory=dict)
    """What was granted, by its estimate until the cost is known."""
    replica: BudgetReplica = field(default_factory=lambda: new_replica(0))
    _numbers: list[int] = field(default_factory=lambda: [0, 0, 0])

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("reserve", process, estimate, now_ns):
                id_ = self._id(process)
                self._write(ReserveRecord(id=id_, budget=LIVE, estimate=estimate, share=1.0, now_ns=now_ns))
                if isinstance(answer := self.decisions[-1].answer, Reservation):
                    self.open.append(answer)
                    self._count(answer, answer.estimate)
            case ("settle", process, share) if self.open:
                reservation = self.open.pop(0)
                actual = Spend(calls=1, tokens=int(reservation.estimate.tokens * share))
                difference = actual - reservation.estimate
                self._write(
                    SettleRecord(
                        id=self._id(process),
                        budget=LIVE.name,
                        windows=reservation.windows,
                        difference=difference,
                    )
                )
                self._count(reservation, difference)
            case ("repeat", place) if self.values:
                self._append(self.values[place % len(self.values)])
            case ("foreign", value):
                self._append(value)
            case ("checkpoint", process, place) if self.states:
                as_of = place % len(self.states)
                self.checkpoints.append(len(self.values))
                self._write(CheckpointRecord(id=self._id(process), as_of=as_of, state=self.states[as_of]))

    def _write(self, record: Record) -> None:
        self._append(encode_record(record))

    def _append(self, value: bytes | None) -> None:
        self.states.append(self.replica.encode_state())
        self.values.append(value)
        entry = BudgetEntry(offset=len(self.values) - 1, value=value)
        for found in self.replica.read(entry):
            if isinstance(found, BudgetDecision):
                self.decisions.append(found)
            else:
                assert found.is_equal is not False

    def _count(self, reservation: Reservation, amount: Spend) -> None:
        for window in reservation.windows:
            self.spent[window] = self.spent.get(window, Spend()) + amount

    def _id(self, process: int) -> RecordId:
        self._numbers[process] += 1
        return RecordId(process=f"process {process}", number=self._numbers[process])


def new_replica(first_offset: int) -> BudgetReplica:
    return BudgetReplica(first_offset, checkpoint_every=EVERY, kept=KEPT)


def read_all(
    replica: BudgetReplica, values: Sequence[bytes | None], *, first: int = 0
) -> list[BudgetDecision | CheckpointRead]:
    return [
        found
        for offset in range(first, len(values))
        for found in replica.read(BudgetEntry(offset=offset, value=values[offset]))
    ]


@given(st.lists(steps, max_size=60))
def test_all_that_is_granted_together_exceeds_no_limit(taken: list[tuple[Any, ...]]) -> None:
    history = History()
    for step in taken:
        history.take(step)
        for window, spent in history.spent.items():
            assert LIMITS[window.period].exceeded_by(spent) is None


@given(st.lists(steps, max_size=60))
def test_every_process_decides_the_same_wherever_it_begins(taken: list[tuple[Any, ...]]) -> None:
    history = History()
    for step in taken:
        history.take(step)
    whole = new_replica(0)
    assert [each for each in read_all(whole, history.values) if isinstance(each, BudgetDecision)] == (
        history.decisions
    )
    for first in range(1, len(history.values)):
        late = new_replica(first)
        decided = [
            each for each in read_all(late, history.values, first=first) if isinstance(each, BudgetDecision)
        ]
        if not late.needs_checkpoint:
            assert late.encode_state() == whole.encode_state()
            assert decided == history.decisions[len(history.decisions) - len(decided) :]


@given(st.lists(steps, max_size=60))
def test_a_process_that_begins_behind_a_checkpoint_needs_one_as_of_what_it_has(
    taken: list[tuple[Any, ...]],
) -> None:
    history = History()
    for step in taken:
        history.take(step)
    for first in range(1, len(history.values)):
        late = new_replica(first)
        read_all(late, history.values, first=first)
        usable = [
            place
            for place in range(first, len(history.values))
            if isinstance(found := decode_record(history.values[place]), CheckpointRecord)
            and first <= found.as_of <= place
        ]
        assert late.needs_checkpoint == (not usable)


@given(st.lists(steps, max_size=40))
def test_what_is_counted_is_what_was_granted(taken: list[tuple[Any, ...]]) -> None:
    history = History()
    for step in taken:
        history.take(step)
    for window, spent in history.spent.items():
        if history.replica.spend.has(LIVE.name, window):
            assert history.replica.spend.spent(LIVE, window) == spent


def reserve_record(number: int, *, now_ns: int = NOON, budget: Budget = LIVE) -> ReserveRecord:
    id_ = RecordId(process="p", number=number)
    return ReserveRecord(id=id_, budget=budget, estimate=Spend(calls=1, tokens=1), share=1.0, now_ns=now_ns)


def test_a_time_before_all_windows_that_are_kept_is_refused_and_counted_nowhere() -> None:
    live = Budget(name="live", limits={Period.MINUTE: Limit(calls=1)})
    records = [reserve_record(number, now_ns=NOON + number * MINUTE, budget=live) for number in range(5)]
    records += [reserve_record(5 + again, now_ns=NOON, budget=live) for again in range(2)]
    replica = new_replica(0)
    found = read_all(replica, [encode_record(record) for record in records])
    answers = [each.answer for each in found if isinstance(each, BudgetDecision)]
    assert [isinstance(answer, Reservation) for answer in answers] == [True] * 5 + [False] * 2
    assert answers[5:] == [ForgottenWindow()] * 2


def test_a_cost_that_comes_after_its_window_was_forgotten_gives_nothing_back() -> None:
    replica = new_replica(0)
    windows = LIVE.windows(NOON)
    difference = Spend(tokens=-1_000)
    gift = SettleRecord(
        id=RecordId(process="p", number=1), budget="live", windows=windows, difference=difference
    )
    read_all(replica, [encode_record(gift)])
    assert [replica.spend.spent(LIVE, window) for window in windows] == [Spend(), Spend()]


@pytest.mark.parametrize("value", FOREIGN)
def test_what_others_write_is_skipped_and_counted(value: bytes | None) -> None:
    replica = new_replica(0)
    (decision,) = read_all(replica, [value, encode_record(reserve_record(1))])
    assert replica.skipped == 1
    assert isinstance(decision, BudgetDecision)
    assert isinstance(decision.answer, Reservation)


@pytest.mark.parametrize(
    "wrong",
    [
        {"process": 1},
        {"number": -1},
        {"number": 1 << 63},
        {"number": 1.5},
        {"budget": None},
        {"limits": {"week": [1, 1, 1]}},
        {"limits": {"day": [1, 1]}},
        {"limits": []},
        {"estimate": [1, -1, 0]},
        {"estimate": [1, True, 0]},
        {"share": float("nan")},
        {"share": 1.5},
        {"share": "1"},
        {"now_ns": 1 << 64},
        {"kind": ["reserve"]},
    ],
    ids=str,
)
def test_a_record_with_an_impossible_value_is_not_ours(wrong: dict[str, Any]) -> None:
    fields = json.loads(encode_record(reserve_record(1)))
    assert decode_record(json.dumps({**fields, **wrong}).encode()) is None


@pytest.mark.parametrize("value", [b'{"ragtrace_budget":2}', b'{"ragtrace_budget":7,"kind":"reserve"}'])
def test_nothing_is_decided_behind_a_record_of_a_newer_release(value: bytes) -> None:
    replica = new_replica(0)
    found = read_all(
        replica, [encode_record(reserve_record(1)), value, encode_record(reserve_record(2)), value]
    )
    assert len(found) == 1
    assert isinstance(replica.newer, NewerRecord)
    assert "upgrade" in str(replica.newer)
    assert f"version {VERSION}" in str(replica.newer)


record_ids = st.builds(RecordId, process=st.text(max_size=5), number=st.integers(0, (1 << 63) - 1))
amounts = st.none() | st.integers(0, 1 << 60)
budgets = st.builds(
    Budget,
    name=st.text(max_size=5),
    limits=st.dictionaries(
        st.sampled_from(Period), st.builds(Limit, calls=amounts, tokens=amounts, usd_nano=amounts)
    ),
)
any_moment = st.integers(0, (1 << 63) - 1)
any_spend = st.builds(
    Spend, calls=st.integers(0, 9), tokens=st.integers(0, 1 << 60), usd_nano=st.integers(0, 1 << 60)
)
records = st.one_of(
    st.builds(
        ReserveRecord,
        id=record_ids,
        budget=budgets,
        estimate=any_spend,
        share=st.floats(0, 1),
        now_ns=any_moment,
    ),
    st.builds(
        SettleRecord,
        id=record_ids,
        budget=st.text(max_size=5),
        windows=st.lists(st.builds(Period.window, st.sampled_from(Period), any_moment)).map(tuple),
        difference=any_spend,
    ),
    st.builds(CheckpointRecord, id=record_ids, as_of=any_moment, state=st.binary()),
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@given(
    st.dictionaries(st.sampled_from(["process", "number", "kind", "state", "as_of"]), st.none() | st.text())
)
def test_a_broken_checkpoint_is_skipped(wrong: dict[str, Any]) -> None:
    replica = new_replica(0)
    whole = CheckpointRecord(
        id=RecordId(process="p", number=1), as_of=0, state=b'{"applied":0,"seen":[],"spent":{"day/x":[[1]]}}'
    )
    fields = json.loads(encode_record(whole))
    read_all(replica, [encode_record(whole), json.dumps({**fields, **wrong}).encode()])
    assert replica.skipped == 2
    late = new_replica(1)
    read_all(late, [None, encode_record(replace(whole, as_of=1))], first=1)
    assert late.needs_checkpoint


def test_a_checkpoint_of_other_counts_is_found_out() -> None:
    replica, other = new_replica(0), new_replica(0)
    values: list[bytes | None] = [encode_record(reserve_record(number)) for number in range(1, EVERY + 1)]
    read_all(replica, values)
    read_all(other, values[:-1])
    assert replica.last_state is not None
    for state, is_equal in ((replica.last_state[1], True), (other.encode_state(), False)):
        record = CheckpointRecord(id=RecordId(process="q", number=0), as_of=EVERY, state=state)
        values.append(encode_record(record))
        (found,) = read_all(replica, values, first=len(values) - 1)
        assert found == CheckpointRead(id=record.id, as_of=EVERY, is_equal=is_equal)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=100))
def test_a_number_is_new_once(numbers: list[tuple[int, int]]) -> None:
    seen, known = SeenRecords(), set()
    for process, number in numbers:
        record = RecordId(process=str(process), number=number)
        assert seen.has(record) == (record in known)
        assert seen.add(record) == (record not in known)
        known.add(record)
        again = SeenRecords()
        again.load(seen.rows())
        assert again.rows() == seen.rows()


def test_numbers_far_behind_are_not_new_and_silent_processes_are_forgotten() -> None:
    seen = SeenRecords()
    seen.add(RecordId(process="p", number=5_000))
    assert not seen.add(RecordId(process="p", number=5_000 - WINDOW_OF_NUMBERS))
    assert seen.add(RecordId(process="p", number=5_001 - WINDOW_OF_NUMBERS))
    for number in range(MOST_PROCESSES):
        seen.add(RecordId(process=f"q{number}", number=1))
    assert len(seen.rows()) == MOST_PROCESSES
    assert seen.add(RecordId(process="p", number=5_000))


def test_the_state_does_not_grow_with_time() -> None:
    replica = new_replica(0)
    sizes = []
    for round_ in range(3):
        first = 200 * round_
        values: list[bytes | None] = [None] * first
        values += [
            encode_record(reserve_record(number, now_ns=NOON + number * MINUTE * 30))
            for number in range(first, first + 200)
        ]
        read_all(replica, values, first=first)
        sizes.append(len(json.loads(replica.encode_state())["spent"]["minute/live"]))
    assert sizes == [KEPT[Period.MINUTE]] * 3


def test_a_refusal_is_the_same_value_everywhere() -> None:
    live = Budget(name="live", limits={Period.DAY: Limit(calls=1)})
    values: list[bytes | None] = [encode_record(reserve_record(number, budget=live)) for number in (1, 2)]
    first, second = read_all(new_replica(0), values), read_all(new_replica(0), values)
    assert first == second
    assert isinstance(first[1], BudgetDecision)
    assert isinstance(first[1].answer, ExceededLimit)
