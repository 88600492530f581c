"""Explain missing texts, answers in part, sources that were read but not chosen, and text nothing reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace import semconv
from ragtrace.model import AttributeValue, Gap, Part, Provenance, SkipReason
from ragtrace.traces.extract._calls import Call, SpanTree
from ragtrace.traces.extract._content import FoundValue, Place, parse_loosely
from ragtrace.traces.extract._rules import is_mapped
from ragtrace.traces.extract._span_reader import (
    WENT_AWAY,
    Role,
    SpanReading,
    T,
    error_of,
    is_finished,
    is_streamed,
    is_unanswered,
    left_open,
)
from ragtrace.traces.trace import Span, StatusCode

_REFS = (semconv.INPUT_MESSAGES_REF, semconv.OUTPUT_MESSAGES_REF)


def missing_text(part: Part, spans: Sequence[Span]) -> Gap:
    """Explain a part that is missing on all these spans."""
    names = ", ".join(dict.fromkeys(repr(span.name) for span in spans)) or "any span"
    reason, why = _why(part, spans)
    return Gap(part=part, reason=reason, detail=f"the {part} is not on {names}{why}")


def missing_answer(spans: Sequence[Span]) -> Gap:
    """Explain an answer that is missing on all these spans: the call may have failed first."""
    failed = next((span for span in spans if span.status_code is StatusCode.ERROR), None)
    if failed is None:
        return missing_text(Part.ANSWER, spans)
    detail = f"span {failed.name!r} ended in an error and no answer was recorded"
    return Gap(part=Part.ANSWER, reason=SkipReason.FAILED_CALL, detail=detail)


def unfinished_answer(
    call: Call, generation: SpanReading | None, tree: SpanTree, *, has_text: bool
) -> Gap | None:
    """Tell why the answer is only a part: its reader left, or an error ended it.

    ragtrace's own mark counts first, then that a reader left, then an error: on the spans around the answer,
    the outermost first, and on the last generation inside.
    """
    start = generation.span if generation else call.root
    if start is None:
        return None
    inside = _last_inside(start, call, tree)
    told = [*_around(start, call, tree), *inside] if tree.cut_short else ()
    cut_short = [span for span in told if span.span_id in tree.cut_short]
    marked = [span for span in cut_short if semconv.RAG_STREAM_END in span.attributes]
    left = [span for span in cut_short if tree.cut_short[span.span_id] == semconv.READER_LEFT]
    ended = next(iter((*marked, *left, *cut_short)), None)
    if ended is not None and tree.cut_short[ended.span_id] == semconv.STREAM_FAILED:
        if not (has_text or any(map(is_streamed, told)) or is_unanswered(start)):
            return None  # nothing came before the error
        detail = f"the answer broke off with an error: span {ended.name!r} ended in {error_of(ended)}"
    elif ended or _is_left_later(start, call, tree) or (not has_text and is_unanswered(start)):
        detail = WENT_AWAY
    else:
        silent = (start, *inside) if not is_finished(start) else (start,)
        detail = next((why for span in silent if (why := left_open(span))), "")
    return Gap(part=Part.ANSWER, reason=SkipReason.INCOMPLETE, detail=detail) if detail else None


def _around(start: Span, call: Call, tree: SpanTree) -> Sequence[Span]:
    """Return the span of the answer and those around it, the outermost first.

    What surrounds the whole call tells nothing of the answer if it went on to other work.
    """
    line = list(tree.line(start))
    ids = [span.span_id for span in line]
    if call.root is not None and call.root.span_id in ids and tree.last_start_ns > start.end_ns:
        del line[ids.index(call.root.span_id) + 1 :]
    return line[::-1]


def _last_inside(start: Span, call: Call, tree: SpanTree) -> Sequence[Span]:
    """Return the last generation inside the generation: the SDK's span inside the framework's."""
    every = {each.span.span_id: each.span for each in call.of(Role.GENERATION)}
    if len(every) < 2:
        return ()
    inside = [every[each] for each in tree.nearest_above(every, {start.span_id}) if each in every]
    return sorted(inside, key=lambda span: (span.end_ns, span.span_id))[-1:]


def _is_left_later(start: Span, call: Call, tree: SpanTree) -> bool:
    """Return whether a span of the call that ended after the answer was left by its reader."""
    left = {each for each, how in tree.cut_short.items() if how == semconv.READER_LEFT}
    ended = {each for each in left if (span := tree.find(each)) and span.end_ns >= start.end_ns}
    return not ended.isdisjoint(tree.nearest_above(ended, {call.root.span_id}) if call.root else ended)


def missing_documents(span: Span) -> Gap:
    """Explain a retrieval without documents."""
    if any(key.startswith("db.") for key in span.attributes) and not span.dropped_attributes_count:
        detail = (
            f"span {span.name!r} records a query without its results: record the chunks with "
            "`ragtrace.retrieval`, or turn on the content of the database's instrumentation if it has any"
        )
        return Gap(part=Part.CONTEXT, reason=SkipReason.NO_CONTENT, detail=detail)
    return missing_text(Part.CONTEXT, [span])


def _why(part: Part, spans: Sequence[Span]) -> tuple[SkipReason, str]:
    marks = [span.attributes.get(semconv.RAG_REDACTED) for span in spans]
    if any(isinstance(each, tuple) and part in each for each in marks):
        return SkipReason.REDACTED, ": the redaction hook removed it"
    if any(span.attributes.get(semconv.RAG_CAPTURE) is False for span in spans):
        how = "turn it on with `ragtrace.instrument(capture_content=True)`"
        return SkipReason.NO_CONTENT, f": content capture is off; {how}"
    dropped = sum(span.dropped_attributes_count for span in spans)
    reason = SkipReason.INCOMPLETE if dropped else SkipReason.NO_CONTENT
    if any(key in span.attributes for span in spans for key in _REFS):
        how = "let it write them to spans as well"
        return reason, f": the instrumentation uploaded the messages elsewhere; {how}"
    if dropped:
        return reason, f": {dropped} attributes were dropped; raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
    unread = unread_text(spans)
    return reason, f", and content is on: {unread.advice}" if unread else f": {_switches_of(spans)}"


_GENAI: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
_BY_SCOPE: Final = (
    (semconv.SCOPE_CAPTURE, "`ragtrace.instrument(capture_content=True)`"),
    ("openinference.", "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and similar variables"),
    ("langfuse", "set LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true"),
    ("langsmith", "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS"),
    ("pydantic-ai", "set `include_content=True` in pydantic-ai's instrumentation settings"),
    (
        "opentelemetry.instrumentation.openai_v2",
        f"set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and {_GENAI}",
    ),
    ("opentelemetry.instrumentation.genai", f"set {_GENAI}"),
    ("opentelemetry.util.genai", f"set {_GENAI}: EVENT_ONLY writes to log records, which are no spans"),
    ("opentelemetry.instrumentation.", "set TRACELOOP_TRACE_CONTENT=true"),
)
"""By prefix of the scope's name. All other OpenTelemetry scopes are OpenLLMetry's."""

_BY_SPAN: Final[tuple[tuple[Callable[[Span], bool], str], ...]] = (
    (lambda span: span.name.startswith("haystack."), "set HAYSTACK_CONTENT_TRACING_ENABLED=true"),
    (
        lambda span: semconv.VERCEL_OPERATION in span.attributes,
        "set `recordInputs: true, recordOutputs: true` in `experimental_telemetry`",
    ),
)
_OTHERS: Final = f"turn on content capture in the instrumentation, for OpenTelemetry's {_GENAI}"


def _switches_of(spans: Sequence[Span]) -> str:
    """Return how to make the instrumentations of these spans record texts."""
    switches: dict[str, None] = {}
    for span in spans:
        by_scope = (switch for start, switch in _BY_SCOPE if span.scope.name.startswith(start))
        by_span = (switch for writes, switch in _BY_SPAN if writes(span))
        switches[next(by_scope, None) or next(by_span, _OTHERS)] = None
    return "; ".join(switches) or _OTHERS


_RETRIEVALS: Final = (Role.RETRIEVAL, Role.RERANK)
_NO_TEXT: Final = "it holds no text"


def passed_over(
    call: Call,
    tree: SpanTree,
    *,
    generation: SpanReading | None,
    sources: Sequence[SpanReading],
    chosen: Sequence[Provenance],
    reasons: Mapping[str, str],
) -> tuple[Provenance, ...]:
    """Return the readings that hold a part of the record but were not chosen, with the rule."""
    spans = {part: {each.span_id for each in chosen if each.part is part} for part in Part}
    own = call.own.span.span_id if call.own else None
    considered = (
        *_questions(call, generation, is_own=own in spans[Part.QUESTION]),
        *_contexts(call, tree, generation, sources),
        *_answers(call, tree, generation, reasons, is_own=own in spans[Part.ANSWER]),
    )
    return tuple(each for each in considered if each.span_id not in spans[each.part])


def _questions(call: Call, generation: SpanReading | None, *, is_own: bool) -> Iterator[Provenance]:
    for each in call.of(*_RETRIEVALS, Role.GENERATION):
        found = each.question if each.role is Role.GENERATION else each.query
        if found is None:
            continue
        if found.value is None:
            why = _NO_TEXT
        elif is_own:
            why = "the question of the RAG call itself comes first"
        elif each.role is not Role.GENERATION:
            why = "the query of another retrieval was used"
        else:
            why = "a prompt comes last" if each is generation else "another generation gave the answer"
        yield _over(Part.QUESTION, each, found, why)


def _contexts(
    call: Call, tree: SpanTree, generation: SpanReading | None, sources: Sequence[SpanReading]
) -> Iterator[Provenance]:
    chosen = {each.span.span_id for each in sources}
    retrievals = [each for each in call.of(*_RETRIEVALS) if each.span.span_id not in chosen]
    inside = tree.nearest_above([each.span.span_id for each in retrievals], chosen)
    around = tree.all_above(chosen)
    has_mapped = any(is_mapped(source.documents) for source in sources)
    has_reranked = any(source.role is Role.RERANK for source in sources)
    for each in retrievals:
        if each.span.span_id in inside:
            why = "the retrieval around it holds the same documents"
        elif each.span.span_id in around:
            why = "it holds no chunks of its own, but a retrieval inside it does"
        elif has_mapped:
            why = "the mapping names another place"
        elif generation and each.span.start_ns > generation.span.end_ns:
            why = "it began after the answer was complete"
        else:
            why = "the output of a later step replaces it" if has_reranked else _NO_TEXT
        yield _over(Part.CONTEXT, each, each.documents, why)
    for each in call.of(Role.TOOL):
        why = "its name is not that of a retrieval tool: if it retrieves, name it in `tools` of the mapping"
        yield _over(Part.CONTEXT, each, each.documents, why)


def _answers(
    call: Call, tree: SpanTree, generation: SpanReading | None, reasons: Mapping[str, str], *, is_own: bool
) -> Iterator[Provenance]:
    generations = call.of(Role.GENERATION)
    chosen = {generation.span.span_id} if generation else set()
    inside = tree.nearest_above([each.span.span_id for each in generations], chosen)
    for each in generations:
        if each.answer is None or each.answer.value is None:
            why = _NO_TEXT
        elif each.span.span_id in reasons:
            why = reasons[each.span.span_id]
        elif is_own:
            why = "the answer of the RAG call itself comes first"
        elif each.span.span_id in inside:
            why = "the generation around it holds the same text"
        else:
            why = "a later generation gave the answer"
        yield _over(Part.ANSWER, each, each.answer, why)


def _over(part: Part, reading: SpanReading, found: FoundValue[T] | None, why: str) -> Provenance:
    at = found.at if found else Place("", reading.convention, "")
    return FoundValue(None, at).provenance(part, reading.span, why)


_OF_THE_MACHINE: Final = re.compile(
    r"(?:http|url|db\.(?!vector)|exception|code|net|network|server|client|user_agent|otel|telemetry|thread|process"
    r"|faas|k8s|aws|cloud|container|host|os|rpc|messaging|peer|error|service|ragtrace|enduser|tls)\b|.*\.(?:url|uri)$"
)
_NAMES: Final = (
    (
        "context",
        re.compile(r"context|document|docs?\b|chunk|passage|retriev|hits\b|knowledge|snippet", re.IGNORECASE),
    ),
    (
        "answer",
        re.compile(r"answer|response|reply|completion|generat|output|result|said|antwort", re.IGNORECASE),
    ),
    ("question", re.compile(r"question|query|input|prompt|ask|message|request|frage\b", re.IGNORECASE)),
)
_MOST: Final = 8
_MOST_SPANS: Final = 500
_SHORTEST: Final = 8
_LONGEST_PATH: Final = 200
_DEEPEST: Final = 3
_SEGMENT: Final = re.compile(r"[^.\[\]\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A trace that holds text for people or models, in attributes that nothing reads."""

    producer: str
    """The scope that wrote most of them, else the service."""
    attributes: tuple[str, ...]
    """Paths of the attributes that hold text, the most frequent first."""
    mapping: Mapping[str, str]
    """What to write below ``extract.mapping``: a path for each part that has a likely one."""

    @property
    def advice(self) -> str:
        """One sentence with the attributes and a mapping that can be pasted."""
        listed = ", ".join(f"`{each}`" for each in self.attributes)
        parts = ", ".join(f"{part}: [{path}]" for part, path in self.mapping.items())
        proposed = f"; if they are the parts of a RAG call, map them: `extract: {{mapping: {{{parts}}}}}`"
        return f"these attributes hold text: {listed}{proposed if parts else ''}"


def unread_text(spans: Iterable[Span]) -> Unread | None:
    """Return what text the spans hold; ``None`` if there is none but the machine's own."""
    paths: Counter[str] = Counter()
    producers: Counter[str] = Counter()
    for span, _ in zip(spans, range(_MOST_SPANS), strict=False):
        found = [path for path in _text_paths(span) if len(path) <= _LONGEST_PATH]
        paths.update(found)
        if found:
            service = span.resource.attributes.get("service.name")
            producers[span.scope.name or (service if isinstance(service, str) else "")] += len(found)
    if not paths:
        return None
    listed = tuple(path for path, _ in paths.most_common())
    mapping: dict[str, str] = {}
    for part, name in (_NAMES[2], _NAMES[0], _NAMES[1]):
        best = [path for path in listed if _part_of(path) == part and name.search(path)]
        if best:
            mapping[part] = best[0]
    return Unread(producer=producers.most_common(1)[0][0], attributes=listed[:_MOST], mapping=mapping)


def _part_of(path: str) -> str | None:
    """Return the part that the last telling word of a path names."""
    for segment in reversed(_SEGMENT.findall(path)):
        for part, name in _NAMES:
            if name.search(segment):
                return part
    return None


def _text_paths(span: Span) -> Iterator[str]:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for key, value in attributes.items():
            if not _OF_THE_MACHINE.match(key) and _SEGMENT.fullmatch(key.replace(".", "")):
                yield from _paths(key, value, 0)


def _paths(path: str, value: AttributeValue, depth: int) -> Iterator[str]:
    node = parse_loosely(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    if isinstance(node, str):
        if len(node.strip()) >= _SHORTEST and (" " in node.strip() or not node.isascii()):
            yield path
    elif isinstance(node, tuple):
        if depth <= _DEEPEST and any(True for each in node[:3] for _ in _paths(path, each, depth + 1)):
            yield path
    elif isinstance(node, dict):
        if depth >= _DEEPEST:
            if any(isinstance(each, str) and " " in each for each in node.values()):
                yield path
            return
        for key, each in list(node.items())[:20]:
            if _SEGMENT.fullmatch(key):
                yield from _paths(f"{path}.{key}", each, depth + 1)
