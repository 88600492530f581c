"""Find the RAG calls in the span tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ragtrace import semconv
from ragtrace.traces.extract._mapping import AttributeMapping
from ragtrace.traces.extract._span_reader import Role, SpanReading, merge
from ragtrace.traces.extract._tools import RETRIEVAL_TOOLS
from ragtrace.traces.extract.conventions import OWN, read_span
from ragtrace.traces.lineage import Lineage
from ragtrace.traces.trace import Span, Trace

T = TypeVar("T")

_RETRIEVALS = (Role.RETRIEVAL, Role.RERANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One RAG call: its root span and the readings of its spans, in order of start."""

    root: Span | None
    """``None`` if the steps have no known common ancestor."""
    members: tuple[SpanReading, ...]

    @property
    def own(self) -> SpanReading | None:
        """The reading of the call's own span, if a convention reads it."""
        root_id = self.root.span_id if self.root else None
        found = (each for each in self.members if each.span.span_id == root_id and each.role is Role.CALL)
        return next(found, None)

    def of(self, *roles: Role) -> tuple[SpanReading, ...]:
        """Return the members with one of the roles."""
        return tuple(member for member in self.members if member.role in roles)


class SpanTree:
    """The span tree. A missing parent or a cycle ends a path of ancestors."""

    def __init__(self, trace: Trace) -> None:
        self._spans = {span.span_id: span for span in trace.spans}
        self._parents = {
            span.span_id: span.parent_span_id for span in trace.spans if span.parent_span_id in self._spans
        }
        self._lineage = Lineage(self._parents)
        self._found_above: dict[Callable[[Span], Any], dict[str, Any]] = {}

    def find(self, span_id: str) -> Span | None:
        """Return the span with this id, or ``None``."""
        return self._spans.get(span_id)

    def nearest_above(self, of: Iterable[str], ids: Collection[str]) -> Mapping[str, str]:
        """Map each span in ``of`` to its nearest ancestor in ``ids``, if it has one."""
        return self._lineage.nearest_above(of, ids)

    def all_above(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of the spans above any of these."""
        return self._lineage.all_above(ids)

    def root_of(self, span: Span) -> Span:
        """Return the topmost known ancestor, or the span itself."""
        return self._spans[self._lineage.top(span.span_id)]

    def first_above(self, span: Span, read: Callable[[Span], T | None]) -> T | None:
        """Return the value of the nearest ancestor that has one. Each span is read once."""
        known: dict[str, T | None] = self._found_above.setdefault(read, {})
        walked: list[str] = []
        found, above = None, self._parents.get(span.span_id)
        while above is not None and above not in known and found is None:
            known[above] = None  # each path is walked once, cycles too
            walked.append(above)
            found = read(self._spans[above])
            above = self._parents.get(above)
        if found is None and above is not None:
            found = known[above]
        known.update(dict.fromkeys(walked, found))
        return found

    def common_ancestor(self, spans: Sequence[Span]) -> Span | None:
        """Return the lowest common ancestor; it may be one of the spans."""
        shared = tuple(self._spans[span_id] for span_id in self._lineage.line(spans[0].span_id))
        position = {span.span_id: index for index, span in enumerate(shared)}
        lowest, joining = 0, set(position)
        for span in spans[1:]:
            walked: dict[str, None] = {}
            span_id: str | None = span.span_id
            while span_id is not None and span_id not in joining and span_id not in walked:
                walked[span_id] = None
                span_id = self._parents.get(span_id)
            if span_id is None or span_id in walked:
                return None
            joining.update(walked)
            lowest = max(lowest, position.get(span_id, 0))  # paths that join further down are already counted
        return shared[lowest]


def is_evaluator(span: Span) -> bool:
    """Return whether the span belongs to an evaluator, ragtrace or another: such spans are never judged."""
    attributes = span.attributes
    return (
        span.scope.name == semconv.SCOPE_EVALUATION
        or attributes.get(semconv.OI_KIND) == semconv.OI_EVALUATOR
        or attributes.get(semconv.LANGFUSE_OBSERVATION_TYPE) == semconv.LANGFUSE_EVALUATOR
        or attributes.get(semconv.MLFLOW_TYPE) == semconv.MLFLOW_EVALUATOR
        or attributes.get(semconv.OPERATION_NAME) == semconv.OP_EVALUATION
        or any(key.startswith(semconv.EVAL_PREFIX) for key in attributes)
    )


def read_spans(spans: Iterable[Span], mapping: AttributeMapping | None = None) -> tuple[SpanReading, ...]:
    """Read every span with a role in the mapping or a convention."""
    tools = (mapping.tools if mapping else None) or RETRIEVAL_TOOLS
    merged = (reading for span in spans if (reading := _read(span, mapping)) is not None)
    return tuple(_with_tools(reading, tools) for reading in merged if reading.role is not None)


def _with_tools(reading: SpanReading, tools: re.Pattern[str]) -> SpanReading:
    """Treat a retrieval tool as a retrieval, and drop the results of other tools."""
    if reading.role is Role.TOOL and tools.search(reading.tool or ""):
        return replace(reading, role=Role.RETRIEVAL)
    if not reading.handed:
        return reading
    handed = (each for each in reading.handed if each.tool is None or tools.search(each.tool))
    return replace(reading, handed=tuple(handed))


def _read(span: Span, mapping: AttributeMapping | None) -> SpanReading | None:
    by_convention = read_span(span)
    mapped = mapping.read(span) if mapping else None
    if mapped is None or mapped.role is None:
        return by_convention
    if by_convention is None:
        return mapped
    has_role = by_convention.role not in (None, Role.STEP)
    return merge([replace(mapped, role=by_convention.role if has_role else mapped.role), by_convention])


def find_calls(tree: SpanTree, readings: Sequence[SpanReading]) -> tuple[Call, ...]:
    """Group readings into RAG calls.

    A span that ragtrace marks as a RAG call is one. Otherwise the topmost workflow, agent or chain is one, or
    the lowest common ancestor of the remaining retrievals and generations. If a trace has only generations,
    they form a call without retrieval.
    """
    roots = _roots(tree, readings)
    members = _members(tree, readings, roots)
    calls = [Call(root=root, members=tuple(members[span_id])) for span_id, root in roots.items()]
    free = tuple(members[None])
    if len(calls) == 1 and not calls[0].of(*_RETRIEVALS):
        # an agent that received the documents of a sibling span
        adopted = tuple(reading for reading in free if reading.role in _RETRIEVALS)
        calls = [Call(root=calls[0].root, members=_ordered((*calls[0].members, *adopted)))]
        free = tuple(reading for reading in free if reading.role not in _RETRIEVALS)
    return (*calls, *_rootless(tree, free, is_alone=not calls))


def _roots(tree: SpanTree, readings: Sequence[SpanReading]) -> Mapping[str, Span]:
    """Choose the root spans of the calls: ids in order of start."""
    all_roots = {r.span.span_id: r for r in readings if r.role is Role.CALL}
    all_marked = {span_id for span_id, r in all_roots.items() if r.convention == OWN.name}
    marked = all_marked - tree.nearest_above(all_marked, all_marked).keys()
    related = {*marked, *tree.all_above(marked), *tree.nearest_above(all_roots, marked)}
    others = all_roots.keys() - related
    topmost = others - tree.nearest_above(others, others).keys()
    return {span_id: r.span for span_id, r in all_roots.items() if span_id in marked or span_id in topmost}


def _members(
    tree: SpanTree, readings: Sequence[SpanReading], roots: Mapping[str, Span]
) -> Mapping[str | None, Sequence[SpanReading]]:
    """Group the readings by call; ``None`` has the readings outside any call."""
    nearest = tree.nearest_above([reading.span.span_id for reading in readings], roots.keys())
    members: dict[str | None, list[SpanReading]] = {span_id: [] for span_id in (*roots, None)}
    for reading in readings:
        span_id = reading.span.span_id
        members[span_id if span_id in roots else nearest.get(span_id)].append(reading)
    return members


def _rootless(tree: SpanTree, free: Sequence[SpanReading], *, is_alone: bool) -> tuple[Call, ...]:
    steps = [reading for reading in free if reading.role in (*_RETRIEVALS, Role.GENERATION, Role.TOOL)]
    roles = {reading.role for reading in steps}
    if Role.GENERATION not in roles or not (is_alone or roles.intersection(_RETRIEVALS)):
        return ()
    root = tree.common_ancestor([reading.span for reading in steps])
    return (Call(root=root, members=tuple(steps)),)


def _ordered(readings: Iterable[SpanReading]) -> tuple[SpanReading, ...]:
    return tuple(sorted(readings, key=lambda reading: (reading.span.start_ns, reading.span.span_id)))
