"""Hostile values in every place of every convention and in log records: bounded work, and nothing is lost."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragtrace.model import AttributeValue
from ragtrace.traces.extract import extract_records
from ragtrace.traces.extract.convention import Convention
from ragtrace.traces.extract.conventions import CONVENTIONS
from ragtrace.traces.trace import Span, SpanEvent, Trace
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.test_log_records import (
    SCORE,
    a_map,
    details,
    logs_of,
    record,
    send_logs,
    text,
    without_messages,
)
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MOST_USED: Final = ("otel-genai", "openinference", "langfuse")
_BYTES: Final = 1 << 15
"""A trace has about two hundred places: four MiB with this in each."""
VALUES: Final[Mapping[str, AttributeValue]] = {
    "int": 7,
    "float": 1e308,
    "bytes": b"\xff\x00",
    "null": "null",
    "list": (7, None, (), {"role": 7}),
    "map": {"content": {"text": ()}, "role": None},
    "nested": {"a": ({"a": ({"a": ({"a": "a"},)},)},)},
    "spaces": " \n" * (_BYTES // 2),
    "open lists": "[" * _BYTES,
    "open maps": '{"a":' * (_BYTES // 5),
    "lists in lists": "[" * (_BYTES // 2) + "]" * (_BYTES // 2),
    "messages": json.dumps([{"role": "user", "content": "hi"}] * (_BYTES // 40)),
    "keys": json.dumps({f"key{number}": number for number in range(_BYTES // 16)}),
    "JSON in JSON": json.dumps(json.dumps(json.dumps([{"content": '"\\' * (_BYTES // 40)}]))),
    "tags": "<document>" * (_BYTES // 10),
    "labels": "Question: a\n\nContext:\n" * (_BYTES // 22),
    "numbers": "".join(f"[{number}] a\n" for number in range(_BYTES // 10)),
    "a mebibyte": "x y " * (1 << 18),
}
_PLACES: Final = tuple(each.name for each in fields(Convention) if each.type == "Places")


def hostile_spans(convention: Convention, value: AttributeValue, number: int) -> Sequence[Span]:
    """Return a root and a span for each role of the convention, each with the value in all places.

    A value of a mebibyte is in one place of each span, in another one of each.
    """
    root = rag_trace(number)[0]
    places = [place for name in _PLACES for place in getattr(convention, name)]
    places += [place for pair in convention.ranking for place in pair]
    turn = itertools.cycle(places)
    found: list[Span] = []
    for at, told in _roles(convention):
        chosen = [next(turn)] if value == VALUES["a mebibyte"] else places
        attributes, events = dict[str, AttributeValue](), list[SpanEvent]()
        for place in chosen:
            event, _, path = place.rpartition("/")
            key = path.replace(".*", ".0").partition("[")[0]
            if event:
                events.append(SpanEvent(name=event, time_ns=root.start_ns, attributes={key: value}))
            else:
                attributes[key] = value
        if at == "@event":
            events.append(SpanEvent(name=told, time_ns=root.start_ns, attributes={"content": value}))
        elif at != "@name":
            attributes[at.replace(".*", ".0.x")] = told
        found.append(
            replace(
                root,
                span_id=f"{len(found) + 1:016x}",
                parent_span_id=found[0].span_id if found else None,
                name=told if at == "@name" else "step",
                attributes=attributes,
                events=tuple(events),
            )
        )
    return found


def _roles(convention: Convention) -> Iterator[tuple[str, str]]:
    """Yield one attribute, or name, for each role that each rule gives."""
    for kind in convention.kinds:
        told = {role: value for value, role in kind.roles.items() if role} or {kind.other: "x"}
        yield from ((kind.at, value) for value in told.values())


def within_bounds(folder: Path) -> CollectorConfig:
    """Return a configuration with a bound of work: a trace that takes more CPU time to read is set aside."""
    return config_of(folder, assemble={"deadline": "200ms", "max_cpu": "10s"})


async def all_read(collector: Collector, folder: Path) -> None:
    """Send a good trace, wait until it is judged, and see that nothing broke before."""
    await post(collector, request_of(*rag_trace(0)))
    written = folder / "out.jsonl"
    await until(lambda: any(each.trace_id == trace_id_of(0) for each in carriers_in(written)))
    store = collector.pipeline.store
    while await store.undecided() or (await store.ledger()).pending:  # noqa: ASYNC110 -- what stages bring about
        await asyncio.sleep(0.02)
    counts = collector.counters.snapshot()
    assert (counts["stage_errors"], counts["traces_poison"]) == (0, 0)
    assert (await store.ledger()).adds_up


@pytest.mark.parametrize(
    "convention",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.night] * (each.name not in MOST_USED))
        for each in CONVENTIONS
    ],
)
async def test_any_value_anywhere_gives_a_record_or_a_reason(tmp_path: Path, convention: Convention) -> None:
    traces = [hostile_spans(convention, value, number) for number, value in enumerate(VALUES.values(), 1)]
    first, *others = hostile_spans(convention, "Refunds take 14 days.", len(traces) + 1)
    traces.append([replace(first, parent_span_id=[first, *others][-1].span_id), *others])  # a cycle
    async with running_collector(within_bounds(tmp_path)) as collector:
        for spans in traces:
            extraction = extract_records(Trace.of(spans[0].trace_id, spans))
            assert extraction.records or extraction.notes
            for half in (spans[::2], spans[1::2]):
                assert (await post(collector, request_of(*half))).status_code == 200
        await all_read(collector, tmp_path)
        assert collector.counters.snapshot()["traces_settled"] > len(traces)


def hostile_records() -> Iterator[tuple[int, Sequence[LogRecord]]]:
    """Yield a trace's number, and records with one value as the body, in the body and as each attribute."""
    nested = AnyValue(string_value="a")
    for _ in range(8):
        nested = AnyValue(array_value=ArrayValue(values=[a_map(content=nested)]))
    said = [text(value) for value in VALUES.values() if isinstance(value, str)]
    values = (AnyValue(int_value=7), AnyValue(bytes_value=b"\xff\x00"), AnyValue(), nested, *said)
    for number, value in enumerate(values, 2):
        for name in ("user.message", "assistant.message", "choice", "client.inference.operation.details"):
            body = a_map(role=value, content=value, message=value, finish_reason=value)
            of_attributes = record(f"gen_ai.{name}")
            of_attributes.attributes.extend(
                KeyValue(key=f"gen_ai.{key}", value=value)
                for key in ("input.messages", "output.messages", "system_instructions", "event.content")
            )
            yield number, (record(f"gen_ai.{name}", value), record(f"gen_ai.{name}", body), of_attributes)


async def test_no_value_in_a_log_record_costs_the_messages_of_another(tmp_path: Path) -> None:
    written = tmp_path / "out.jsonl"
    async with running_collector(within_bounds(tmp_path)) as collector:
        for number, records in (*hostile_records(), (1, (details(),))):
            for each in records:
                each.trace_id = bytes.fromhex(trace_id_of(number))
            assert (await send_logs(collector, logs_of(*records))).content == b""
        traces = {number for number, _ in hostile_records()} | {1}
        spans = [replace(span, trace_id=trace_id_of(each)) for each in traces for span in without_messages()]
        await post(collector, request_of(*spans))
        await all_read(collector, tmp_path)
        await until(lambda: trace_id_of(1) in {each.trace_id for each in carriers_in(written)})
        assert (await collector.pipeline.store.ledger()).seen == len(traces) + 1
    (good,) = (each for each in carriers_in(written) if each.trace_id == trace_id_of(1))
    assert good.attributes[SCORE] == 0.5
