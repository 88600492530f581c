"""Bytes that are not what they are said to be: one text that is no UTF-8 costs no answer of its batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.traces.otlp import decode, decode_body, encode, encode_json, parse_request, spans_in
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace

ANSWERS = 100
MARK = "0000mark0000"
"""What becomes no UTF-8 on the way, in as many bytes."""
BAD = b"\xff\xc3(\xed\xa0\x80\xe2\x28\xa1\xf0\x9f!"

PLACES: dict[str, Callable[[Span], Span]] = {
    "key": lambda span: replace(span, attributes={**span.attributes, MARK: 1}),
    "value in a list": lambda span: replace(span, attributes={**span.attributes, "tags": ("a", (MARK,))}),
    "status": lambda span: replace(span, status_message=MARK),
    "scope": lambda span: replace(span, scope=replace(span.scope, name=MARK, schema_url=MARK)),
    "resource": lambda span: replace(
        span, resource=replace(span.resource, attributes={MARK: MARK}, schema_url=MARK)
    ),
}


def batch(*places: str) -> list[Span]:
    """Make a batch of answers, of which the roots of the first have the mark, each in one of these places."""
    spans = []
    for number in range(ANSWERS):
        root, *others = rag_trace(number)
        spans += [PLACES[places[number]](root) if number < len(places) else root, *others]
    return spans


def spoiled(body: bytes, *, bad: bytes = BAD) -> bytes:
    assert MARK.encode() in body
    return body.replace(MARK.encode(), bad)


async def send_json(collector: Collector, spans: list[Span]) -> str:
    body = spoiled(encode_json(spans).encode(), bad=rb"\ud800 \udfff\ud83d")
    answer = await post(collector, body, {"content-type": "application/json"})
    assert answer.status_code == 200
    return str(answer.json()["partialSuccess"])


async def send_protobuf(collector: Collector, spans: list[Span]) -> str:
    return str(await send_grpc(collector, spoiled(encode(spans))))


@pytest.mark.slow
@pytest.mark.parametrize("send", [send_json, send_protobuf], ids=lambda send: send.__name__)
async def test_a_text_that_is_no_utf8_costs_none_of_a_hundred_answers(
    tmp_path: Path, send: Callable[[Collector, list[Span]], Awaitable[str]]
) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        warning = await send(collector, batch(*PLACES))
        await until(lambda: collector.counters.snapshot()["answers_judged"] == ANSWERS)
        counted = collector.counters.snapshot()
    assert counted["requests_invalid"] == 0
    assert counted["spans_kept"] == 3 * ANSWERS
    assert counted["texts_mended"] >= len(PLACES)
    assert "not UTF-8" in warning
    assert len(carriers_in(tmp_path / "out.jsonl")) == ANSWERS


SPOILING = st.lists(
    st.one_of(st.binary(min_size=1, max_size=6), st.text(max_size=3).map(str.encode)), max_size=4
).map(b"".join)


def as_json_string(raw: bytes) -> bytes:
    """Write bytes into a JSON string as they are, but for what JSON has escaped."""
    return b"".join(
        bytes([byte]) if byte >= 0x20 and byte not in b'"\\' else b"\\u%04x" % byte for byte in raw
    )


def tagged(raw: bytes) -> bytes:
    """Write a length-delimited field of protobuf, but for its tag."""
    size, length = b"", len(raw)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return size + bytes([length]) + raw


def protobuf_with(raw: bytes) -> bytes:
    """Write a request of one span by hand: its name, a key and a value are these bytes."""
    text = b"\x0a" + tagged(raw)
    attribute = b"\x4a" + tagged(b"\x0a" + tagged(raw) + b"\x12" + tagged(text))
    ids = b"\x0a" + tagged(bytes([1]) * 16) + b"\x12" + tagged(bytes([2]) * 8)
    span = ids + b"\x2a" + tagged(raw) + attribute
    return b"\x0a" + tagged(b"\x12" + tagged(b"\x12" + tagged(span)))


def json_with(raw: bytes) -> bytes:
    """Write the same in OTLP's JSON."""
    text = as_json_string(raw)
    attribute = b'{"key":"%s","value":{"stringValue":"%s"}}' % (text, text)
    span = b'{"traceId":"%s","spanId":"%s","name":"%s","attributes":[%s]}' % (
        b"01" * 16,
        b"02" * 8,
        text,
        attribute,
    )
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s]}]}]}' % span


@given(raw=SPOILING)
def test_every_reader_reads_the_same_of_any_bytes(raw: bytes) -> None:
    """Protobuf and JSON, the quick reader of each and the one that mends: the standard's replacement."""
    name = raw.decode("utf-8", "replace")
    read = (
        decode(protobuf_with(raw)),
        decode_body(json_with(raw), encoding="json"),
        spans_in(parse_request(json_with(raw), encoding="json")),
    )
    for spans in read:
        (span,) = spans
        assert (span.name, dict(span.attributes)) == (name, {name: name})
