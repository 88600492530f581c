"""The RAG calls of a trace, and the user's rules for extraction, whose mapping overrides every convention."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from ragtrace import semconv
from ragtrace.traces.extract._content import FoundValue, parse_loosely, snake
from ragtrace.traces.extract._payload import retrieves
from ragtrace.traces.extract._span_reader import Role, SpanReading, T, end_of, merge
from ragtrace.traces.extract.convention import AttributePath, Convention, Reader
from ragtrace.traces.extract.conventions import OWN, read_span
from ragtrace.traces.trace import Lineage, Span, SpanKind, Trace, flat

NAME: Final = "mapping"


@dataclass(frozen=True, kw_only=True)
class AttributeMapping:
    """The user's attributes for the parts of a RAG call; they override every convention."""

    question: tuple[AttributePath, ...] = ()
    answer: tuple[AttributePath, ...] = ()
    context: tuple[AttributePath, ...] = ()
    reference: tuple[AttributePath, ...] = ()
    session: tuple[AttributePath, ...] = ()
    tools: re.Pattern[str] | None = None
    """Name pattern of tools that return context; ``None`` uses ragtrace's own."""

    @cached_property
    def convention(self) -> Convention:
        """The same as a table."""
        return Convention(
            name=NAME,
            question=tuple(each.text for each in self.question),
            answer=tuple(each.text for each in self.answer),
            documents=tuple(each.text for each in self.context),
            reference=tuple(each.text for each in self.reference),
            verbatim=True,
            of_any_role=True,
        )

    def session_of(self, span: Span) -> str | None:
        """Return the span's session, or ``None``."""
        value = next((found for path in self.session if (found := path.find_on(span)) is not None), None)
        return str(value) if isinstance(value, str | int) and value != "" else None

    def read(self, span: Span) -> SpanReading:
        """Read the mapped attributes. Without a convention, the parts imply the role."""
        found = Reader(self.convention, span).read(None)
        if found.question or found.answer:
            return found._replace(role=Role.CALL)
        if found.documents:
            return found._replace(role=Role.RETRIEVAL)
        return found._replace(role=Role.STEP) if found.reference else found


def is_mapped(found: FoundValue[T] | None) -> bool:
    """Return whether the value comes from the mapping."""
    return found is not None and found.at.convention == NAME


class ContextFrom(StrEnum):
    """The source of the context of a RAG call without a retrieval."""

    SPANS = "spans"
    """No source: without a retrieval span there is no context."""
    PROMPT = "prompt"
    """All of the model's prompt except the question and instructions."""
    AUTO = "auto"
    """Marked passages of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractRules:
    """Rules for reading RAG calls from spans."""

    mapping: AttributeMapping | None = None
    """The user's own attributes; they override the conventions."""
    context: ContextFrom = ContextFrom.AUTO
    earlier_turns: int = 3
    """How many earlier turns of the conversation in a prompt are read; 0 for none."""


_RETRIEVALS = (Role.RETRIEVAL, Role.RERANK)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One RAG call: its root span and the readings of its spans, in order of start."""

    root: Span | None
    """``None`` if the steps have no known common ancestor."""
    members: tuple[SpanReading, ...]

    @cached_property
    def own(self) -> SpanReading | None:
        """The reading of the call's own span, if a convention reads it."""
        root_id = self.root.span_id if self.root else None
        found = (each for each in self.members if each.span.span_id == root_id and each.role is Role.CALL)
        return next(found, None)

    def of(self, *roles: Role) -> tuple[SpanReading, ...]:
        """Return the members with one of the roles."""
        found = self._by_roles.get(roles)
        if found is None:
            found = self._by_roles[roles] = tuple(each for each in self.members if each.role in roles)
        return found

    @cached_property
    def _by_roles(self) -> dict[tuple[Role, ...], tuple[SpanReading, ...]]:
        return {}


class SpanTree:
    """The span tree: of parents, else of links. A missing parent or a cycle ends a path of ancestors."""

    def __init__(self, trace: Trace) -> None:
        self._spans = {span.span_id: span for span in trace.spans}
        self._parents = {
            span.span_id: above for span in trace.spans if (above := self._above(span)) is not None
        }
        self._lineage = Lineage(self._parents)
        self.cut_short = {span.span_id: how for span in trace.spans if (how := end_of(span)) is not None}
        """How the spans ended that did not come to their end."""
        self.last_start_ns = max((span.start_ns for span in trace.spans), default=0)
        self._found_above: dict[Callable[[Span], Any], dict[str, Any]] = {}

    def _above(self, span: Span) -> str | None:
        """Return the parent; of a span without one, such as a queue's consumer, the span it links to."""
        if span.parent_span_id in self._spans:
            return span.parent_span_id
        linked = (link.span_id for link in span.links if link.trace_id == span.trace_id)
        return next((each for each in linked if each in self._spans and each != span.span_id), None)

    def find(self, span_id: str) -> Span | None:
        """Return the span with this id, or ``None``."""
        return self._spans.get(span_id)

    def nearest_above(self, of: Iterable[str], ids: Collection[str]) -> Mapping[str, str]:
        """Map each span in ``of`` to its nearest ancestor in ``ids``, if it has one."""
        return self._lineage.nearest_above(of, ids)

    def grouped(
        self, readings: Sequence[SpanReading], ids: Collection[str]
    ) -> Mapping[str | None, Sequence[SpanReading]]:
        """Group readings by the one of these spans that they are or are below; ``None`` has the others."""
        groups: dict[str | None, list[SpanReading]] = {span_id: [] for span_id in (*ids, None)}
        nearest = self.nearest_above([each.span.span_id for each in readings], set(ids))
        for each in readings:
            span_id = each.span.span_id
            groups[span_id if span_id in groups else nearest.get(span_id)].append(each)
        return groups

    def all_above(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of the spans above any of these."""
        return self._lineage.all_above(ids)

    def line(self, span: Span) -> Iterator[Span]:
        """Yield the span and those above it, the nearest first."""
        return (self._spans[each] for each in self._lineage.line(span.span_id))

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


_SPANS_OVER_A_WIRE: Final = (SpanKind.SERVER, SpanKind.CONSUMER)


def without_skew(trace: Trace) -> Trace:
    """Move the spans of a service whose clock differs into the spans that called them.

    The tree tells what happened when: a request is served while it is made. Only times that cannot be are
    changed, and with a span all below it.
    """
    spans = {span.span_id: span for span in trace.spans}
    shifts: dict[str, int] = {}
    for span in trace.spans:
        line: list[Span] = []
        each: Span | None = span
        while each is not None and each.span_id not in shifts:
            shifts[each.span_id] = 0  # a cycle ends here
            line.append(each)
            each = spans.get(each.parent_span_id or "")
        for below in reversed(line):
            parent = spans.get(below.parent_span_id or "")
            shift = shifts[parent.span_id] if parent else 0
            # another process may have written it, with a clock of its own
            if parent is not None and (
                below.kind in _SPANS_OVER_A_WIRE or parent.resource.attributes != below.resource.attributes
            ):
                shift += _misplaced(parent, below)
            shifts[below.span_id] = shift
    if not any(shifts.values()):
        return trace
    moved = (
        replace(span, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift) if shift else span
        for span in trace.spans
        for shift in (shifts[span.span_id],)
    )
    return Trace.of(trace.trace_id, moved)


def _misplaced(parent: Span, span: Span) -> int:
    """Return by how much a span has to move to begin while its parent runs."""
    if span.kind is SpanKind.CONSUMER or parent.start_ns <= span.start_ns <= parent.end_ns:
        return 0
    spare = (parent.end_ns - parent.start_ns) - (span.end_ns - span.start_ns)
    return parent.start_ns + max(0, spare) // 2 - span.start_ns


def is_evaluator(span: Span) -> bool:
    """Return whether the span belongs to an evaluator, ragtrace or another: such spans are never judged."""
    attributes = span.attributes
    return (
        span.scope.name == semconv.SCOPE_EVALUATION
        or attributes.get(semconv.OI_KIND) == semconv.OI_EVALUATOR
        or attributes.get(semconv.LANGFUSE_OBSERVATION_TYPE) == semconv.LANGFUSE_EVALUATOR
        or attributes.get(semconv.MLFLOW_TYPE) == semconv.MLFLOW_EVALUATOR
        or attributes.get(semconv.OPERATION_NAME) == semconv.OP_EVALUATION
        or f"\n{semconv.EVAL_PREFIX}" in "\n".join(["", *attributes])
    )


_UNDER_TEST: Final = re.compile(
    r"^(actual_?|model_?|generated_?|predicted_?)?(answer|response|output|prediction|completion|generation)s?$",
    re.IGNORECASE,
)
_ASKED: Final = re.compile(r"^(user_?)?(question|query|input|prompt)$", re.IGNORECASE)
GIVEN: Final = re.compile(r"context|documents?$|^sources?$|^passages?$|^facts?$|statements?$", re.IGNORECASE)


def judges_an_answer(reading: SpanReading) -> bool:
    """Return whether a call was given an answer with its question and its context: it evaluates them."""
    is_call = reading.role is Role.CALL
    return reading.role is Role.EVALUATOR or (is_call and under_test(reading) is not None)


def under_test(reading: SpanReading) -> str | None:
    """Return the answer that a call was given together with its question and its context."""
    told = parse_loosely(reading.told)
    if not isinstance(told, dict):
        return None
    for each in (told, told.get("data"), told.get("inputs"), told.get("sample")):
        if not isinstance(each, dict):
            continue
        keys = {snake(key): value for key, value in each.items() if value and isinstance(value, str | tuple)}
        answer = next((value for key, value in keys.items() if _UNDER_TEST.match(key)), None)
        if answer and any(map(_ASKED.match, keys)) and any(map(GIVEN.search, keys)):
            return flat(answer) if isinstance(answer, str) else ""
    return None


def read_spans(spans: Iterable[Span], mapping: AttributeMapping | None = None) -> tuple[SpanReading, ...]:
    """Read every span with a role in the mapping or a convention."""
    tools = mapping.tools if mapping else None
    merged = (reading for span in spans if (reading := _read(span, mapping)) is not None)
    return tuple(_with_tools(reading, tools) for reading in merged if reading.role is not None)


def _with_tools(reading: SpanReading, tools: re.Pattern[str] | None) -> SpanReading:
    """Treat a retrieval tool as a retrieval, and drop the results of other tools."""
    if reading.role is Role.TOOL and retrieves(reading.tool or "", reading.documents, tools):
        return reading._replace(role=Role.RETRIEVAL)
    if reading.role is Role.CALL and _PREPARES.match(reading.span.name):
        return reading._replace(role=Role.STEP)
    if not reading.handed:
        return reading
    handed = (
        each for each in reading.handed if each.tool is None or retrieves(each.tool, each.documents, tools)
    )
    return reading._replace(handed=tuple(handed))


_PREPARES: Final = re.compile(r"\w*(Splitter|NodeParser|Embedding|Embedder|IngestionPipeline)\b")
"""The names of what prepares documents."""


def _read(span: Span, mapping: AttributeMapping | None) -> SpanReading | None:
    by_convention = read_span(span)
    mapped = mapping.read(span) if mapping else None
    if mapped is None or mapped.role is None:
        return by_convention
    if by_convention is None:
        return mapped
    has_role = by_convention.role not in (None, Role.STEP)
    return merge([mapped._replace(role=by_convention.role if has_role else mapped.role), by_convention])


def find_calls(tree: SpanTree, readings: Sequence[SpanReading]) -> tuple[Call, ...]:
    """Group readings into RAG calls.

    A span that ragtrace marks as a RAG call is one. Otherwise the topmost workflow, agent or chain is one, or
    the lowest common ancestor of the remaining retrievals and generations. If a trace has only generations,
    they form a call without retrieval.
    """
    roots = _roots(tree, readings)
    grouped = tree.grouped(readings, roots)
    calls = [Call(root=root, members=tuple(grouped[span_id])) for span_id, root in roots.items()]
    free = tuple(grouped[None])
    if len(calls) == 1:
        # an agent that received the documents of a sibling span; a stream read when its query has ended
        (call,) = calls
        wanted = [] if call.of(*_RETRIEVALS) else [*_RETRIEVALS]
        if not call.of(Role.GENERATION) and not (call.own and call.own.answer):
            wanted.append(Role.GENERATION)
        adopted = tuple(reading for reading in free if reading.role in wanted)
        members = sorted((*call.members, *adopted), key=lambda each: (each.span.start_ns, each.span.span_id))
        calls = [Call(root=call.root, members=tuple(members))]
        free = tuple(reading for reading in free if reading.role not in wanted)
    every = (*calls, *_rootless(tree, free, is_alone=not calls))
    return tuple(part for call in every for part in _parts(call, tree))


# -- many calls below one root

_MOST_PARTS: Final = 1_000
_DEEPEST: Final = 6


def _parts(call: Call, tree: SpanTree, depth: int = 0) -> tuple[Call, ...]:
    """Divide what only surrounds many calls: a conversation, a batch, an evaluation script.

    Each call inside with a question, a retrieval and an answer of its own is one, unless the root itself
    answers from them: then they are its steps, as an agent's several retrievals for one question are.
    """
    if depth > _DEEPEST or (call.own and call.own.convention == OWN.name):
        return (call,)
    inside = _whole_inside(call, tree)
    if len(inside) > 1:
        return tuple(inside) if _are_independent(call, inside) else (call,)
    if len(inside) == 1:
        within = _parts(inside[0], tree, depth + 1)
        if len(within) > 1 and not _answers_itself(call, within):
            return within
        own, inner = call.own, inside[0].own
        if own is None or not own.question or own.answer is not None:
            return (call,)
        return (call,) if flat(own.asked) == flat(inner.asked if inner else "") else within
    return _in_turn(call, tree)


def _whole_inside(call: Call, tree: SpanTree) -> list[Call]:
    """Return the outermost calls inside that have a question, a retrieval and an answer."""
    calls = [each for each in call.of(Role.CALL) if each is not call.own]
    asked = {each.span.span_id: each for each in calls if each.asked}
    if not asked:
        return []
    found = {each.span.span_id for each in call.members if each.role in _RETRIEVALS or each.handed}
    said = {each.span.span_id for each in (*calls, *call.of(Role.GENERATION)) if each.said}
    whole = asked.keys() & (found | tree.all_above(found)) & (said | tree.all_above(said))
    outermost = whole - tree.nearest_above(whole, whole).keys()
    grouped = tree.grouped(call.members, [each for each in asked if each in outermost])
    parts = [Call(root=asked[each].span, members=tuple(grouped[each])) for each in grouped if each]
    return parts[:_MOST_PARTS]


def _are_independent(call: Call, inside: Sequence[Call]) -> bool:
    if _answers_itself(call, inside):
        return False
    questions = {flat(each.own.asked) for each in inside if each.own}
    asked = flat(call.own.asked) if call.own else ""
    return len(questions) > 1 or (asked not in questions and (call.own is None or call.own.answer is None))


def _answers_itself(call: Call, inside: Sequence[Call]) -> bool:
    """Return whether the root gives an answer that is none of those inside it."""
    own = call.own
    if own is None:
        return False
    asked, told = flat(own.asked), flat(own.said)
    answers = [(flat(each.own.asked), flat(each.own.said)) for each in inside if each.own]
    said = [answer for _, answer in answers if answer]
    is_other = " " in told and not any(told in answer or answer in told for answer in said)
    if is_other and not all(answer in str(own.output) for answer in said):
        return True
    if told and any(told == answer and asked and asked == question for question, answer in answers):
        return True
    within = {member.span.span_id for each in inside for member in each.members}
    last = max(each.root.start_ns for each in inside if each.root)
    free = [each for each in call.of(Role.GENERATION) if each.span.span_id not in within]
    later = [each for each in free if each.span.end_ns > last and each.said]
    node = parse_loosely(own.output)
    texts = {flat(str(each)) for each in (node.values() if isinstance(node, dict) else (node,))}
    return bool(asked) and any(asked in flat(each.asked) or flat(each.said) in texts for each in later)


def _in_turn(call: Call, tree: SpanTree) -> tuple[Call, ...]:
    """Divide steps that follow each other with no call around them: retrieval, answer, retrieval, answer."""
    if call.own is not None and call.own.said:
        return (call,)
    steps = [each for each in call.members if each.role in (*_RETRIEVALS, Role.GENERATION)]
    if sum(each.role is Role.GENERATION for each in steps) < 2:
        return (call,)
    parts = _by_question(steps) or _by_time(steps)
    if len(parts) < 2:
        return (call,)
    groups = [
        Call(root=tree.common_ancestor([each.span for each in part]), members=tuple(part)) for part in parts
    ]
    shared = Counter(each.root.span_id for each in groups if each.root)
    return tuple(
        replace(each, root=None) if each.root and shared[each.root.span_id] > 1 else each
        for each in groups[:_MOST_PARTS]
    )


def _by_question(steps: Sequence[SpanReading]) -> list[list[SpanReading]]:
    """Group steps that run at the same time by their question; nothing if one has none, or another."""
    parts: dict[str, list[SpanReading]] = {}
    for each in steps:
        asked = each.asked if each.role is Role.GENERATION else each.searched
        parts.setdefault(flat(asked), []).append(each)
    roles = [{each.role for each in part} for part in parts.values()]
    is_each_whole = all(Role.GENERATION in each and not each.isdisjoint(_RETRIEVALS) for each in roles)
    return [*parts.values()] if is_each_whole and parts.keys().isdisjoint({""}) else []


def _by_time(steps: Sequence[SpanReading]) -> list[list[SpanReading]]:
    """Divide steps where a retrieval for another question follows an answer."""
    parts: list[list[SpanReading]] = [[]]
    answered = False
    for each in sorted(steps, key=lambda each: (each.span.start_ns, each.span.span_id)):
        if each.role in _RETRIEVALS and answered:
            parts.append([])
            answered = False
        parts[-1].append(each)
        answered = answered or (each.role is Role.GENERATION and bool(each.said))
    return parts if answered and all(_begins_anew(*each) for each in pairwise(parts)) else []


def _begins_anew(earlier: Sequence[SpanReading], later: Sequence[SpanReading]) -> bool:
    """Return whether the later steps serve another question: theirs is not among what the earlier asked."""
    first, second = (
        next((flat(each.searched) for each in steps if each.searched), "") for steps in (earlier, later)
    )
    prompts = [flat(each.asked) for each in later if each.role is Role.GENERATION]
    said = [flat(each.said) for each in earlier if each.role is Role.GENERATION]
    if not first or not second or first == second or not prompts:
        return False
    return not any(
        (first in prompt or any(each and each in prompt for each in said))
        and second not in prompt[-len(second) - _LABEL :]  # asked at its end, below the conversation
        for prompt in prompts
    )


_LABEL: Final = 30
"""Characters, of ``Answer:``."""


def _roots(tree: SpanTree, readings: Sequence[SpanReading]) -> Mapping[str, Span]:
    """Choose the root spans of the calls: ids in order of start."""
    all_roots = {r.span.span_id: r for r in readings if r.role is Role.CALL}
    all_marked = {span_id for span_id, r in all_roots.items() if r.convention == OWN.name}
    marked = all_marked - tree.nearest_above(all_marked, all_marked).keys()
    related = {*marked, *tree.all_above(marked), *tree.nearest_above(all_roots, marked)}
    others = all_roots.keys() - related
    topmost = others - tree.nearest_above(others, others).keys()
    return {span_id: r.span for span_id, r in all_roots.items() if span_id in marked or span_id in topmost}


def _rootless(tree: SpanTree, free: Sequence[SpanReading], *, is_alone: bool) -> tuple[Call, ...]:
    steps = [reading for reading in free if reading.role in (*_RETRIEVALS, Role.GENERATION, Role.TOOL)]
    roles = {reading.role for reading in steps}
    if Role.GENERATION not in roles or not (is_alone or roles.intersection(_RETRIEVALS)):
        return ()
    root = tree.common_ancestor([reading.span for reading in steps])
    return (Call(root=root, members=tuple(steps)),)
