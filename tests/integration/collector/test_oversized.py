"""Spans that hold too much: the application's trace goes on, and is not judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.traces.trace import Span, SpanEvent, SpanLink
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace, trace_id_of


def with_attributes(span: Span) -> Span:
    return replace(span, attributes={**span.attributes, **{f"more.{number}": 1 for number in range(1_001)}})


def with_a_large_value(span: Span) -> Span:
    return replace(span, attributes={**span.attributes, "large": ("x" * (2 << 20), "y" * (2 << 20))})


def with_events(span: Span) -> Span:
    return replace(span, events=(SpanEvent(name="e", time_ns=span.start_ns),) * 1_001)


def with_links(span: Span) -> Span:
    return replace(span, links=(SpanLink(trace_id="1" * 32, span_id="1" * 16),) * 1_001)


def judged(out: Path) -> set[str]:
    return {span.trace_id for span in carriers_in(out) if span.scope.name == semconv.SCOPE_EVALUATION}


@pytest.mark.parametrize("made_large", [with_attributes, with_a_large_value, with_events, with_links])
async def test_a_trace_with_an_oversized_span_is_passed_on_and_not_judged(
    tmp_path: Path, made_large: Callable[[Span], Span]
) -> None:
    out = tmp_path / "out.jsonl"
    config = config_of(tmp_path, export=[{"endpoint": f"otlp-file:{out}", "forward": True}])
    root, *others = rag_trace(0)
    large = made_large(root)
    async with running_collector(config) as collector:
        await send_grpc(collector, request_of(large, *others, *rag_trace(1)))
        await until(lambda: judged(out))
        counts = collector.counters.snapshot()
    written = carriers_in(out)
    assert large in [span for span in written if span.trace_id == trace_id_of(0)]
    assert judged(out) == {trace_id_of(1)}
    assert counts["spans_over_limit"] == 3
