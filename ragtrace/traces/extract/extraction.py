"""Extract records from a trace, or the reasons for having none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.model import Gap, Part, Provenance, RagRecord, Target
from ragtrace.traces.extract._answers import (
    Answering,
    Unread,
    answering,
    missing_answer,
    missing_text,
    passed_over,
    returned,
    said_by,
    unfinished_answer,
    unread_text,
    unwrapped,
)
from ragtrace.traces.extract._calls import (
    AttributeMapping,
    Call,
    ExtractRules,
    SpanTree,
    find_calls,
    is_evaluator,
    is_mapped,
    judges_an_answer,
    read_spans,
    under_test,
    without_skew,
)
from ragtrace.traces.extract._citations import FoundCitation, placed
from ragtrace.traces.extract._content import FoundValue, best, each_text_parsed_once, first_text
from ragtrace.traces.extract._context import ExtractedContext, context_of, earlier_turns, hops_of
from ragtrace.traces.extract._prompts import beside_chunks, is_question_alone, question_of
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract.convention import Reader
from ragtrace.traces.extract.conventions import OWN, stores_vectors
from ragtrace.traces.trace import Span, Trace, flat

T = TypeVar("T")


def record_of(call: Call, tree: SpanTree, rules: ExtractRules) -> RagRecord:
    """Build the record. Every part has a provenance, a gap, or both."""
    chosen = answering(call, tree)
    output = returned(call, chosen)
    generation = _generation(chosen, output)
    context = context_of(call, generation, tree, question=_told(call), source=rules.context)
    question = _question(call, generation, context, is_rewritten=chosen.rewrites)
    answer = _answer(call, generation, output, chosen, question.value if question else None)
    sources = [reading for reading in (call.own, generation, *call.members) if reading is not None]
    why = "a span of the RAG call holds a reference"
    reference = _choose(Part.REFERENCE, *((each, each.reference, why) for each in sources))
    target = (answer.reading if answer else sources[0]).span
    told = [each for each in (question, answer, reference) if each and each.value is not None]
    provenance = (*(each.provenance for each in told), *context.provenance)
    query = next((each.query.value for each in context.sources if each.query), None)
    return RagRecord(
        id=f"{target.trace_id}:{target.span_id}",
        question=question.value if question else None,
        chunks=context.chunks,
        answer=answer.value if answer else None,
        provider_citations=placed(
            _citations(call, generation), answer.value if answer else None, context.chunks
        ),
        reference=reference.value if reference else None,
        reference_chunk_ids=_first(each.reference_chunk_ids for each in sources) or (),
        target=_target(target, tree),
        session_id=_session_id(call, sources, tree, rules.mapping),
        conversation_id=_first(reading.conversation_id for reading in sources),
        response_id=_first(reading.response_id for reading in sources),
        model=_first(reading.model for reading in (generation, *sources) if reading),
        context_from_prompt=context.is_prompt,
        prompt_version=_first(reading.prompt_version for reading in (generation, *sources) if reading),
        hops=hops_of(call, generation, context),
        earlier_turns=earlier_turns(call, generation, most=rules.earlier_turns),
        is_marked=call.own is not None and call.own.span.attributes.get(semconv.RAG_KIND) == semconv.KIND_RAG,
        retrieval_query=query if not question or query != question.value else None,
        provenance=provenance,
        passed_over=passed_over(
            call,
            tree,
            generation=generation,
            sources=context.sources,
            chosen=provenance,
            reasons=chosen.reasons,
        ),
        gaps=_gaps(call, generation, question, answer, context, tree),
    )


class _Choice(NamedTuple, Generic[T]):
    """A chosen text with its span and the rule that chose it."""

    part: Part
    reading: SpanReading
    found: FoundValue[T]
    why: str

    @property
    def value(self) -> T | None:
        return self.found.value

    @property
    def provenance(self) -> Provenance:
        return self.found.provenance(self.part, self.reading.span, f"{self.why}: {self.found.how}.")


_Candidate = tuple[SpanReading | None, FoundValue[T] | None, str]


def _choose(part: Part, *candidates: _Candidate[T]) -> _Choice[T] | None:
    """Choose the first undamaged candidate, else the first with a value, else the first."""
    choices = [
        _Choice(part, reading, found, why)
        for reading, found, why in candidates
        if reading is not None and found is not None
    ]
    chosen = best(*(each.found for each in choices))
    return next((each for each in choices if each.found is chosen), None)


_NOTHING: Final = ("null", "undefined", "true", "false")
"""What serializers write of an answer that is absent, or of a mere success."""


def _generation(chosen: Answering, output: FoundValue[str] | None) -> SpanReading | None:
    """Return the generation whose text the call returned, else the last that answers."""
    told = flat(output.value or "") if output else ""
    said = (each for each in chosen.may_answer if (text := flat(said_by(each))) and text in told)
    return next(said, chosen.chosen)


def _citations(call: Call, generation: SpanReading | None) -> Sequence[FoundCitation]:
    """Return the generation's citations, or those of a provider's span with the same text."""
    if generation is None or generation.citations:
        return generation.citations if generation else ()
    said = flat(said_by(generation))
    same = (each for each in call.of(Role.GENERATION) if each.citations and flat(said_by(each)) == said)
    return next((each.citations for each in same), ())


def _told(call: Call) -> str | None:
    """Return the question of the call's span, or of the mapping."""
    own, inner = call.own, _inner(call)
    named = [found for _, found, _ in _mapped(call, attrgetter("question"))]
    found = (*named, own.question if own else None, inner.question if inner else None)
    return next((each.value for each in found if each and each.value and each.damage is None), None)


def _inner(call: Call) -> SpanReading | None:
    """Return the first inner call with a question."""
    return next((each for each in call.of(Role.CALL) if each is not call.own and each.question), None)


def _question(
    call: Call, generation: SpanReading | None, context: ExtractedContext, *, is_rewritten: bool
) -> _Choice[str] | None:
    own, retrieval = call.own, next(iter(context.sources), None)
    prompt = generation.question if generation else None
    texts = [chunk.text for chunk in context.chunks if chunk.text]
    whole = prompt if is_question_alone(prompt, texts) else None
    inner = _inner(call)
    query = retrieval.query.value if retrieval and retrieval.query else None
    beside = beside_chunks(prompt, texts) if query and is_rewritten else None
    return _choose(
        Part.QUESTION,
        *_mapped(call, attrgetter("question")),
        (own, own.question if own else None, "the span of the RAG call holds the question"),
        (inner, inner.question if inner else None, "the first call inside the RAG call holds the question"),
        (generation, whole, "the RAG call holds no whole question, so the last message of the user is it"),
        (generation, beside, "the retrieval's query is a rewrite, so the question in the prompt is it"),
        (
            retrieval,
            retrieval.query if retrieval else None,
            "the RAG call holds no whole question, so its first retrieval's query is it",
        ),
        (
            generation,
            context.question,
            "the RAG call holds no whole question, so the question in its prompt is it",
        ),
        (
            generation,
            question_of(prompt),
            "neither the RAG call nor its retrieval holds it, so the prompt does",
        ),
        (
            generation,
            prompt,
            "neither the RAG call nor its retrieval holds the question, so the model's prompt is it",
        ),
    )


def _mapped(
    call: Call, part: Callable[[SpanReading], FoundValue[str] | None]
) -> tuple[tuple[SpanReading, FoundValue[str] | None, str], ...]:
    """Return the mapped values, in order of start."""
    found = ((each, part(each)) for each in call.members)
    return tuple((each, text, "the mapping names it") for each, text in found if is_mapped(text))


def _answer(
    call: Call,
    generation: SpanReading | None,
    output: FoundValue[str] | None,
    chosen: Answering,
    question: str | None,
) -> _Choice[str] | None:
    candidates = (
        *reversed(_mapped(call, attrgetter("answer"))),
        (call.own, output, "the span of the RAG call holds the answer"),
        (
            generation,
            generation.answer if generation else None,
            "the span of the RAG call holds no whole answer, so the last generation that answers does",
        ),
    )
    told = (each for each in candidates if each[1] and str(each[1].value).strip() not in _NOTHING)
    found = _choose(Part.ANSWER, *told)
    if found is None or is_mapped(found.found):
        return found
    return found._replace(found=unwrapped(found.found, question))


def _target(span: Span, tree: SpanTree) -> Target:
    return Target(
        trace_id=span.trace_id,
        span_id=span.span_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        name=span.name,
        root_name=tree.root_of(span).name,
        trace_flags=span.flags & _TRACE_FLAGS,
        trace_state=span.trace_state,
        resource=span.resource.attributes,
        resource_schema_url=span.resource.schema_url,
    )


_TRACE_FLAGS = 0xFF
"""OTLP stores W3C's flags in the low byte of ``Span.flags``."""


def _session_id(
    call: Call, sources: Sequence[SpanReading], tree: SpanTree, mapping: AttributeMapping | None
) -> str | None:
    """Read the session, as the mapping says or a convention, from the call, or from a span above it."""
    mapped = None
    if mapping and mapping.session:
        mapped = _first(mapping.session_of(each.span) for each in call.members)
        mapped = mapped or tree.first_above(call.members[0].span, mapping.session_of)
    told = mapped or _first(each.session_id for each in sources)
    return told or tree.first_above(sources[0].span, _own_session_id)


def _own_session_id(span: Span) -> str | None:
    return first_text(span, semconv.SESSION_ID)  # a name, since the tree remembers what each reader found


def _gaps(
    call: Call,
    generation: SpanReading | None,
    question: _Choice[str] | None,
    answer: _Choice[str] | None,
    context: ExtractedContext,
    tree: SpanTree,
) -> tuple[Gap, ...]:
    spans = [span for span in (call.root, generation.span if generation else None) if span is not None]
    has_text = answer is not None and answer.value is not None
    unfinished = unfinished_answer(call, generation, tree, has_text=has_text)
    found = [
        *(_damage(question) if question else [missing_text(Part.QUESTION, spans)]),
        *context.gaps,
        *([unfinished] if unfinished else _damage(answer) if answer else [missing_answer(spans)]),
    ]
    return tuple(dict.fromkeys(found))


def _damage(choice: _Choice[str]) -> list[Gap]:
    return [choice.found.damage.gap(choice.part)] if choice.found.damage else []


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value), None)


# -- references outside the steps of a call: on the application's spans, or in later feedback

_REFERENCES: Final = frozenset({semconv.REFERENCE_ANSWER, semconv.REFERENCE_CONTEXT_IDS})


def with_references(
    records: Sequence[RagRecord], calls: Sequence[Call], trace: Trace, tree: SpanTree
) -> tuple[RagRecord, ...]:
    """Add references to the records, one per call, from spans that are not steps of their calls.

    A reference of a step is kept. Of several spans, the one that ended last wins.
    """
    holders = [span for span in trace.spans if not _REFERENCES.isdisjoint(span.attributes)]
    completed = list(records)
    if not holders or not calls:
        return tuple(completed)
    positions: dict[str, int] = {}
    for position, call in enumerate(calls):
        positions.update(dict.fromkeys((member.span.span_id for member in call.members), position))
        if call.root is not None:
            positions.setdefault(call.root.span_id, position)
    starts = {  # the span and those that it links to: one of them may be below a call
        span.span_id: [span.span_id, *(link.span_id for link in span.links if link.trace_id == span.trace_id)]
        for span in holders
    }
    above = tree.nearest_above(chain.from_iterable(starts.values()), positions.keys())
    for span in sorted(holders, key=lambda span: (span.end_ns, span.span_id), reverse=True):
        near = (positions.get(each, positions.get(above.get(each, ""))) for each in starts[span.span_id])
        at = next((each for each in near if each is not None), 0 if len(calls) == 1 else None)
        if at is None:
            continue
        record, reading = completed[at], Reader(OWN, span).read(None)
        found = reading.reference
        if record.reference is None and found is not None and found.value is not None:
            why = f"no step of the RAG call holds a reference, and this span does: {found.how}."
            provenance = (*record.provenance, found.provenance(Part.REFERENCE, span, why))
            record = replace(record, reference=found.value, provenance=provenance)
        ids = record.reference_chunk_ids or reading.reference_chunk_ids
        completed[at] = replace(record, reference_chunk_ids=ids)
    return tuple(completed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionNote:
    """Why a span was not used, for ``ragtrace explain``."""

    text: str
    """One sentence, without content."""
    span_id: str | None = None
    span_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The records of a trace."""

    records: tuple[RagRecord, ...]
    """One per RAG call, in order of start."""
    notes: tuple[ExtractionNote, ...] = ()
    unread: Unread | None = None
    """What a trace without records holds that nothing reads; ``None`` if it only belongs to an evaluator, or
    holds no text."""


_DEFAULT: Final = ExtractRules()


@each_text_parsed_once()
def extract_records(trace: Trace, rules: ExtractRules = _DEFAULT) -> Extraction:
    """Find every RAG call of a trace: its question, its chunks and its answer.

    The rules may map the user's own attributes, and may allow a prompt as the context.

    It is a pure function: the same spans give the same records, in any order. A missing or damaged part
    becomes a [`Gap`][ragtrace.model.Gap] of the record, never an exception.
    """
    recorded, trace = trace, without_skew(trace)
    tree = SpanTree(trace)
    judged, notes = _without_evaluators(trace, tree, rules.mapping)
    ingested = {tree.root_of(span).span_id for span in trace.spans if stores_vectors(span)}
    calls = [
        call
        for call in find_calls(tree, judged)
        if _has_steps(call) and not (ingested and _ingests(call, tree, ingested))
    ]
    read = [record_of(call, tree, rules) for call in calls]
    if trace is not recorded:
        read = [_at_recorded_times(record, recorded) for record in read]
    records = with_references(read, calls, trace, tree)
    unread = unread_text(trace.spans) if not calls and not notes and not _roles(judged) else None
    return Extraction(records=records, notes=(*notes, *_unused(judged, calls, unread)), unread=unread)


def _at_recorded_times(record: RagRecord, trace: Trace) -> RagRecord:
    span = trace.find(record.target.span_id) if record.target else None
    if record.target is None or span is None:
        return record
    return replace(record, target=replace(record.target, start_ns=span.start_ns, end_ns=span.end_ns))


def _without_evaluators(
    trace: Trace, tree: SpanTree, mapping: AttributeMapping | None
) -> tuple[Sequence[SpanReading], list[ExtractionNote]]:
    """Read the spans that may belong to a RAG call, and note those that do not."""
    marked = {span.span_id for span in trace.spans if is_evaluator(span)}
    pending = {
        span.span_id
        for span in trace.spans
        if span.attributes.get(semconv.LOGFIRE_SPAN_TYPE) == semconv.LOGFIRE_PENDING
    }
    other = marked | pending
    readings = read_spans((each for each in trace.spans if each.span_id not in other), mapping)
    evaluators = marked | _evaluating(readings, tree)
    guards = {each.span.span_id for each in readings if each.role is Role.GUARDRAIL}
    ids = [span.span_id for span in trace.spans]
    below = tree.nearest_above(ids, evaluators).keys() | evaluators
    guarded = tree.nearest_above(ids, guards).keys() | guards
    if not any(each.role is Role.GENERATION and each.span.span_id not in guarded for each in readings):
        guarded = guards  # the guardrail surrounds the application
    unused = (
        (below, "belongs to an evaluator: evaluations are never evaluated"),
        (pending, "is a placeholder that Logfire writes when a span starts"),
        (guarded - below, "belongs to a guardrail, which does not answer"),
    )
    notes = [_note(span, why) for span in trace.spans for among, why in unused if span.span_id in among]
    aside = below | guarded
    return tuple(each for each in readings if each.span.span_id not in aside), notes


def _evaluating(readings: Sequence[SpanReading], tree: SpanTree) -> set[str]:
    """Return the spans of other tools' evaluations: they are given an answer to judge.

    A step of an application may be given its own answer, too; it lies in a call that was asked the question.
    """
    evaluating = {each.span.span_id: each for each in readings if judges_an_answer(each)}
    asked = {
        each.span.span_id
        for each in readings
        if each.role is Role.CALL and each.question and each.span.span_id not in evaluating
    }
    inside = tree.nearest_above(evaluating, asked).keys()
    own = {flat(each.said) for each in readings if each.role is Role.GENERATION and each.said}
    return {
        span_id
        for span_id, each in evaluating.items()
        if each.role is Role.EVALUATOR or span_id not in inside or under_test(each) not in own
    }


def _has_steps(call: Call) -> bool:
    """Return whether the call has a retrieval, a generation or an answer; else it is another workflow."""
    if call.of(Role.RETRIEVAL, Role.RERANK, Role.GENERATION):
        return True
    own = call.own
    return own is not None and (own.convention == "ragtrace" or own.answer is not None)


def _ingests(call: Call, tree: SpanTree, ingested: set[str]) -> bool:
    """Return whether a call only prepares documents for a vector store: nobody asked, nothing is found."""
    is_asked = call.own is not None and call.own.question is not None
    is_below = tree.root_of(call.members[0].span).span_id in ingested
    return is_below and not is_asked and not call.of(Role.RETRIEVAL, Role.RERANK)


def _unused(
    readings: Sequence[SpanReading], calls: Sequence[Call], unread: Unread | None
) -> list[ExtractionNote]:
    used = {member.span.span_id for call in calls for member in call.members}
    notes = [
        _note(reading.span, f"is a {reading.role} outside of any RAG call")
        for reading in readings
        if reading.span.span_id not in used and reading.role is not Role.STEP
    ]
    if not calls:
        notes.append(ExtractionNote(text=_why_none(_roles(readings), unread)))
    return notes


def _roles(readings: Sequence[SpanReading]) -> Sequence[str]:
    return sorted({str(reading.role) for reading in readings if reading.role is not Role.STEP})


def _why_none(roles: Sequence[str], unread: Unread | None) -> str:
    if roles:
        return f"the trace has only {' and '.join(roles)} spans: a RAG call has a retrieval and a generation"
    if unread is not None:
        return f"no span follows a convention that ragtrace reads; {unread.advice}"
    return (
        "no span follows a convention that ragtrace reads, and none holds text: look for `ragtrace.kind`, "
        "`gen_ai.operation.name` or `openinference.span.kind`, or map your own attributes"
    )


def _note(span: Span, text: str) -> ExtractionNote:
    return ExtractionNote(text=text, span_id=span.span_id, span_name=span.name)
