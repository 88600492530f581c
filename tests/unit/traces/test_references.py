"""References that stand on spans beside a RAG call reach its record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace import semconv
from ragtrace.model import Part, RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Span, SpanLink, Trace
from tests.rag_spans import rag_trace, trace_id_of

RIGHT = "Refunds take 14 days."
ROOT, RETRIEVAL, GENERATION = rag_trace(0)


def holder(number: int = 1, parent: Span | None = None, link: Span | None = None, text: str = RIGHT) -> Span:
    """Return a span that is no step of a RAG call."""
    return Span(
        trace_id=trace_id_of(0),
        span_id=f"{number:016x}",
        parent_span_id=parent.span_id if parent else None,
        name="note",
        start_ns=ROOT.end_ns + number,
        end_ns=ROOT.end_ns + number,
        attributes={semconv.REFERENCE_ANSWER: text, semconv.REFERENCE_CONTEXT_IDS: ("chunk-0",)},
        links=(SpanLink(trace_id=link.trace_id, span_id=link.span_id),) if link else (),
    )


def second_call() -> tuple[Span, ...]:
    """Return another RAG call in the same trace."""
    ids = {span.span_id: f"{span.span_id[:-2]}b{span.span_id[-1]}" for span in rag_trace(0)}
    return tuple(
        replace(span, span_id=ids[span.span_id], parent_span_id=ids.get(span.parent_span_id or ""))
        for span in rag_trace(0, question="Is shipping free?", start_ns=ROOT.end_ns)
    )


def records_of(*spans: Span) -> list[RagRecord]:
    return list(extract_records(Trace.of(trace_id_of(0), spans)).records)


@pytest.mark.parametrize(
    "note",
    [holder(parent=ROOT), holder(parent=GENERATION), holder(link=GENERATION), holder()],
    ids=["below the call", "below its generation", "linked to it", "anywhere in its trace"],
)
def test_a_reference_on_another_span_reaches_the_record(note: Span) -> None:
    (record,) = records_of(*rag_trace(0), note)
    assert (record.reference, record.reference_chunk_ids) == (RIGHT, ("chunk-0",))
    (source,) = [each for each in record.provenance if each.part is Part.REFERENCE]
    assert (source.span_id, source.attribute) == (note.span_id, semconv.REFERENCE_ANSWER)


def test_feedback_may_bring_the_reference_and_is_no_step_itself() -> None:
    feedback = {semconv.OI_KIND: semconv.OI_EVALUATOR, semconv.FEEDBACK_NAME: "user_feedback"}
    note = holder(parent=ROOT)
    (record,) = records_of(*rag_trace(0), replace(note, attributes={**note.attributes, **feedback}))
    assert record.reference == RIGHT


def test_what_the_call_itself_says_goes_first() -> None:
    root = replace(ROOT, attributes={**ROOT.attributes, semconv.REFERENCE_ANSWER: "As the call says."})
    (record,) = records_of(root, RETRIEVAL, GENERATION, holder(parent=ROOT))
    assert record.reference == "As the call says."


def test_of_several_spans_the_last_is_believed() -> None:
    notes = holder(1, ROOT, text="First."), holder(3, ROOT, text="Last."), holder(2, ROOT, text="Second.")
    (record,) = records_of(*rag_trace(0), *notes)
    assert record.reference == "Last."


def test_of_two_calls_each_gets_its_own_reference() -> None:
    other = second_call()
    first, second = records_of(
        *rag_trace(0), *other, holder(1, parent=ROOT), holder(2, link=other[0], text="Yes.")
    )
    assert (first.reference, second.reference) == (RIGHT, "Yes.")


def test_a_reference_that_could_be_of_two_calls_is_of_none() -> None:
    assert [record.reference for record in records_of(*rag_trace(0), *second_call(), holder())] == [None] * 2
