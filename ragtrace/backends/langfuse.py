"""Langfuse's public API: traces by time, with their observations converted back to spans.

This follows Langfuse's documentation and is tested against documented responses, not a real server, which
needs ClickHouse, Redis and an object store. Version 4 and Langfuse Cloud list observations; earlier versions
list traces.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ragtrace import semconv
from ragtrace.backends.http_api import HttpReader, Parameters, at_most
from ragtrace.backends.scores import StoredScore, hex_id, original_ids, with_carriers
from ragtrace.errors import ReadError
from ragtrace.model import AttributeValue
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.trace import Resource, Scope, Span, StatusCode, Trace

Json = Mapping[str, Any]

_TAGS: Final = frozenset({"environment", "sessionId", "userId", "version"})
"""The API's search filters, under its own names."""


class LangfuseReader(HttpReader):
    """Read traces by id and by search from Langfuse; user and password are its public and secret key."""

    back_end = "Langfuse"
    most_traces = 1_000
    shortest_ns = 10**9

    def __init__(self, base_url: str, **options: Any) -> None:
        super().__init__(base_url, **options)
        self._lists_observations: bool | None = None

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the project does not have it."""
        with self._api.reading():
            stored = await self._stored(trace_id.strip())
            return _trace(stored) if stored else None

    async def search(self, query: TraceQuery) -> Page:
        """Search once, for trace ids."""
        wanted = self._filters(query)
        can_be_parted = query.until_ns - query.since_ns > self.shortest_ns
        limit = self._traces_at_once if can_be_parted else None
        with self._api.reading():
            found = await at_most(limit, self._trace_ids(query, wanted))
        return Page(found=found or {}, limit=self._traces_at_once, is_cut=found is None)

    async def _is_observed(self) -> bool:
        """Say whether this version lists observations, not traces."""
        if self._lists_observations is None:
            asked: Parameters = {"limit": 1, "fields": "core"}
            lists = await self._api.document(_OBSERVATIONS, asked) is not None
            if not lists and await self._api.document(_TRACES, asked) is None:
                raise ReadError(f"{self._api.where} has no {_TRACES}: is this Langfuse's address?")
            self._lists_observations = lists
        return self._lists_observations

    def _filters(self, query: TraceQuery) -> dict[str, str]:
        unknown = sorted(set(query.tags) - _TAGS)
        if query.traceql is not None or query.service is not None or unknown:
            raise ReadError(
                "Langfuse cannot search by service, TraceQL or custom tags: give --operation, or "
                f"--tag with {', '.join(sorted(_TAGS))}"
            )
        return {**query.tags, **({"name": query.operation} if query.operation is not None else {})}

    async def _trace_ids(self, query: TraceQuery, wanted: Mapping[str, str]) -> AsyncIterator[str]:
        since, until = _iso(query.since_ns), _iso(query.until_ns)
        if await self._is_observed():
            of_root = {} if "name" in wanted else {"isRootObservation": "true"}
            asked = {"fields": "core", "limit": "1000", "fromStartTime": since, "toStartTime": until}
            async for each in self._all(_OBSERVATIONS, {**asked, **of_root, **wanted}):
                if each.get("traceId"):
                    yield str(each["traceId"])
            return
        asked = {"fields": "core", "limit": "100", "fromTimestamp": since, "toTimestamp": until}
        async for each in self._all(_TRACES, {**asked, "orderBy": "timestamp.asc", **wanted}):
            yield str(each["id"])

    async def _stored(self, trace_id: str) -> _Stored | None:
        if not await self._is_observed():
            trace = await self._api.document(f"{_TRACES}/{quote(trace_id, safe='')}")
            if trace is None:
                return None
            return _Stored(trace, trace.get("observations") or [], trace.get("scores") or [])
        asked = {
            "traceId": trace_id,
            "limit": "1000",
            "fields": "core,basic,io,metadata,model,prompt",
            "expandMetadata": "attributes,resourceAttributes,scope",
        }
        observations = [each async for each in self._all(_OBSERVATIONS, asked)]
        if not observations:
            return None
        asked = {"traceId": trace_id, "limit": "100", "fields": "details,subject"}
        return _Stored({"id": trace_id}, observations, [each async for each in self._all(_SCORES, asked)])

    async def _all(self, path: str, parameters: Parameters) -> AsyncIterator[Json]:
        """Yield the items of all pages, which name the next by a cursor, or are numbered from 1."""
        asked, number = parameters, 1
        while True:
            page = await self._api.document(path, asked) or {}
            for each in page.get("data") or ():
                yield each
            meta, number = page.get("meta") or {}, number + 1
            if cursor := meta.get("cursor"):
                asked = {**parameters, "cursor": cursor}
            elif number <= int(meta.get("totalPages") or 0):
                asked = {**parameters, "page": number}
            else:
                return


class _Stored(NamedTuple):
    trace: Json
    observations: list[Json]
    scores: list[Json]


_OBSERVATIONS: Final = "/api/public/v2/observations"
_TRACES: Final = "/api/public/traces"
_SCORES: Final = "/api/public/v3/scores"


_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def _trace(stored: _Stored) -> Trace:
    spans = tuple(_spans(stored))
    return Trace.of(spans[0].trace_id, with_carriers(spans, _kept(stored)))


def _spans(stored: _Stored) -> Iterator[Span]:
    """Yield the observations as spans; with several roots, or none, the trace becomes a root span."""
    trace, observations = stored.trace, stored.observations
    known = {each["id"] for each in observations}
    roots = [each for each in observations if each.get("parentObservationId") not in known]
    whole = {
        semconv.LANGFUSE_TRACE_INPUT: _text(trace.get("input")),
        semconv.LANGFUSE_TRACE_OUTPUT: _text(trace.get("output")),
    }
    above = None if len(roots) == 1 else _above(trace, roots, whole)
    if above is not None:
        yield above
    for each in observations:
        is_root = each in roots
        parent = above.span_id if is_root and above else each.get("parentObservationId")
        yield _span(each, trace, parent, whole if is_root and above is None else {})


def _span(tree: Json, trace: Json, parent: str | None, more: Mapping[str, AttributeValue]) -> Span:
    metadata = _mapping(tree.get("metadata"))
    start_ns = _nanoseconds(tree["startTime"])
    trace_id, span_id = str(trace["id"]), str(tree["id"])
    sent = {key: _sent(key, value) for key, value in _mapping(metadata.get("attributes")).items()}
    told = {
        semconv.SESSION_ID: tree.get("sessionId") or trace.get("sessionId"),
        **_moved_values(tree, sent),
        **more,
    }
    resource = {key: _plain(value) for key, value in _mapping(metadata.get("resourceAttributes")).items()}
    return Span(
        trace_id=hex_id(trace_id, digits=32),
        span_id=hex_id(span_id, digits=16),
        parent_span_id=hex_id(parent, digits=16) if parent else None,
        name=tree.get("name") or "",
        start_ns=start_ns,
        end_ns=_nanoseconds(tree["endTime"]) if tree.get("endTime") else start_ns,
        attributes=sent | {key: value for key, value in told.items() if value is not None},
        status_code=StatusCode.ERROR if tree.get("level") == "ERROR" else StatusCode.UNSET,
        status_message=tree.get("statusMessage") or "",
        resource=Resource(attributes=resource | original_ids(trace_id, span_id)),
        scope=Scope(name=str(_mapping(metadata.get("scope")).get("name") or "")),
    )


_TAKEN_FROM: Final = (
    ("mlflow.", (semconv.MLFLOW_INPUTS, semconv.MLFLOW_OUTPUTS)),
    ("traceloop.", (semconv.TRACELOOP_INPUT, semconv.TRACELOOP_OUTPUT)),
    ("openinference.", (semconv.OI_INPUT_VALUE, semconv.OI_OUTPUT_VALUE)),
    ("gen_ai.", (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)),
)
"""Attributes from which Langfuse takes input and output of other tools' spans, in its order."""


def _moved_values(tree: Json, sent: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return the values that Langfuse moved out of a span's attributes, under their original convention."""
    said = (_text(tree.get("input")), _text(tree.get("output")))
    for prefix, keys in _TAKEN_FROM:
        if any(key.startswith(prefix) for key in sent):
            return dict(zip(keys, said, strict=True))
    return {
        semconv.LANGFUSE_OBSERVATION_TYPE: str(tree["type"]).lower(),
        **dict(zip((semconv.LANGFUSE_INPUT, semconv.LANGFUSE_OUTPUT), said, strict=True)),
        semconv.LANGFUSE_MODEL: tree.get("model") or tree.get("providedModelName"),
        semconv.LANGFUSE_PROMPT_VERSION: tree.get("promptVersion"),
    }


def _above(trace: Json, roots: list[Json], whole: Mapping[str, AttributeValue]) -> Span:
    """Return the trace as a span: in SDKs before OpenTelemetry, it was the call and had no observation."""
    starts = [_nanoseconds(each["startTime"]) for each in roots]
    ends = [_nanoseconds(each["endTime"]) for each in roots if each.get("endTime")]
    start_ns = _nanoseconds(trace["timestamp"]) if "timestamp" in trace else min(starts)
    trace_id = str(trace["id"])
    ids = original_ids(trace_id, _OF_TRACE) | {semconv.ORIGINAL_SPAN_ID: ""}
    attributes = {
        **whole,
        semconv.SESSION_ID: trace.get("sessionId"),
        semconv.LANGFUSE_OBSERVATION_TYPE: "span",
    }
    return Span(
        trace_id=hex_id(trace_id, digits=32),
        span_id=hex_id(_OF_TRACE + trace_id, digits=16),
        parent_span_id=None,
        name=trace.get("name") or "trace",
        start_ns=start_ns,
        end_ns=max([start_ns, *starts, *ends]),
        attributes={key: value for key, value in attributes.items() if value is not None},
        resource=Resource(attributes=ids),
    )


_OF_TRACE: Final = "the trace "


def _kept(stored: _Stored) -> Iterator[StoredScore]:
    for score in stored.scores:
        subject = score.get("subject") or {}
        on_observation = subject.get("id") if subject.get("kind") == "observation" else None
        observation = score.get("observationId") or on_observation
        original = observation or _OF_TRACE + str(stored.trace["id"])
        metadata, value = _mapping(score.get("metadata")), score.get("value")
        yield StoredScore(
            hex_id(str(original), digits=16),
            metadata,
            value if _is_number(score) else None,
            score.get("comment"),
        )


def _is_number(score: Json) -> bool:
    return bool(score.get("dataType", "NUMERIC") == "NUMERIC")


def _sent(key: str, value: object) -> AttributeValue:
    """Return an attribute in its original form: Langfuse stores values other than strings as JSON."""
    parsed = _parsed(value) if key.startswith(_OWN_KEYS) else value
    return _plain(parsed if isinstance(parsed, list | bool) else value)


_OWN_KEYS: Final = "ragtrace."


def _mapping(value: object) -> Mapping[str, Any]:
    parsed = _parsed(value)
    return parsed if isinstance(parsed, dict) else {}


def _parsed(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _plain(value: object) -> AttributeValue:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value if isinstance(value, str | bool | int | float) else _text(value)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _nanoseconds(moment: str) -> int:
    return (datetime.fromisoformat(moment) - _EPOCH) // _MILLISECOND * 1_000_000


def _iso(time_ns: int) -> str:
    """Format a time in milliseconds, Langfuse's resolution."""
    moment = _EPOCH + -(-time_ns // 1_000_000) * _MILLISECOND
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
