"""A stand-in for Langfuse: answers in the form that its API reference gives, of both versions.

Its own server needs ClickHouse, Redis and an object store, and does not run in these tests. What becomes of a
span is written after its OpenTelemetry page: the first known pair of attributes is input and output, the
others stand in the metadata as texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ragtrace import semconv
from ragtrace.traces.trace import Span, StatusCode
from tests.unit.backends.servers import HttpAnswer

__all__ = ["langfuse_v3", "langfuse_v4", "observation_of"]

Json = Mapping[str, Any]

_PAIRS = (
    (semconv.LANGFUSE_INPUT, semconv.LANGFUSE_OUTPUT),
    ("traceloop.entity.input", "traceloop.entity.output"),
    ("input.value", "output.value"),
    (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES),
)
_TYPES = {
    "RETRIEVER": "RETRIEVER",
    "LLM": "GENERATION",
    "CHAIN": "CHAIN",
    "chat": "GENERATION",
    "invoke_agent": "AGENT",
}


def observation_of(span: Span) -> dict[str, Any]:
    """Return the observation that Langfuse makes of a span."""
    sent = span.attributes
    found, answered = next((pair for pair in _PAIRS if sent.get(pair[0]) or sent.get(pair[1])), _PAIRS[0])
    moved = {key for pair in _PAIRS for key in pair}
    kept = {key: value for key, value in sent.items() if key not in moved and "messages." not in key}
    kind = str(sent.get(semconv.OI_KIND) or sent.get(semconv.OPERATION_NAME))
    own = sent.get(semconv.LANGFUSE_OBSERVATION_TYPE)
    return {
        "id": span.span_id,
        "traceId": span.trace_id,
        "parentObservationId": span.parent_span_id,
        "type": str(own).upper() if own else _TYPES.get(kind, "SPAN"),
        "name": span.name,
        "startTime": _moment(span.start_ns),
        "endTime": _moment(span.end_ns),
        "level": "ERROR" if span.status_code is StatusCode.ERROR else "DEFAULT",
        "statusMessage": span.status_message or None,
        "input": sent.get(found),
        "output": sent.get(answered),
        "model": sent.get(semconv.LANGFUSE_MODEL) or sent.get(semconv.RESPONSE_MODEL),
        "promptVersion": None,
        "metadata": {
            "attributes": {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in kept.items()
            },
            "resourceAttributes": dict(span.resource.attributes),
            "scope": {"name": span.scope.name, "attributes": {}},
        },
    }


def langfuse_v3(
    trace: Json, observations: Sequence[Json], *, scores: Sequence[Json] = ()
) -> Callable[[str], HttpAnswer]:
    """Answer as version 3 does that has one trace, on the second of two pages."""

    def reply(path: str) -> HttpAnswer:
        url = urlsplit(path)
        if url.path == "/api/public/traces":
            page = int(parse_qs(url.query).get("page", ["1"])[0])
            data = [{"id": trace["id"]}] if page == 2 else [{"id": "another"}]
            return _json({"data": data, "meta": {"page": page, "limit": 1, "totalItems": 2, "totalPages": 2}})
        if url.path == f"/api/public/traces/{trace['id']}":
            return _json({**trace, "observations": observations, "scores": scores})
        return HttpAnswer(status=404, body=b'{"message":"not found"}')

    return reply


def langfuse_v4(
    trace: Json, observations: Sequence[Json], *, scores: Sequence[Json] = ()
) -> Callable[[str], HttpAnswer]:
    """Answer as version 4 does that has one trace, an observation a page; metadata come as texts."""
    rows = [
        {
            **each,
            "model": None,
            "providedModelName": each["model"],
            "sessionId": trace.get("sessionId"),
            "metadata": {key: json.dumps(value) for key, value in each["metadata"].items()},
        }
        for each in observations
    ]

    def reply(path: str) -> HttpAnswer:
        url = urlsplit(path)
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path == "/api/public/v3/scores":
            return _json({"data": scores, "meta": {"limit": 100}})
        if url.path != "/api/public/v2/observations":
            return HttpAnswer(status=404)
        wanted = [row for row in rows if asked.get("traceId") in (None, trace["id"])]
        if "isRootObservation" in asked:
            wanted = [row for row in wanted if row["parentObservationId"] is None]
        first = int(asked.get("cursor", "0"))
        meta = {"cursor": str(first + 1)} if first + 1 < len(wanted) else {}
        return _json({"data": wanted[first : first + 1], "meta": meta})

    return reply


def _json(tree: object) -> HttpAnswer:
    return HttpAnswer(body=json.dumps(tree).encode())


def _moment(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000 / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
