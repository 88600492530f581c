"""Find the RAG calls in the tree of spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ragtrace import semconv
from ragtrace.traces.extract.conventions import CONVENTIONS, own
from ragtrace.traces.extract.reading import Reading, Role, merge
from ragtrace.traces.trace import Span, Trace

__all__ = ["Call", "SpanTree", "find_calls", "is_evaluator", "read_spans"]

_RETRIEVALS = (Role.RETRIEVAL, Role.RERANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One RAG call: the span it happened under, and what the spans of it say, in order of start."""

    root: Span | None
    """``None`` where the steps have no common ancestor among the spans that were seen."""
    members: tuple[Reading, ...]

    @property
    def own(self) -> Reading | None:
        """What the call's own span says, if a convention knows it."""
        root_id = self.root.span_id if self.root else None
        found = (each for each in self.members if each.span.span_id == root_id and each.role is Role.CALL)
        return next(found, None)

    def of(self, *roles: Role) -> tuple[Reading, ...]:
        """Return the members with one of the roles."""
        return tuple(member for member in self.members if member.role in roles)


class SpanTree:
    """Who hangs under whom. Parents that were not seen, and cycles, end a line of ancestors."""

    def __init__(self, trace: Trace) -> None:
        self._spans = {span.span_id: span for span in trace.spans}

    def ancestors(self, span: Span) -> tuple[Span, ...]:
        """Return the ancestors that were seen, the nearest first."""
        line: dict[str, Span] = {}
        parent = self._spans.get(span.parent_span_id or "")
        while parent is not None and parent.span_id not in line and parent.span_id != span.span_id:
            line[parent.span_id] = parent
            parent = self._spans.get(parent.parent_span_id or "")
        return tuple(line.values())

    def has_ancestor_in(self, span: Span, ids: Iterable[str]) -> bool:
        """Tell whether one of these spans is above the span."""
        wanted = set(ids)
        return bool(wanted) and any(ancestor.span_id in wanted for ancestor in self.ancestors(span))

    def root_of(self, span: Span) -> Span:
        """Return the topmost ancestor that was seen, or the span itself."""
        return (span, *self.ancestors(span))[-1]

    def common_ancestor(self, spans: Sequence[Span]) -> Span | None:
        """Return the lowest span that is, or is above, all of these."""
        lines = [(span, *self.ancestors(span)) for span in spans]
        shared = set.intersection(*({span.span_id for span in line} for line in lines))
        return next((span for span in lines[0] if span.span_id in shared), None)


def is_evaluator(span: Span) -> bool:
    """Tell whether the span belongs to an evaluator, ours or another's: such spans are never judged."""
    attributes = span.attributes
    return (
        span.scope.name == semconv.SCOPE_EVALUATION
        or attributes.get(semconv.OI_KIND) == semconv.OI_EVALUATOR
        or attributes.get(semconv.LANGFUSE_OBSERVATION_TYPE) == "evaluator"
        or attributes.get(semconv.OPERATION_NAME) == semconv.OP_EVALUATION
        or any(key.startswith(semconv.EVAL_PREFIX) for key in attributes)
    )


def read_spans(spans: Iterable[Span]) -> tuple[Reading, ...]:
    """Read every span that a convention knows a role for."""
    merged = (merge([read(span) for read in CONVENTIONS]) for span in spans)
    return tuple(reading for reading in merged if reading.role is not None)


def find_calls(tree: SpanTree, readings: Sequence[Reading]) -> tuple[Call, ...]:
    """Group readings into RAG calls.

    A span marked as a RAG call by ragtrace is one. Else the topmost workflow, agent or chain is; else the
    lowest common ancestor of the retrievals and generations that are under none.
    """
    roots = _roots(tree, readings)
    owners = {reading.span.span_id: _owner(tree, reading.span, roots) for reading in readings}
    calls = [
        Call(root=root, members=tuple(r for r in readings if owners[r.span.span_id] == span_id))
        for span_id, root in roots.items()
    ]
    free = tuple(reading for reading in readings if owners[reading.span.span_id] is None)
    if len(calls) == 1 and not calls[0].of(*_RETRIEVALS):
        # an agent that was handed what a span beside it retrieved
        adopted = tuple(reading for reading in free if reading.role in _RETRIEVALS)
        calls = [Call(root=calls[0].root, members=_ordered((*calls[0].members, *adopted)))]
        free = tuple(reading for reading in free if reading.role not in _RETRIEVALS)
    return (*calls, *_rootless(tree, free))


def _roots(tree: SpanTree, readings: Sequence[Reading]) -> Mapping[str, Span]:
    """Choose the spans of the calls: ids in order of start."""
    all_roots = {r.span.span_id: r for r in readings if r.role is Role.CALL}
    marked = {span_id: r.span for span_id, r in all_roots.items() if r.convention == own.NAME}
    marked = {span_id: span for span_id, span in marked.items() if not tree.has_ancestor_in(span, marked)}
    above_marked = {ancestor.span_id for span in marked.values() for ancestor in tree.ancestors(span)}
    others = {
        span_id: r.span
        for span_id, r in all_roots.items()
        if span_id not in above_marked and span_id not in marked and not tree.has_ancestor_in(r.span, marked)
    }
    topmost = {span_id: span for span_id, span in others.items() if not tree.has_ancestor_in(span, others)}
    return {r.span.span_id: r.span for r in readings if r.span.span_id in marked or r.span.span_id in topmost}


def _owner(tree: SpanTree, span: Span, roots: Mapping[str, Span]) -> str | None:
    line = (span, *tree.ancestors(span))
    return next((each.span_id for each in line if each.span_id in roots), None)


def _rootless(tree: SpanTree, free: Sequence[Reading]) -> tuple[Call, ...]:
    steps = [reading for reading in free if reading.role in (*_RETRIEVALS, Role.GENERATION)]
    roles = {reading.role for reading in steps}
    if Role.GENERATION not in roles or not roles.intersection(_RETRIEVALS):
        return ()
    root = tree.common_ancestor([reading.span for reading in steps])
    return (Call(root=root, members=tuple(steps)),)


def _ordered(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    return tuple(sorted(readings, key=lambda reading: (reading.span.start_ns, reading.span.span_id)))
