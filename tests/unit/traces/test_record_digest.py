"""The digest that tells a revision: of what is judged, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace.model import Chunk, Gap, Part, RagRecord, SkipReason
from ragtrace.traces.attach import record_sha256

RECORD = replace(
    RagRecord.of(
        question="How long?",
        contexts={"faq-1": "14 days.", "faq-2": "Free."},
        answer="14 days.",
        reference="14 days.",
    ),
    reference_chunk_ids=("faq-1",),
)
FIRST, SECOND = RECORD.chunks


@pytest.mark.parametrize(
    "changed",
    [
        replace(RECORD, question=None),
        replace(RECORD, answer="15 days."),
        replace(RECORD, reference=None),
        replace(RECORD, reference_chunk_ids=()),
        replace(RECORD, chunks=(SECOND, FIRST)),
        replace(RECORD, chunks=(FIRST,)),
        replace(RECORD, chunks=(FIRST, replace(SECOND, id="faq-3"))),
        replace(RECORD, gaps=(Gap(part=Part.ANSWER, reason=SkipReason.TRUNCATED, detail="cut"),)),
    ],
    ids=["question", "answer", "reference", "reference ids", "order", "number", "chunk id", "gap"],
)
def test_what_is_judged_makes_another_digest(changed: RagRecord) -> None:
    assert record_sha256(changed) != record_sha256(RECORD)


@pytest.mark.parametrize(
    "changed",
    [
        replace(RECORD, session_id="s-1", conversation_id="c-1", response_id="r-1"),
        replace(RECORD, model="m", prompt_version="2"),
        replace(RECORD, id="another"),
        replace(RECORD, chunks=(replace(FIRST, span_id="01", score=0.5), SECOND)),
    ],
    ids=["session", "model", "id", "where a chunk was read"],
)
def test_what_is_copied_for_filtering_does_not(changed: RagRecord) -> None:
    assert record_sha256(changed) == record_sha256(RECORD)


def test_texts_that_no_encoding_has_are_digested() -> None:
    odd = RagRecord.of(question="\ud800", contexts=[Chunk(id="\x00", text=None)], answer="\U0001f9ea")
    assert len(record_sha256(odd)) == 64
