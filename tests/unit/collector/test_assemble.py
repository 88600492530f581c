"""Readiness of traces: order, delay and duplication do not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.traces.otlp import SpanRef
from ragtrace_collector.assemble import AssemblePolicy, Assembly

SECOND = 1_000_000_000
POLICY = AssemblePolicy(quiet_ns=2 * SECOND, deadline_ns=60 * SECOND, max_open_traces=1000)
ROOT = SpanRef(span_id="01", parent_span_id=None)
CHILD = SpanRef(span_id="02", parent_span_id="01")
GRANDCHILD = SpanRef(span_id="03", parent_span_id="02")


def ready_at(assembly: Assembly, seconds: float) -> list[str]:
    return list(assembly.take_ready(int(seconds * SECOND)))


@given(
    refs=st.permutations([ROOT, CHILD, GRANDCHILD]),
    repeated=st.lists(st.sampled_from([ROOT, CHILD, GRANDCHILD]), max_size=3),
    gaps_s=st.lists(st.floats(0, 1.9), min_size=6, max_size=6),
)
def test_a_complete_trace_is_ready_after_quiet_in_any_order(
    refs: list[SpanRef], repeated: list[SpanRef], gaps_s: list[float]
) -> None:
    assembly, now_s = Assembly(POLICY), 0.0
    for ref, gap_s in zip([*refs, *repeated], gaps_s, strict=False):
        now_s += gap_s
        assembly.add("t", [ref], arrived_ns=int(now_s * SECOND))
        assert ready_at(assembly, now_s + 1.9) == []
    assert ready_at(assembly, now_s + 2.1) == ["t"]
    assert ready_at(assembly, now_s + 1000) == []


@pytest.mark.parametrize(
    "refs", [[CHILD], [ROOT, GRANDCHILD], [GRANDCHILD]], ids=["no root", "a gap", "a leaf"]
)
def test_an_incomplete_trace_waits_for_the_deadline_after_its_last_span(refs: list[SpanRef]) -> None:
    assembly = Assembly(POLICY)
    assembly.add("t", refs[:1], arrived_ns=0)
    assembly.add("t", refs, arrived_ns=50 * SECOND)
    assert ready_at(assembly, 109) == []
    assert ready_at(assembly, 110) == ["t"]


@pytest.mark.parametrize("parent", [None, "01"], ids=["on the trace", "on a span"])
def test_feedback_neither_completes_a_trace_nor_keeps_it_open(parent: str | None) -> None:
    feedback = SpanRef(span_id="04", parent_span_id=parent, is_feedback=True)
    assembly = Assembly(POLICY)
    assembly.add("early", [feedback], arrived_ns=0)
    assembly.add("late", [ROOT, CHILD, feedback], arrived_ns=0)
    assert ready_at(assembly, 59) == ["late"]
    assert ready_at(assembly, 60) == ["early"]


def test_a_settled_trace_that_grows_waits_for_quiet_alone() -> None:
    assembly = Assembly(POLICY)
    assembly.add("t", [GRANDCHILD], arrived_ns=0, reopened=True)
    assert ready_at(assembly, 3) == ["t"]


def test_beyond_the_limit_the_quietest_trace_is_taken_as_it_is() -> None:
    assembly = Assembly(AssemblePolicy(quiet_ns=SECOND, deadline_ns=60 * SECOND, max_open_traces=2))
    for name in ("a", "b", "c"):
        assembly.add(name, [CHILD], arrived_ns=0)
    assembly.add("a", [CHILD], arrived_ns=0)
    assert ready_at(assembly, 0) == ["b"]
    assert len(assembly) == 2


def test_shutting_down_takes_what_is_complete_and_leaves_the_rest() -> None:
    assembly = Assembly(POLICY)
    assembly.add("whole", [ROOT, CHILD], arrived_ns=0)
    assembly.add("part", [CHILD], arrived_ns=0)
    assert list(assembly.take_ready(0, everything=True)) == ["whole"]
