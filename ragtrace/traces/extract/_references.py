"""Find references outside the steps of a RAG call: on the application's spans, or in later feedback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from ragtrace import semconv
from ragtrace.model import Part, RagRecord
from ragtrace.traces.extract._calls import Call, SpanTree
from ragtrace.traces.extract._span_reader import SpanReading
from ragtrace.traces.extract.convention import Reader
from ragtrace.traces.extract.conventions import OWN
from ragtrace.traces.trace import Trace

_KEYS = (semconv.REFERENCE_ANSWER, semconv.REFERENCE_CONTEXT_IDS)


def with_references(
    records: Sequence[RagRecord], calls: Sequence[Call], trace: Trace, tree: SpanTree
) -> tuple[RagRecord, ...]:
    """Add references to the records, one per call, from spans that are not steps of their calls.

    A reference of a step is kept. Of several spans, the one that ended last wins.
    """
    completed = list(records)
    for position, reading in _found(calls, trace, tree):
        completed[position] = _completed(completed[position], reading)
    return tuple(completed)


def _found(calls: Sequence[Call], trace: Trace, tree: SpanTree) -> Iterator[tuple[int, SpanReading]]:
    """Yield the position of a call and the reading of a related span, the last span first."""
    holders = [span for span in trace.spans if any(key in span.attributes for key in _KEYS)]
    if not holders or not calls:
        return
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
        found = (positions.get(each, positions.get(above.get(each, ""))) for each in starts[span.span_id])
        at = next((each for each in found if each is not None), 0 if len(calls) == 1 else None)
        if at is not None:
            yield at, Reader(OWN, span).read(None)


def _completed(record: RagRecord, reading: SpanReading) -> RagRecord:
    found = reading.reference
    if record.reference is None and found is not None and found.value is not None:
        why = f"no step of the RAG call holds a reference, and this span does: {found.how}."
        provenance = (*record.provenance, found.provenance(Part.REFERENCE, reading.span, why))
        record = replace(record, reference=found.value, provenance=provenance)
    if not record.reference_chunk_ids and reading.reference_chunk_ids:
        record = replace(record, reference_chunk_ids=reading.reference_chunk_ids)
    return record
