"""Phoenix's reader and sink, against a server that answers as Phoenix does, or as nobody should."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.backends import open_carrier_sink, open_reader, open_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, ReadError, SendRefused, SendRejected, SendRetryable
from ragtrace.traces.trace import StatusCode, Trace
from tests.unit.backends.servers import HttpAnswer, http_server

TRACE_ID, SPAN_ID = "6b5cca6f0a1b4c2d8e9f00112233aabb", "00000000000000a1"
SECOND_ID = "00000000000000a2"


def a_stored_span(**other: Any) -> dict[str, Any]:
    return {
        "name": "ask",
        "context": {"trace_id": TRACE_ID, "span_id": SPAN_ID},
        "span_kind": "UNKNOWN",
        "parent_id": None,
        "start_time": "2026-11-20T10:00:00.000001+00:00",
        "end_time": "2026-11-20T10:00:01+00:00",
        "status_code": "ERROR",
        "attributes": {},
        "events": [],
    } | other


def phoenix(*spans: dict[str, Any], annotations: HttpAnswer | None = None) -> Callable[[str], HttpAnswer]:
    """Answer as a Phoenix does that has one project; a page holds one span."""

    def reply(path: str) -> HttpAnswer:
        if path.startswith("/v1/projects/UHJv/span_annotations"):
            return annotations or _page([])
        if path.startswith("/v1/projects/UHJv/spans"):
            place = int(path.partition("cursor=")[2] or 0)
            following = str(place + 1) if place + 1 < len(spans) else None
            return _page(list(spans[place : place + 1]), following)
        return _page([{"id": "UHJv", "name": "shop"}])

    return reply


def _page(data: list[dict[str, Any]], cursor: str | None = None) -> HttpAnswer:
    return HttpAnswer(body=json.dumps({"data": data, "next_cursor": cursor}).encode())


async def got(answer: Callable[[str], HttpAnswer], trace_id: str = TRACE_ID) -> Trace | None:
    with http_server(answer) as server:
        async with aclosing(
            open_reader(f"phoenix:{server.url}", access=ConnectionSettings(token="t"))
        ) as reader:
            trace = await reader.get(trace_id)
    assert {headers["authorization"] for _, headers, _ in server.requests} == {"Bearer t"}
    return trace


async def test_trace_is_put_together_of_all_pages() -> None:
    second = a_stored_span(context={"trace_id": TRACE_ID, "span_id": SECOND_ID}, parent_id=SPAN_ID)
    trace = await got(phoenix(a_stored_span(), second))
    assert trace is not None
    assert {span.span_id: span.parent_span_id for span in trace.spans} == {SPAN_ID: None, SECOND_ID: SPAN_ID}
    root = trace.find(SPAN_ID)
    assert root is not None
    assert (root.start_ns, root.end_ns) == (1_795_168_800_000_001_000, 1_795_168_801_000_000_000)
    assert (root.status_code, root.resource.attributes) == (StatusCode.ERROR, {semconv.OI_PROJECT: "shop"})


DOCUMENT = "retrieval.documents.0.document"
SENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "metadata": (
        {"metadata.source": "faq", "metadata.loc.page": 3},
        {"metadata": '{"loc": {"page": 3}, "source": "faq"}'},
    ),
    "metadata of a document": (
        {f"{DOCUMENT}.metadata.id": "a", f"{DOCUMENT}.score": 0.5},
        {f"{DOCUMENT}.metadata": '{"id": "a"}', f"{DOCUMENT}.score": 0.5},
    ),
    "structured messages": (
        {"gen_ai.input.messages.0.role": "user", "gen_ai.input.messages.0.parts.0.content": "Hi"},
        {"gen_ai.input.messages": '[{"parts": [{"content": "Hi"}], "role": "user"}]'},
    ),
    "names with dots": (
        {"ragtrace.metadata.tier": "gold", "tag.tags": ["a", "b"]},
        {"ragtrace.metadata.tier": "gold", "tag.tags": ("a", "b")},
    ),
}


async def test_attributes_are_as_they_were_sent() -> None:
    for what, (stored, sent) in SENT.items():
        trace = await got(phoenix(a_stored_span(attributes=stored, span_kind="CHAIN")))
        assert trace is not None
        assert trace.spans[0].attributes == {**sent, semconv.OI_KIND: "CHAIN"}, what


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (HttpAnswer(status=401), "refused the credentials"),
        (HttpAnswer(status=404), "has no /v1/projects: is this its address"),
        (HttpAnswer(status=422, body=b"no"), "answered 422: no"),
        (HttpAnswer(body=b"<html>"), "web page"),
        (HttpAnswer(body=b'{"data":{}}'), "unexpected form"),
        (HttpAnswer(body=b"{"), "not JSON"),
        (HttpAnswer(body=b'{"data":[{"id":"a"}]}'), "unreadable response: KeyError"),
    ],
    ids=["credentials", "address", "query", "page", "form", "no JSON", "no projects"],
)
async def test_other_answers_are_read_errors(answer: HttpAnswer, said: str) -> None:
    with pytest.raises(ReadError, match=said):
        await got(lambda _: answer)


@pytest.mark.parametrize(
    ("status", "error"), [(401, SendRefused), (404, SendRejected), (524, SendRetryable), (500, SendRetryable)]
)
async def test_answers_of_phoenix_are_sorted_for_the_sender(status: int, error: type[Exception]) -> None:
    with http_server(lambda _: HttpAnswer(status=status)) as server:
        async with aclosing(
            open_carrier_sink(f"phoenix:{server.url}/", access=ConnectionSettings(token="t"))
        ) as sink:
            with pytest.raises(error) as raised:
                await sink.send(b"")
    assert type(raised.value) is error
    assert server.requests[0][0] == "/v1/span_annotations?sync=true"
    assert server.requests[0][1]["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    "address", ["phoenix:", "phoenix:localhost:6006", "langfuse:grpc://host", "phoenix:http://"]
)
def test_what_is_no_address_of_scores_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address to send"):
        open_carrier_sink(address)
    with pytest.raises(ConfigError, match="is not an address to send spans to"):
        open_sink("phoenix:http://localhost:6006")  # which takes no spans
