"""Phoenix's REST API: traces of a project by time, with the scores on their spans.

Phoenix does not store a span's resource, scope, links or kind. It stores times in microseconds and attributes
as a nested tree, from which the reader restores JSON values. Its projects play the role of services.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, product
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from ragtrace import semconv
from ragtrace.backends.http_api import HttpReader, Parameters, at_most
from ragtrace.backends.scores import StoredScore, hex_id, original_ids, with_carriers
from ragtrace.errors import ReadError, ReadUnavailable
from ragtrace.model import AttributeValue
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, StatusCode, Trace

Json = Mapping[str, Any]
ReadT = TypeVar("ReadT")

_SPANS_AT_ONCE: Final = 1_000
_SPAN_IDS_AT_ONCE: Final = 200
_ANNOTATIONS: Final = "span_annotations"


class PhoenixReader(HttpReader):
    """Read whole traces by id and by search from Phoenix (port 6006), with the scores on their spans."""

    back_end = "Phoenix"
    most_traces = 100
    """Their ids are in one URL of some kilobytes."""
    shortest_ns = 10**9

    def __init__(self, base_url: str, **options: Any) -> None:
        super().__init__(base_url, **options)
        self._known: tuple[_Project, ...] = ()

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if no project has it."""
        typed = trace_id.strip()
        for project in await self._projects():
            found = await self._traces(project, list({typed: None, typed.lower(): None}))
            if found:
                return next(iter(found.values()))
        return None

    async def search(self, query: TraceQuery) -> Page:
        """Search once, for whole traces; without a service, search every project.

        A full page is cut only if the time range can be split; for the shortest range, all ids are returned.
        """
        if query.traceql is not None:
            raise ReadError("Phoenix has no TraceQL: give a project (--service), an operation or tags")
        chosen = [each for each in await self._projects() if query.service in (None, each.name)]
        return Page.joined([await self._search(project, query) for project in chosen])

    async def services(self) -> tuple[str, ...]:
        """Return the names of the projects, which play the role of services."""
        return tuple(project.name for project in await self._projects())

    async def _projects(self) -> tuple[_Project, ...]:
        if not self._known:
            self._known = tuple([each async for each in self._all("/v1/projects", {}, _project)])
        return self._known

    async def _search(self, project: _Project, query: TraceQuery) -> Page:
        can_be_parted = query.until_ns - query.since_ns > self.shortest_ns
        limit = self._traces_at_once
        found = await at_most(limit if can_be_parted else None, self._trace_ids(project, query))
        if found is None:
            return Page(found={}, limit=limit, is_cut=True)
        if len(found) <= limit:
            found |= await self._readable(project, list(found))
        return Page(found=found, limit=limit, is_cut=False)

    async def _readable(self, project: _Project, trace_ids: Sequence[str]) -> dict[str, Trace]:
        """Return the traces, or nothing if one is unreadable, so that they are then read one by one."""
        try:
            return await self._traces(project, trace_ids)
        except ReadUnavailable:
            raise
        except ReadError:
            return {}

    async def _trace_ids(self, project: _Project, query: TraceQuery) -> AsyncIterator[str]:
        """Yield the ids of traces that started in the query's time, or that have a matching span."""
        asked: dict[str, str | int] = {
            "start_time": _iso(query.since_ns),
            "end_time": _iso(query.until_ns),
            "order": "asc",
        }
        if query.operation is None and not query.tags:
            limit = min(self._traces_at_once + 1, _SPANS_AT_ONCE)
            async for trace_id in self._all(project.path("traces"), {**asked, "limit": limit}, _trace_id):
                yield trace_id
            return
        if query.operation is not None:
            asked["name"] = query.operation
        for attributes in product(*(_spellings(key, value) for key, value in query.tags.items())):
            parameters = {**asked, "attribute": attributes, "sort": "start_time", "limit": _SPANS_AT_ONCE}
            async for trace_id in self._all(project.path("spans"), parameters, _trace_id_of_span):
                yield trace_id

    async def _traces(self, project: _Project, trace_ids: Sequence[str]) -> dict[str, Trace]:
        """Return whole traces by Phoenix's trace id."""
        if not trace_ids:
            return {}
        asked: Parameters = {"trace_id": trace_ids, "limit": _SPANS_AT_ONCE}
        read = partial(_span, project=project.name)
        spans: dict[str, list[Span]] = {}
        async for trace_id, span in self._all(project.path("spans"), asked, read):
            if trace_id in trace_ids:  # older versions ignore the filter and return every span
                spans.setdefault(trace_id, []).append(span)
        kept = [score async for score in self._scores(project, chain.from_iterable(spans.values()))]
        return {
            trace_id: Trace.of(members[0].trace_id, with_carriers(members, kept))
            for trace_id, members in spans.items()
        }

    async def _scores(self, project: _Project, spans: Iterable[Span]) -> AsyncIterator[StoredScore]:
        ids = {str(each.resource.attributes.get(semconv.ORIGINAL_SPAN_ID, each.span_id)) for each in spans}
        for batch in _batches(sorted(ids), _SPAN_IDS_AT_ONCE):
            asked: Parameters = {"span_ids": batch, "limit": _SPANS_AT_ONCE}
            async for score in self._all(project.path(_ANNOTATIONS), asked, _kept):
                yield score

    async def _all(
        self, path: str, parameters: Parameters, read: Callable[[Json], ReadT]
    ) -> AsyncIterator[ReadT]:
        asked = parameters
        while True:
            page = await self._api.document(path, asked)
            if page is None:
                if path.endswith(_ANNOTATIONS):  # the spans were deleted
                    return
                raise ReadError(
                    f"{self._api.where} has no {path}: is this its address, and a version that lists traces? "
                    "A project may also have been deleted"
                )
            if not isinstance(page.get("data"), list):
                raise ReadError(f"{self._api.where} sent JSON of an unexpected form")
            with self._api.reading():
                items = [read(each) for each in page["data"]]
            for item in items:
                yield item
            if not page.get("next_cursor"):
                return
            asked = {**parameters, "cursor": page["next_cursor"]}


class _Project(NamedTuple):
    id: str
    name: str

    def path(self, what: str) -> str:
        return f"/v1/projects/{quote(self.id, safe='')}/{what}"


def _project(tree: Json) -> _Project:
    return _Project(str(tree["id"]), str(tree["name"]))


def _trace_id(trace: Json) -> str:
    return str(trace["trace_id"])


def _trace_id_of_span(span: Json) -> str:
    return _trace_id(span["context"])


_CODES: Final = {code.name: code for code in StatusCode}
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TAKEN_APART: Final = re.compile(
    r"(metadata|llm\.prompt_template\.variables|tool\.parameters"
    r"|.+?\.(?:document|evaluation|annotation)\.metadata"
    r"|gen_ai\.(?:input\.messages|output\.messages|system_instructions|retrieval\.documents))\.(.+)"
)
"""Attributes that are JSON by their conventions. Phoenix stores their parts."""


def _span(tree: Json, project: str) -> tuple[str, Span]:
    trace_id, span_id = str(tree["context"]["trace_id"]), str(tree["context"]["span_id"])
    parent, kind = tree.get("parent_id"), tree.get("span_kind")
    attributes = _attributes(tree.get("attributes") or {})
    if kind and kind != "UNKNOWN":
        attributes[semconv.OI_KIND] = kind
    span = Span(
        trace_id=hex_id(trace_id, digits=32),
        span_id=hex_id(span_id, digits=16),
        parent_span_id=hex_id(parent, digits=16) if parent else None,
        name=tree["name"],
        start_ns=_nanoseconds(tree["start_time"]),
        end_ns=_nanoseconds(tree["end_time"]),
        attributes=attributes,
        events=tuple(map(_event, tree.get("events") or ())),
        status_code=_CODES.get(str(tree.get("status_code")), StatusCode.UNSET),
        status_message=tree.get("status_message") or "",
        resource=Resource(attributes={semconv.OI_PROJECT: project, **original_ids(trace_id, span_id)}),
        scope=Scope(name=semconv.SCOPE_EVALUATION) if _is_carrier(attributes) else Scope(),
    )
    return trace_id, span


def _event(tree: Json) -> SpanEvent:
    attributes = {key: _value(value) for key, value in (tree.get("attributes") or {}).items()}
    return SpanEvent(name=tree["name"], time_ns=_nanoseconds(tree["timestamp"]), attributes=attributes)


def _is_carrier(attributes: Mapping[str, AttributeValue]) -> bool:
    """Return whether the span is a carrier. Its scope would show it, but Phoenix does not store scopes."""
    return semconv.SCHEMA in attributes and attributes.get(semconv.OI_KIND) == semconv.OI_EVALUATOR


def _kept(tree: Json) -> StoredScore:
    result = tree.get("result") or {}
    return StoredScore(
        hex_id(str(tree["span_id"]), digits=16),
        tree.get("metadata") or {},
        result.get("score"),
        result.get("explanation"),
    )


def _attributes(stored: Json) -> dict[str, AttributeValue]:
    """Return attributes in their original form, as far as it is known."""
    whole: dict[str, AttributeValue] = {}
    parts: dict[str, dict[str, object]] = {}
    for key, value in stored.items():
        if found := _TAKEN_APART.fullmatch(key):
            parts.setdefault(found[1], {})[found[2]] = value
        else:
            whole[key] = _value(value)
    return whole | {key: json.dumps(_nested(each), ensure_ascii=False) for key, each in parts.items()}


def _nested(parts: Mapping[str, object]) -> object:
    """Rebuild the value from paths such as ``0.parts.0.content``."""
    below: dict[str, dict[str, object]] = {}
    tree: dict[str, object] = {}
    for path, value in parts.items():
        name, dot, rest = path.partition(".")
        if dot:
            below.setdefault(name, {})[rest] = value
        else:
            tree[name] = value
    tree = {**{name: _nested(each) for name, each in below.items()}, **tree}
    is_list = tree and all(name.isdigit() for name in tree)
    return [tree[name] for name in sorted(tree, key=int)] if is_list else tree


def _value(node: object) -> AttributeValue:
    if isinstance(node, list):
        return tuple(map(_value, node))
    if isinstance(node, dict):
        return {str(key): _value(value) for key, value in node.items()}
    return node if isinstance(node, str | bool | int | float) else None


def _spellings(key: str, value: str) -> tuple[str, ...]:
    """Return the forms of a tag in Phoenix: a string, and a number or boolean if it looks like one."""
    as_text = f"{key}:{json.dumps(value)}"
    try:
        is_text = not isinstance(json.loads(value), bool | int | float)
    except ValueError:
        is_text = True
    return (as_text,) if is_text else (as_text, f"{key}:{value}")


def _nanoseconds(moment: str) -> int:
    return (datetime.fromisoformat(moment) - _EPOCH) // _MICROSECOND * 1_000


def _iso(time_ns: int) -> str:
    """Format a time in microseconds, Phoenix's resolution."""
    return (_EPOCH + -(-time_ns // 1_000) * _MICROSECOND).isoformat()


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[first : first + size] for first in range(0, len(items), size))
