"""Bodies of export requests: real ones, and what becomes of them on a bad way."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragtrace import semconv
from ragtrace.traces.otlp import encode, encode_json, parse_request
from tests.rag_spans import rag_trace

Encoding = Literal["protobuf", "json"]

_RECORDINGS: Final = Path(__file__).parents[1] / "data" / "recordings"
_MOST_RECORDINGS: Final = 24
_BOMB_BYTES: Final = 512 << 20
_BOMBS: Final = ("zeros", "members", "parts", "spans")
_LARGE_BYTES: Final = 5 << 20
"""More than is taken, and not packed."""


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent, and what it claims to be."""

    content: bytes
    encoding: Encoding
    coding: str | None = None
    """The `content-encoding` that says how it is packed."""


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """Draw a body: most are real requests that something happened to, some are made of odd parts."""
    kind = draw(st.sampled_from(["plain"] * 24 + ["packed"] * 14 + ["bomb"] * 2 + ["large"]))
    if kind == "large":
        return draw(st.sampled_from(_large()))
    if kind == "bomb":
        return draw(_bombs())
    plain = draw(st.one_of(_mutated("protobuf"), _mutated("json"), _odd_protobuf(), _odd_json(), _junk()))
    return draw(_packed(plain)) if kind == "packed" else plain


@cache
def _real(encoding: Encoding) -> tuple[bytes, ...]:
    files = sorted(_RECORDINGS.glob("*.json"))[::5][:_MOST_RECORDINGS]
    texts = [json.dumps(json.loads(file.read_text("utf-8"))["trace"]) for file in files]
    texts.append(encode_json(rag_trace(0)))
    if encoding == "json":
        return tuple(text.encode() for text in texts)
    return tuple(parse_request(text.encode(), encoding="json").SerializeToString() for text in texts)


def _mutated(encoding: Encoding) -> SearchStrategy[Body]:
    real = st.sampled_from(range(_MOST_RECORDINGS)).map(
        lambda number: _real(encoding)[number % len(_real(encoding))]
    )
    return st.builds(
        lambda body, changes, claimed: Body(_changed(body, changes), claimed),
        real,
        st.lists(_changes(), max_size=6),
        st.sampled_from([encoding] * 9 + ["json" if encoding == "protobuf" else "protobuf"]),
    )


def _changes() -> SearchStrategy[tuple[str, float, float, bytes]]:
    place = st.floats(0, 1)
    what = st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b"\x00", b"\xff" * 10, b"\n\xff\xff\xff\xff\x0f", b"{", b"[", b'"', b"null",
                         b"-1e999", b"\\ud800", b'{"a":' * 200, b"[" * 200, b"\x0a\x80",
                         b"\xf0\x9d\x94\x98", b"9" * 400]),
    )  # fmt: skip
    kinds = st.sampled_from(["flip", "cut", "insert", "double", "swap", "end"])
    return st.tuples(kinds, place, place, what)


def _changed(body: bytes, changes: list[tuple[str, float, float, bytes]]) -> bytes:
    for kind, first, second, what in changes:
        start, stop = sorted((int(first * len(body)), int(second * len(body))))
        stop = min(stop, start + 4096)
        part = body[start:stop]
        replacement = {
            "flip": bytes([(part[0] if part else 0) ^ 0x41]) + part[1:],
            "cut": b"",
            "insert": what + part,
            "double": part + part,
            "swap": what,
            "end": b"",
        }[kind]
        body = body[:start] + replacement + (b"" if kind == "end" else body[stop:])
    return body


def _odd_protobuf() -> SearchStrategy[Body]:
    """Draw valid messages of parts that no SDK sends: ids of any length, times out of order, deep values."""
    return (
        st.lists(_odd_spans(), min_size=1, max_size=6).map(_request).map(lambda body: Body(body, "protobuf"))
    )


_Fields = Mapping[str, Any]


def _odd_spans() -> SearchStrategy[_Fields]:
    ids = st.sampled_from(
        [b"", b"\x00" * 16, b"\x01" * 16, b"\x02" * 16, b"\xff" * 15, b"\x01" * 8, b"\x00" * 8]
    )
    times = st.integers(0, 2**64 - 1) | st.just(1_760_000_000_000_000_000)
    keys = st.sampled_from([semconv.RAG_KIND, semconv.RAG_DOCUMENTS, semconv.RAG_ANSWER, semconv.TENANT,
                            "input.value", "output.value", "openinference.span.kind", "gen_ai.operation.name",
                            "retrieval.documents.0.document.content", "", "\x00"])  # fmt: skip
    return st.fixed_dictionaries(
        {
            "trace_id": ids,
            "span_id": ids,
            "parent_span_id": ids,
            "name": st.text(max_size=20),
            "start": times,
            "end": times,
            "kind": st.integers(-(2**31), 2**31 - 1),
            "attributes": st.lists(st.tuples(keys, _values()), max_size=6),
            "scope": st.sampled_from(["", semconv.SCOPE_EVALUATION, semconv.SCOPE_CAPTURE]),
            "events": st.integers(0, 3),
        }
    )


def _values() -> SearchStrategy[bytes]:
    """Draw values as they stand on the wire: some deeper than the library would write them."""
    leaf = st.one_of(
        st.just(AnyValue()),
        st.booleans().map(lambda value: AnyValue(bool_value=value)),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: AnyValue(int_value=value)),
        st.floats().map(lambda value: AnyValue(double_value=value)),
        st.text(max_size=30).map(lambda value: AnyValue(string_value=value)),
        st.binary(max_size=30).map(lambda value: AnyValue(bytes_value=value)),
        st.sampled_from(['{"role":', '[{"role":"user","parts":[{}]}]', "[" * 400, "null"]).map(
            lambda value: AnyValue(string_value=value)
        ),
    ).map(AnyValue.SerializeToString)
    return st.one_of(leaf, st.tuples(leaf, st.integers(1, 120)).map(lambda drawn: _nested(*drawn)))


def _nested(value: bytes, depth: int) -> bytes:
    for _ in range(depth):
        value = _field(5, _field(1, value))
    return value


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _request(spans: list[_Fields]) -> bytes:
    return b"".join(
        _field(1, _field(2, _field(1, _field(1, fields["scope"].encode())) + _field(2, _span(fields))))
        for fields in spans
    )


def _span(fields: _Fields) -> bytes:
    span = Span(
        trace_id=fields["trace_id"],
        span_id=fields["span_id"],
        parent_span_id=fields["parent_span_id"],
        name=fields["name"],
        start_time_unix_nano=fields["start"],
        end_time_unix_nano=fields["end"],
        kind=fields["kind"],
    )
    for number in range(fields["events"]):
        span.events.add(name=f"event {number}", time_unix_nano=fields["end"])
    attributes = [
        _field(9, _field(1, key.encode()) + _field(2, value)) for key, value in fields["attributes"]
    ]
    return span.SerializeToString() + b"".join(attributes)


def _odd_json() -> SearchStrategy[Body]:
    """Draw JSON of OTLP's keys, with values that do not belong to them."""
    keys = st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "parentSpanId",
                            "kind", "name", "attributes", "key", "value", "stringValue", "intValue",
                            "arrayValue", "values", "kvlistValue", "startTimeUnixNano", "resource_spans",
                            "events",
                            "droppedAttributesCount"])  # fmt: skip
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("0" * 32)
    tree = st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)
    )
    spans = st.lists(st.dictionaries(keys, tree, max_size=6), max_size=3)
    whole = spans.map(lambda found: {"resourceSpans": [{"scopeSpans": [{"spans": found}]}]})
    return st.one_of(whole, tree).map(lambda value: Body(json.dumps(value).encode(), "json"))


def _junk() -> SearchStrategy[Body]:
    deep = [b'{"resourceSpans":' + b"[" * depth + b"]" * depth + b"}" for depth in (99, 101, 5_000)]
    return st.builds(
        Body, st.binary(max_size=300) | st.sampled_from(deep), st.sampled_from(["protobuf", "json"])
    )


def _packed(body: Body) -> SearchStrategy[Body]:
    """Draw what gzip makes of a body, once, several times or half, with what claims it."""
    return st.builds(
        lambda layers, changes, coding: Body(
            _changed(_gzipped(body.content, layers), changes), body.encoding, coding
        ),
        st.integers(1, 3),
        st.lists(_changes(), max_size=1),
        st.sampled_from(["gzip"] * 6 + ["GZIP ", "gzip, gzip", "deflate", "identity", "br", ""]),
    )  # fmt: skip


def _gzipped(content: bytes, layers: int) -> bytes:
    for _ in range(layers):
        content = gzip.compress(content, compresslevel=1, mtime=0)
    return content


def _bombs() -> SearchStrategy[Body]:
    return st.sampled_from(_BOMBS).map(_bomb)


@cache
def _large() -> tuple[Body, Body]:
    """Return a good request again and again, in one: it is taken unless its size forbids it."""
    body = encode(rag_trace(0))
    many = body * (_LARGE_BYTES // len(body) + 1)
    return Body(many, "protobuf"), Body(_gzipped(many, 1), "protobuf", "gzip")


def heavy_bodies() -> tuple[Body, ...]:
    """Return every body that is larger than it may be, or becomes so when it is read."""
    return (*_large(), *map(_bomb, _BOMBS))


@cache
def _bomb(kind: str) -> Body:
    if kind == "zeros":
        packer = zlib.compressobj(9, wbits=31)
        content = b"".join(packer.compress(bytes(1 << 20)) for _ in range(_BOMB_BYTES >> 20)) + packer.flush()
        return Body(content, "protobuf", "gzip")
    if kind == "members":
        return Body(_gzipped(b"", 1) * 2_000, "protobuf", "gzip")
    if kind == "parts":
        return Body(_gzipped(b"\n\x00" * 600_000, 1), "protobuf", "gzip")
    return Body(_gzipped(json.dumps({"resourceSpans": [{}] * 400_000}).encode(), 1), "json", "gzip")


def odd_http() -> SearchStrategy[bytes]:
    """Draw requests whose frames are wrong: lengths that lie, chunks that end nowhere, several in one."""
    start = st.sampled_from(
        [b"POST /v1/traces HTTP/1.1\r\n", b"POST /v1/traces HTTP/1.0\r\n", b"POST /v1/traces HTTP/9.9\r\n",
         b"GET /healthz HTTP/1.1\r\n", b"GET /../../etc/passwd HTTP/1.1\r\n", b"DELETE * HTTP/1.1\r\n",
         b"POST  /v1/traces\r\n", b"CONNECT a:1 HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
         b"\x16\x03\x01"]
    )  # fmt: skip
    header = st.sampled_from(
        [b"host: a\r\n", b"content-type: application/x-protobuf\r\n", b"content-type: application/json\r\n",
         b"content-length: 5\r\n", b"content-length: -1\r\n", b"content-length: 99999999999999999999\r\n",
         b"transfer-encoding: chunked\r\n", b"transfer-encoding: gzip, chunked\r\n",
         b"content-encoding: gzip\r\n",
         b"expect: 100-continue\r\n", b"connection: close\r\n", b"x: " + b"a" * 70_000 + b"\r\n", b": \r\n",
         b"x:\x00\r\n", b" folded: a\r\n"]
    )  # fmt: skip
    body = st.binary(max_size=20) | st.sampled_from(
        [b"0\r\n\r\n", b"5\r\nabcde\r\n0\r\n\r\n", b"fffffffffff\r\n"]
    )
    request = st.builds(
        lambda line, headers, rest: line + b"".join(headers) + b"\r\n" + rest,
        start,
        st.lists(header, max_size=5),
        body,
    )
    return st.lists(request, min_size=1, max_size=3).map(b"".join)
