"""Readiness of traces: order, delay and duplication do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.traces.otlp import SpanRef
from ragtrace_collector.assemble import AssemblePolicy, Assembly, Ready

SECOND = 1_000_000_000
POLICY = AssemblePolicy(
    quiet_ns=2 * SECOND, deadline_ns=60 * SECOND, max_open_traces=1000, max_spans_per_trace=5
)
ROOT = SpanRef(span_id="01", parent_span_id=None)
CHILD = SpanRef(span_id="02", parent_span_id="01")
GRANDCHILD = SpanRef(span_id="03", parent_span_id="02")


class Assembled:
    """An assembly with a time of its own, in seconds."""

    def __init__(self, policy: AssemblePolicy = POLICY) -> None:
        self.now_s = 0.0
        self.assembly = Assembly(policy, monotonic_ns=lambda: int(self.now_s * SECOND))

    def add(self, trace_id: str, *refs: SpanRef, at_s: float) -> None:
        self.now_s = at_s
        self.assembly.add(trace_id, refs)

    def ready_at(self, at_s: float) -> list[str]:
        """Return the traces, and the calls of those that go on, as ``trace/call``."""
        self.now_s = at_s
        ready = self.assembly.take_ready()
        return [name for each in ready for name in _names(each.trace_id, sorted(each.calls))]


def _names(trace_id: str, calls: Sequence[str]) -> list[str]:
    return [f"{trace_id}/{call}" for call in calls] or [trace_id]


@given(
    refs=st.permutations([ROOT, CHILD, GRANDCHILD]),
    gaps_s=st.lists(st.floats(0, 1.9), min_size=3, max_size=3),
)
def test_a_complete_trace_is_ready_after_quiet_in_any_order(refs: list[SpanRef], gaps_s: list[float]) -> None:
    spans, now_s = Assembled(), 0.0
    for ref, gap_s in zip(refs, gaps_s, strict=True):
        now_s += gap_s
        spans.add("t", ref, at_s=now_s)
        assert spans.ready_at(now_s + 1.9) == []
    assert spans.ready_at(now_s + 2.1) == ["t"]
    assert spans.ready_at(now_s + 1000) == []


@pytest.mark.parametrize(
    "refs", [[CHILD], [ROOT, GRANDCHILD], [GRANDCHILD]], ids=["no root", "a gap", "a leaf"]
)
def test_an_incomplete_trace_waits_for_the_deadline_after_its_last_span(refs: list[SpanRef]) -> None:
    spans = Assembled()
    spans.add("t", SpanRef(span_id="09", parent_span_id="08"), at_s=0)
    spans.add("t", *refs, at_s=50)
    assert spans.ready_at(109) == []
    assert spans.ready_at(110) == ["t"]


def test_spans_that_are_sent_again_and_again_do_not_keep_their_trace_open() -> None:
    spans = Assembled()
    for at_s in (0, 1, 1.9):
        spans.add("t", ROOT, CHILD, at_s=at_s)
    assert spans.ready_at(2) == ["t"]


@pytest.mark.parametrize("parent", [None, "01"], ids=["on the trace", "on a span"])
def test_feedback_neither_completes_a_trace_nor_keeps_it_open(parent: str | None) -> None:
    feedback = SpanRef(span_id="04", parent_span_id=parent, is_feedback=True)
    spans = Assembled()
    spans.add("early", feedback, at_s=0)
    spans.add("late", ROOT, CHILD, feedback, at_s=0)
    assert spans.ready_at(59) == ["late"]
    assert spans.ready_at(60) == ["early"]


def test_a_trace_that_was_opened_again_waits_until_its_earlier_spans_are_recalled() -> None:
    spans = Assembled()
    spans.assembly.add("t", [GRANDCHILD], reopened=True)
    assert spans.assembly.reopened(10) == ("t",)
    assert spans.ready_at(100) == []
    spans.assembly.recall("t", [ROOT, CHILD])
    assert spans.assembly.reopened(10) == ()
    assert spans.ready_at(100) == ["t"]


def test_what_could_not_be_settled_is_ready_again_when_it_was_recalled() -> None:
    spans = Assembled()
    spans.add("t", ROOT, at_s=0)
    (ready,) = _take(spans, 5)
    spans.assembly.put_back(ready)
    assert spans.ready_at(100) == []
    spans.assembly.recall("t", [ROOT])
    assert spans.ready_at(100) == ["t"]


def _take(spans: Assembled, at_s: float) -> list[Ready]:
    spans.now_s = at_s
    return list(spans.assembly.take_ready())


def test_beyond_the_limit_the_quietest_trace_is_taken_as_it_is() -> None:
    spans = Assembled(replace(POLICY, max_open_traces=2))
    for name in ("a", "b", "c"):
        spans.add(name, CHILD, at_s=0)
    spans.add("a", GRANDCHILD, at_s=0)
    assert spans.ready_at(0) == ["b"]
    assert len(spans.assembly) == 2


def test_shutting_down_takes_what_is_complete_and_leaves_the_rest() -> None:
    spans = Assembled()
    spans.add("whole", ROOT, CHILD, at_s=0)
    spans.add("part", CHILD, at_s=0)
    assert [ready.trace_id for ready in spans.assembly.take_ready(everything=True)] == ["whole"]


def test_spans_beyond_the_limit_have_no_room_but_those_that_are_known_do() -> None:
    spans, refs = Assembled(), [SpanRef(span_id=f"{n}", parent_span_id=None) for n in range(7)]
    assert spans.assembly.has_room("t", refs[:5])
    assert not spans.assembly.has_room("t", refs[:6])
    spans.add("t", *refs[:4], at_s=0)
    assert spans.assembly.has_room("t", refs[:5])
    assert not spans.assembly.has_room("t", refs[:6])
    spans.add("t", refs[4], at_s=0)
    assert spans.assembly.has_room("t", refs[:5])


def test_parents_in_a_circle_end_at_the_deadline() -> None:
    spans = Assembled()
    ring = [
        SpanRef(span_id="0a", parent_span_id="0b", is_call=True),
        SpanRef(span_id="0b", parent_span_id="0a", is_call=True),
        SpanRef(span_id="0c", parent_span_id="0c", is_call=True),
    ]
    spans.add("t", *ring, at_s=0)
    assert spans.ready_at(60)[0] == "t"


# A trace that goes on: the session is open, and RAG calls in it end.
CALL = SpanRef(span_id="c1", parent_span_id="session", is_call=True)
STEP = SpanRef(span_id="s1", parent_span_id="c1")
STRAY = SpanRef(span_id="s9", parent_span_id="c2")


def test_a_rag_call_is_ready_though_its_root_has_not_ended() -> None:
    spans = Assembled()
    spans.add("t", STEP, at_s=0)
    spans.add("t", CALL, at_s=1)
    assert spans.ready_at(2.9) == []
    assert spans.ready_at(3) == ["t/c1"]
    assert spans.ready_at(30) == []
    assert spans.ready_at(61) == ["t"]


def test_a_rag_call_is_ready_though_others_in_its_trace_come_all_the_time() -> None:
    spans, found = Assembled(replace(POLICY, max_spans_per_trace=1000)), []
    for number in range(60):
        call = SpanRef(span_id=f"c{number}", parent_span_id="session", is_call=True)
        step = SpanRef(span_id=f"s{number}", parent_span_id=call.span_id)
        spans.add("t", step, at_s=number)
        found += spans.ready_at(number + 0.5)
        spans.add("t", call, at_s=number + 0.5)
    assert len(found) >= 50
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("stray_s", [0, 2.5], ids=["before the call", "before it was quiet"])
def test_a_rag_call_waits_for_a_parent_that_may_belong_to_it(stray_s: float) -> None:
    spans = Assembled()
    spans.add("t", STRAY, at_s=0) if stray_s == 0 else None
    spans.add("t", STEP, CALL, at_s=1)
    spans.add("t", STRAY, at_s=stray_s) if stray_s else None
    assert spans.ready_at(10) == []
    spans.add("t", SpanRef(span_id="c2", parent_span_id="session", is_call=True), at_s=11)
    assert spans.ready_at(12.9) == ["t/c1"]
    assert spans.ready_at(15) == ["t/c2"]


def test_a_rag_call_whose_stray_parent_never_comes_is_taken_at_the_deadline() -> None:
    spans = Assembled(replace(POLICY, max_spans_per_trace=1000))
    spans.add("t", STRAY, STEP, CALL, at_s=0)
    for second in range(1, 60):  # the trace itself is never quiet
        spans.add("t", SpanRef(span_id=f"x{second}", parent_span_id="session"), at_s=second)
        assert spans.ready_at(second) == []
    assert spans.ready_at(60) == ["t/c1"]


def test_a_rag_call_that_something_joins_is_ready_a_second_time() -> None:
    spans = Assembled()
    spans.add("t", STEP, CALL, at_s=0)
    assert spans.ready_at(2) == ["t/c1"]
    spans.add("t", SpanRef(span_id="s2", parent_span_id="s1"), at_s=10)
    assert spans.ready_at(11) == []
    assert spans.ready_at(14) == ["t/c1"]


def test_of_nested_rag_calls_the_outer_one_is_ready() -> None:
    spans = Assembled()
    inner = SpanRef(span_id="c3", parent_span_id="s1", is_call=True)
    spans.add("t", STEP, inner, CALL, at_s=0)
    assert spans.ready_at(2) == ["t/c1"]
    assert spans.ready_at(30) == []


def test_copies_of_a_span_that_differ_take_room_and_equal_ones_none() -> None:
    spans = Assembled()
    copies = [ROOT._replace(content_hash=number) for number in range(6)]
    for copy in copies[:5]:
        assert spans.assembly.has_room("t", [copy])
        assert not spans.assembly.has_all("t", [copy])
        spans.add("t", copy, at_s=0)
    assert spans.assembly.has_all("t", copies[:5])
    assert spans.assembly.has_room("t", copies[:5])
    assert not spans.assembly.has_room("t", copies[5:])


def test_what_came_of_the_last_traces_is_known_after_they_were_taken() -> None:
    spans = Assembled(replace(POLICY, max_open_traces=2))
    copy = ROOT._replace(content_hash=1)
    for name in ("a", "b", "c"):
        spans.add(name, copy, at_s=0)
        assert spans.ready_at(2) == [name]
    assert [spans.assembly.has_all(name, [copy]) for name in "abcd"] == [False, True, True, False]
    assert not spans.assembly.has_all("c", [copy, CHILD._replace(content_hash=2)])
