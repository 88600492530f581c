"""The index says what a plain list of the same answers says, whatever happened to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.index_rows import INDEX_TABLES, forget, note_feedback, put, size
from ragtrace.answers.port import VERDICTS, AnswerFilter, SortBy, TrafficScope
from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Direction, Label, VerdictLabel
from ragtrace.sql import SqliteDb, open_temporary
from ragtrace.stats import Weighed, WeightedMean, weighted_mean
from tests.unit.answers.rows import HOUR_NS, NOON_NS, a_metric, a_row, hex_id

scores = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0, 0.333333])


@st.composite
def summaries(draw: st.DrawFn, traces: int = 3) -> AnswerSummary:
    number = draw(st.integers(1, 6))
    faithful, precise, made_up = draw(scores), draw(scores), draw(scores)
    carrier = draw(st.integers(1, 6))
    superseded = draw(st.none() | st.integers(1, 6).filter(lambda other: other != carrier))
    hallucination = replace(a_metric(made_up, "hallucination"), direction=Direction.LOWER_IS_BETTER)
    return a_row(
        number,
        faithful,
        trace=draw(st.integers(1, traces)),
        tenant=draw(st.sampled_from(["", "acme"])),
        carrier=carrier,
        supersedes=superseded,
        minute=draw(st.integers(-30, 30)) * 61,
        service=draw(st.sampled_from(["", "bot", "search"])),
        model=draw(st.sampled_from(["small", "large"])),
        session=draw(st.sampled_from(["", "one", "0f0f0f0f-0000-4000-8000-000000000001"])),
        reason=draw(st.sampled_from(["", "judge_timeout"])),
        blame=draw(st.sampled_from(["", "healthy", "retrieval_noise"])),
        probability=draw(st.none() | st.sampled_from([1.0, 0.1, 1 / 3, 0.0001])),
        cost_usd=draw(st.none() | st.sampled_from([0.0, 0.002, 1.5])),
        judge=draw(st.sampled_from(["", "openai:gpt-4o"])),
        doubt=draw(st.sampled_from([0.0, 0.29, 1.0])),
        suspicion=draw(st.sampled_from([None, 0.0, 0.123, 0.999, 1.0])),
        metrics=(a_metric(faithful), a_metric(precise, "chunk_precision"), hallucination),
    )


scopes = st.builds(
    TrafficScope,
    tenant=st.sampled_from([None, "", "acme", "other"]),
    service=st.sampled_from([None, None, "bot"]),
    model=st.sampled_from([None, None, "small"]),
    since_ns=st.sampled_from([None, NOON_NS - 24 * HOUR_NS, NOON_NS]),
    until_ns=st.sampled_from([None, NOON_NS + 5 * HOUR_NS]),
)
filters = st.builds(
    AnswerFilter,
    scope=scopes,
    metric=st.sampled_from([None, "faithfulness", "hallucination", "unknown"]),
    min_score=st.sampled_from([None, None, 0.25]),
    max_score=st.sampled_from([None, None, 0.5]),
    label=st.none() | st.sampled_from(Label),
    verdict=st.sampled_from([None, None, *VERDICTS]),
    blame=st.sampled_from([None, None, "healthy", "what"]),
    judge=st.sampled_from([None, None, "openai:gpt-4o", "what"]),
    session=st.sampled_from([None, None, "one", "0f0f0f0f-0000-4000-8000-000000000001"]),
    feedback=st.sampled_from([None, None, "any", "none", "up"]),
    trace_id=st.sampled_from([None, None, hex_id(1, 32), "000", hex_id(2, 32)[:31]]),
)


class Kept:
    """A plain list of answers, with the rules of the index."""

    def __init__(self) -> None:
        self.rows: list[tuple[AnswerSummary, bool]] = []
        self.waiting: dict[tuple[str, ...], str] = {}

    def put(self, new: AnswerSummary) -> None:
        known = next((row for row in self.rows if _same_carrier(row[0], new)), None)
        of_key = [row.feedback for row, _ in self.rows if row.key == new.key and row.feedback]
        fed = replace(new, feedback=self.waiting.pop(new.key, "") or next(iter(of_key), ""))
        beside = [row for row, _ in self.rows if _beside(row, fed)]
        is_valid = all(row.supersedes != fed.carrier_span_id for row in beside)
        if known is not None:
            is_valid = known[1]
            self.rows.remove(known)
        self.rows = [
            (row, was and not (_beside(row, fed) and row.carrier_span_id == fed.supersedes))
            for row, was in self.rows
        ]
        self.rows.append((fed, is_valid))

    def feed(self, key: tuple[str, ...], feedback: str) -> None:
        if not any(row.key == key for row, _ in self.rows):
            self.waiting[key] = feedback
        self.rows = [
            (replace(row, feedback=feedback) if row.key == key else row, valid) for row, valid in self.rows
        ]

    def forget(self, before_ns: int, most_rows: int) -> None:
        oldest = sorted(self.rows, key=lambda row: row[0].time_ns)
        old = sum(row.time_ns < before_ns for row, _ in self.rows)
        self.rows = oldest[max(old, len(oldest) - most_rows) :]

    @property
    def valid(self) -> list[AnswerSummary]:
        return [row for row, is_valid in self.told() if is_valid]

    def told(self) -> list[tuple[AnswerSummary, bool]]:
        """Return all rows, with what the index says of disputes."""
        disputed = self.disputed()
        return [
            (replace(row, is_disputed=is_valid and row.key in disputed), is_valid)
            for row, is_valid in self.rows
        ]

    def disputed(self) -> set[AnswerKey]:
        """Return the answers that one valid evaluation passes and another fails."""
        valid = [row for row, is_valid in self.rows if is_valid]
        labels = {(row.key, row.label) for row in valid if row.label in (Label.PASS, Label.FAIL)}
        return {key for key, number in Counter(key for key, _ in labels).items() if number > 1}


def _beside(one: AnswerSummary, other: AnswerSummary) -> bool:
    return (one.key.trace_id, one.key.tenant) == (other.key.trace_id, other.key.tenant)


def _same_carrier(one: AnswerSummary, other: AnswerSummary) -> bool:
    return _beside(one, other) and one.carrier_span_id == other.carrier_span_id


def in_scope(row: AnswerSummary, scope: TrafficScope) -> bool:
    since = -(2**63) if scope.since_ns is None else scope.since_ns
    until = 2**63 if scope.until_ns is None else scope.until_ns
    return (
        (scope.tenant is None or scope.tenant == row.key.tenant)
        and (scope.service is None or scope.service == row.service)
        and (scope.model is None or scope.model == row.model)
        and since <= row.time_ns < until
    )


def matches(row: AnswerSummary, chosen: AnswerFilter) -> bool:
    metric = row.metric(chosen.metric or "faithfulness")
    score = metric.score if metric else None
    labeled = row.label if chosen.metric is None else metric.label if metric else None
    counts = (
        [getattr(each, chosen.verdict.value) for each in (row.claims, row.chunks)] if chosen.verdict else [1]
    )
    return all(
        (
            in_scope(row, chosen.scope),
            chosen.min_score is None or (score is not None and score >= chosen.min_score),
            chosen.max_score is None or (score is not None and score <= chosen.max_score),
            chosen.label is None or labeled is chosen.label,
            any(counts),
            chosen.blame is None or row.blame == chosen.blame,
            chosen.judge is None or row.judge == chosen.judge,
            chosen.session is None or row.session == chosen.session,
            chosen.feedback is None
            or {"any": bool(row.feedback), "none": not row.feedback}.get(
                chosen.feedback, row.feedback == chosen.feedback
            ),
            chosen.trace_id is None or row.key.trace_id.startswith(chosen.trace_id),
        )
    )


def sort_key(row: AnswerSummary, chosen: AnswerFilter, sort: SortBy, disputed: set[AnswerKey]) -> Any:
    if sort is SortBy.DOUBT:
        return (row.key not in disputed, -row.doubt)
    metric = row.metric(chosen.metric or "faithfulness")
    score = metric.score if metric else None
    if sort in (SortBy.WORST, SortBy.BEST) and metric is not None and score is not None:
        worse = metric.direction is Direction.LOWER_IS_BETTER
        return -score if (sort is SortBy.WORST) == worse else score
    if sort is SortBy.SUSPICION:
        return None if row.suspicion is None else -row.suspicion
    if sort is SortBy.COST:
        return None if row.cost_usd is None else -row.cost_usd
    if sort in (SortBy.NEWEST, SortBy.OLDEST):
        return -row.time_ns if sort is SortBy.NEWEST else row.time_ns
    return None


def close(one: WeightedMean | None, other: WeightedMean | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = ((one.mean, other.mean), (one.low, other.low), (one.high, other.high))
    return one.records == other.records and all(abs(a - b) < 1e-5 for a, b in pairs)


class IndexMachine(RuleBasedStateMachine):
    """Does the same to an index and to a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.db = open_temporary("")
        self.db.executescript(INDEX_TABLES)
        self.kept = Kept()
        self.index = AnswerIndex(self.connect)
        self.runner = asyncio.Runner()
        self.run = self.runner.run

    @contextmanager
    def connect(self) -> Iterator[SqliteDb]:
        yield self.db

    def teardown(self) -> None:
        forget(self.db, before_ns=2**62, most_rows=0, at_once=10_000)
        for table in ("answer_row", "answer_score"):
            assert self.db.execute(f"SELECT * FROM {table}").fetchall() == [], table
        self.db.close()
        self.runner.close()

    @rule(summary=summaries())
    def put(self, summary: AnswerSummary) -> None:
        put(self.db, summary)
        self.kept.put(summary)

    @rule(summary=summaries())
    def put_and_take_back(self, summary: AnswerSummary) -> None:
        self.db.execute("BEGIN")
        put(self.db, replace(summary, service="never", metrics=(a_metric(0.5, "never"),)))
        self.db.execute("ROLLBACK")

    @rule(summary=summaries(), feedback=st.sampled_from(["up", "down"]))
    def feed(self, summary: AnswerSummary, feedback: str) -> None:
        note_feedback(self.db, summary.key, feedback)
        self.kept.feed(summary.key, feedback)

    @rule(before=st.sampled_from([0, NOON_NS - HOUR_NS, NOON_NS]), most=st.integers(3, 8))
    def forget(self, before: int, most: int) -> None:
        times = [row.time_ns for row, _ in self.kept.rows]
        if len(set(times)) == len(times):  # else either of two may go
            while len(forget(self.db, before_ns=before, most_rows=most, at_once=2)) == 2:
                pass
            self.kept.forget(before, most)

    @invariant()
    def has_as_many_rows(self) -> None:
        assert size(self.db) == len(self.kept.rows)

    @rule(chosen=filters, sort=st.sampled_from(SortBy), limit=st.integers(1, 4))
    def lists_are_the_same(self, chosen: AnswerFilter, sort: SortBy, limit: int) -> None:
        expected = [row for row in self.kept.valid if matches(row, chosen)]
        disputed = self.kept.disputed()
        expected = [row for row in expected if sort_key(row, chosen, sort, disputed) is not None]
        found: list[AnswerSummary] = []
        after = None
        while True:
            page = self.run(self.index.page(chosen, sort=sort, after=after, limit=limit))
            assert len(page.answers) <= limit
            assert page.next is None or len(page.answers) == limit
            found += page.answers
            after = page.next
            if after is None:
                break
        keys = [sort_key(row, chosen, sort, disputed) for row in found]
        assert keys == sorted(keys)
        assert _multiset(found) == _multiset(expected)

    @rule(scope=scopes)
    def sums_are_the_same(self, scope: TrafficScope) -> None:
        rows = [row for row in self.kept.valid if in_scope(row, scope)]
        sums = self.run(self.index.sums(scope))
        assert (sums.answers, sums.unpriced) == (len(rows), sum(row.cost_usd is None for row in rows))
        assert sums.labels == Counter(row.label for row in rows)
        assert sums.blames == Counter(row.blame for row in rows if row.blame)
        assert sums.reasons == Counter(row.reason for row in rows if row.reason)
        assert sums.verdicts.get(VerdictLabel.CONTRADICTED, 0) == sum(r.claims.contradicted for r in rows)
        assert sums.cost_usd == pytest.approx(sum(row.cost_usd or 0 for row in rows))
        services = self.run(self.index.values("service", scope))
        assert services == Counter(row.service for row in rows if row.service)
        newest = self.run(self.index.newest_ns(scope))
        assert newest == max((row.time_ns for row in rows), default=None)

    @rule(scope=scopes, period=st.sampled_from([1, 24]))
    def trends_are_the_same(self, scope: TrafficScope, period: int) -> None:
        rows = [row for row in self.kept.valid if in_scope(row, scope)]
        (trend,) = self.run(self.index.trends(["hallucination"], scope, period_ns=period * HOUR_NS))
        assert sum(point.answers for point in trend.points) == trend.whole.answers == len(rows)
        for point in trend.points:
            within = range(point.start_ns, point.start_ns + period * HOUR_NS)
            members = [row for row in rows if row.time_ns in within]
            assert point.answers == len(members)
            assert close(point.mean, _mean(members))

    @rule(scope=scopes)
    def random_order_has_everything_once(self, scope: TrafficScope) -> None:
        rows = [row for row in self.kept.valid if in_scope(row, scope)]
        found, after = [], -1.0
        while page := self.run(self.index.random_order(scope, after=after, limit=100)):
            found += [row for _, row in page]
            after = page[-1][0]
        assert _multiset(found) == _multiset(rows)

    @rule(summary=summaries())
    def versions_have_every_evaluation(self, summary: AnswerSummary) -> None:
        of_key = [row for row, _ in self.kept.told() if row.key == summary.key]
        found = self.run(self.index.versions(summary.key))
        assert _multiset([row for row in found if row.key == summary.key]) == _multiset(of_key)
        valid = _multiset(self.kept.valid)
        flags = [_rounded(row) in valid for row in found]
        assert flags == sorted(flags, reverse=True)


def _mean(rows: list[AnswerSummary]) -> WeightedMean | None:
    """Return the mean with the index's clusters: a trace's answers in one period."""
    found = [(row, metric) for row in rows if (metric := row.metric("hallucination"))]
    return weighted_mean(
        Weighed(
            metric.score,
            row.probability,
            repr((row.key.trace_id, row.key.tenant)),
        )
        for row, metric in found
        if metric.score is not None
    )


def _rounded(row: AnswerSummary) -> str:
    metrics: tuple[MetricSummary, ...] = tuple(
        replace(metric, score=None if metric.score is None else round(metric.score, 6))
        for metric in row.metrics
    )
    return repr(replace(row, metrics=metrics))


def _multiset(rows: list[AnswerSummary] | Any) -> Counter[str]:
    return Counter(_rounded(row) for row in rows)


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(stateful_step_count=25)
