"""The OTLP codecs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace.errors import CodecError
from ragtrace.model import AttributeValue
from ragtrace.traces.otlp import (
    Encoding,
    decode,
    decode_json,
    encode,
    encode_json,
    new_envelope,
    parse_request,
    read_request,
    read_spans,
    spans_in,
    split_by_trace,
)
from ragtrace.traces.trace import Resource, Scope, Span
from tests.unit.traces.strategies import spans

TRACE = "0af7651916cd43dd8448eb211c80319c"


def a_span(
    number: int = 1,
    *,
    trace_id: str = TRACE,
    attributes: dict[str, AttributeValue] | None = None,
    service: str = "bot",
    scope: str = "",
) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=f"{number:016x}",
        parent_span_id=None,
        name="ask",
        start_ns=10,
        end_ns=20,
        attributes=attributes or {},
        resource=Resource(attributes={"service.name": service}),
        scope=Scope(name=scope),
    )


def a_json_request(**span: object) -> bytes:
    body = {"traceId": TRACE, "spanId": "00f067aa0ba902b7", "name": "ask"} | span
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [body]}]}]}).encode()


@pytest.mark.slow
@given(st.lists(spans(), max_size=3))
def test_protobuf_round_trip_keeps_every_span(originals: list[Span]) -> None:
    assert sorted(decode(encode(originals)), key=repr) == sorted(originals, key=repr)


@pytest.mark.slow
@given(st.lists(spans(), max_size=3))
def test_json_round_trip_keeps_every_span_on_one_line(originals: list[Span]) -> None:
    line = encode_json(originals)
    assert "\n" not in line
    assert sorted(decode_json(line), key=repr) == sorted(originals, key=repr)


def test_a_value_that_is_null_is_not_set() -> None:
    attributes = [{"key": kind, "value": {kind: None}} for kind in ("arrayValue", "stringValue", "intValue")]
    (span,) = decode_json(a_json_request(attributes=attributes).decode())
    assert set(span.attributes.values()) == {None}


OTLP_KEYS = [
    *("resourceSpans", "resource", "attributes", "scopeSpans", "spans", "traceId", "spanId", "kind"),
    *("status", "events", "key", "value", "stringValue", "intValue", "arrayValue", "values", "[x]"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "7", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(OTLP_KEYS), inner, max_size=4)
    ),
    max_leaves=25,
)


@given(JSON)
def test_odd_json_is_a_codec_error_or_a_request(tree: object) -> None:
    try:
        request = parse_request(json.dumps(tree).encode(), encoding="json")
    except CodecError:
        return
    assert isinstance(request, ExportTraceServiceRequest)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"\xff\xfe", "line 1", id="invalid utf-8"),
        pytest.param(b"{", "line 1", id="cut"),
        pytest.param(b"[" * 100_000, "nested too deep", id="deep arrays"),
        pytest.param(a_json_request(startTimeUnixNano="soon"), "startTimeUnixNano", id="time no number"),
        pytest.param(a_json_request(startTimeUnixNano="9" * 5000), "startTimeUnixNano", id="huge number"),
    ],
)
def test_bad_json_says_what_is_wrong(data: bytes, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        parse_request(data, encoding="json")


def test_span_without_valid_ids_is_rejected_alone() -> None:
    for key, value in (("traceId", "xyz"), ("traceId", None), ("traceId", "0" * 32), ("spanId", ["a"])):
        tree = json.loads(a_json_request())
        [scope] = tree["resourceSpans"][0]["scopeSpans"]
        scope["spans"].append({**scope["spans"][0], key: value})
        body = json.dumps(tree).encode()
        split = split_by_trace(parse_request(body, encoding="json"))
        assert (split.spans, split.rejected, len(decode(split.slices[0].payload))) == (1, 1, 1), value
        assert "1 spans without a valid" in split.reject_reason
        found, rejected = read_spans(body, encoding="json")
        assert (len(found), rejected) == (1, "1 spans without a valid trace id and span id"), value


def test_error_never_quotes_a_value() -> None:
    with pytest.raises(CodecError) as caught:
        parse_request(
            a_json_request(attributes=[{"key": "k", "value": {"intValue": "my secret"}}]), encoding="json"
        )
    assert "secret" not in str(caught.value)


def test_number_that_fits_nowhere_is_refused() -> None:
    for key, digits in (("doubleValue", 400), ("intValue", 5_000)):
        body = a_json_request(attributes=[{"key": "k", "value": {key: "here"}}])
        with pytest.raises(CodecError, match="not OTLP JSON"):
            parse_request(body.replace(b'"here"', b"9" * digits), encoding="json")


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited protobuf field."""
    size, left = b"", len(content)
    while left > 127:
        size, left = size + bytes([left & 127 | 128]), left >> 7
    return bytes([number << 3 | 2]) + size + bytes([left]) + content


MANY = 600_000
LARGE = 3_000_000


@pytest.mark.slow
def test_flood_of_empty_parts_is_refused() -> None:
    floods: tuple[tuple[bytes, Encoding], ...] = (
        (field(1, b"") * MANY, "protobuf"),
        (field(1, field(2, field(2, field(9, b"") * MANY))), "protobuf"),
        (field(1, field(2, field(2, b"\x0b\x0c" + field(11, b"") * LARGE))), "protobuf"),
        (b'{"resourceSpans":[' + b"{}," * MANY + b"{}]}", "json"),
        (b'{"unknown":[' + b"[]," * MANY + b"[]]}", "json"),
    )
    for data, encoding in floods:
        with pytest.raises(CodecError, match="send smaller batches"):
            parse_request(data, encoding=encoding)


def test_large_request_of_usual_spans_is_no_flood() -> None:
    texts: dict[str, AttributeValue] = {f"key {number}": "x" * 200 for number in range(20)}
    request = encode([a_span(number, attributes=texts) for number in range(1, 2_000)])
    assert len(request) > 4 << 20
    assert parse_request(request, encoding="protobuf").SerializeToString() == request


def test_value_nested_too_deep_for_readers_is_not_written() -> None:
    value: AttributeValue = "x"
    for _ in range(60):
        value = (value,)
    with pytest.raises(CodecError, match="nested too deep"):
        encode([a_span(attributes={"deep": value})])


def test_json_follows_the_deviations_of_otlp() -> None:
    (span,) = decode_json(
        a_json_request(
            parent_span_id="0102030405060708",
            parentSpanId="",
            kind=3,
            startTimeUnixNano=5,
            endTimeUnixNano="7",
            attributes=[
                {"key": "b", "value": {"bytesValue": "AP8="}},
                {"key": "i", "value": {"intValue": "3"}},
            ],
            status={"code": 2},
            somethingNew={"traceId": "00"},
        ).decode()
    )
    assert (span.kind, span.start_ns, span.end_ns, span.status_code) == (3, 5, 7, 2)
    assert span.parent_span_id is None
    assert span.attributes == {"b": b"\x00\xff", "i": 3}


def test_written_json_has_hex_ids_integer_enums_and_string_integers() -> None:
    tree = json.loads(encode_json([a_span(attributes={"n": 3})]))
    span = tree["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert span["traceId"] == TRACE
    assert span["kind"] == 1
    assert span["attributes"] == [{"key": "n", "value": {"intValue": "3"}}]


def test_lone_surrogates_are_replaced() -> None:
    assert decode_json(a_json_request(name="a\ud800b").decode())[0].name == "a\ufffdb"
    assert decode(encode([a_span(attributes={"k\udfff": "\ud800"})]))[0].attributes == {"k\ufffd": "\ufffd"}


def test_span_that_ends_before_it_starts_ends_at_its_start() -> None:
    (span,) = decode_json(a_json_request(startTimeUnixNano=9, endTimeUnixNano=4).decode())
    assert (span.start_ns, span.end_ns) == (9, 9)


def test_request_is_split_into_one_slice_a_trace() -> None:
    members = [a_span(1), a_span(2, trace_id="1" * 32, service="other"), a_span(3, scope="s")]
    split = split_by_trace(parse_request(encode(members), encoding="protobuf"))
    assert [piece.trace_id for piece in split.slices] == [TRACE, "1" * 32]
    assert decode(split.slices[0].payload) == (members[0], members[2])
    assert decode(split.slices[1].payload) == (members[1],)


def test_what_is_not_wanted_is_counted_and_left_out() -> None:
    members = [a_span(1), a_span(2), a_span(3, trace_id="1" * 32)]
    request = parse_request(encode(members), encoding="protobuf")
    split = split_by_trace(request, wanted=lambda trace_id, spans: (trace_id, spans) == (TRACE, 2))
    assert ([piece.trace_id for piece in split.slices], split.spans) == ([TRACE], 3)


trace_ids = st.sampled_from(
    [
        b"",
        bytes(16),
        b"\1" * 8,
        *(bytes([number]) + tail for number in range(1, 5) for tail in (b"\1" * 15, bytes(15))),
    ]
)


@given(
    st.lists(
        st.tuples(trace_ids, st.sampled_from([b"\2" * 8, bytes(8), b"\3"]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.sets(st.integers(1, 4)),
)
@example([(b"\1" * 16, bytes(8), False)], set())
@example([(bytes(16), b"\2" * 8, False), (b"\1" * 16, b"\2" * 8, False)], {2})
def test_what_is_cut_out_before_parsing_is_what_would_be_left_out_after(
    members: list[tuple[bytes, bytes, bool]], wanted: set[int]
) -> None:
    envelope = new_envelope()
    scopes = [envelope.resource_spans.add().scope_spans.add() for _ in range(2)]
    for number, (trace_id, span_id, is_name_first) in enumerate(members):
        ids = trace_pb2.Span(trace_id=trace_id, span_id=span_id).SerializeToString()
        name = trace_pb2.Span(name=f"{number}").SerializeToString()
        scopes[number % 3 // 2].spans.append(name + ids if is_name_first else ids + name)
    body = envelope.SerializeToString()

    def is_wanted(trace_id: str, _: int) -> bool:
        return int(trace_id[:2], 16) in wanted

    parsed = read_request(body, encoding="protobuf", wanted=is_wanted)
    split = split_by_trace(parsed.request, wanted=is_wanted, body=parsed.body)
    whole = split_by_trace(parse_request(body, encoding="protobuf"), wanted=is_wanted)
    assert [(each.trace_id, decode(each.payload)) for each in split.slices] == [
        (each.trace_id, decode(each.payload)) for each in whole.slices
    ]
    assert parsed.spans_cut + split.spans == whole.spans
    assert split.rejected == whole.rejected


def test_what_is_cut_out_is_not_parsed_and_what_is_kept_is() -> None:
    broken = replace(a_span(1), name="name-of-a-span")
    body = encode([broken, a_span(2, trace_id="1" * 32)]).replace(b"name-of-a-span", b"\xff" * 14)
    parsed = read_request(body, encoding="protobuf", wanted=lambda trace_id, _: trace_id != TRACE)
    assert (parsed.spans_cut, [span.span_id for span in spans_in(parsed.request)]) == (1, ["0" * 15 + "2"])
    with pytest.raises(CodecError):
        read_request(body, encoding="protobuf", repair=False, wanted=lambda trace_id, _: trace_id == TRACE)


@pytest.mark.slow
def test_large_resource_is_not_copied_into_ever_so_many_traces() -> None:
    resource = Resource(attributes={"text": "x" * 1_000_000})
    members = [replace(a_span(trace_id=f"{number:032x}"), resource=resource) for number in range(1, 300)]
    request = parse_request(encode(members), encoding="protobuf")
    with pytest.raises(CodecError, match="send smaller batches"):
        split_by_trace(request)
    assert (
        len(split_by_trace(request, wanted=lambda trace_id, _: trace_id == members[5].trace_id).slices) == 1
    )


@pytest.mark.slow
@given(st.lists(spans(), max_size=5))
def test_splitting_loses_no_span(members: list[Span]) -> None:
    split = split_by_trace(parse_request(encode(members), encoding="protobuf"))
    found = [span for piece in split.slices for span in decode(piece.payload)]
    assert sorted(found, key=repr) == sorted(members, key=repr)
    assert split.rejected == 0
