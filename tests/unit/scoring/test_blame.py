"""Which hop failed: measured on pipelines with one injected fault each, read from real spans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from ragtrace.pipeline import evaluate
from ragtrace.scoring.blame import NEEDS_RELEVANCE, Blame, BlameClass, blame_of
from ragtrace.traces.extract import extract_records
from tests.unit.scoring.faulty_pipelines import Pipeline, pipeline

EACH = 10


async def blamed(built: Pipeline, number: int = 0, *, has_reference: bool) -> Blame:
    """Judge a pipeline by its spans."""
    (record,) = extract_records(built.trace(number)).records
    if has_reference:
        record = replace(record, reference=built.reference)
    metrics = ("faithfulness", "chunk_precision", *(["context_recall"] if has_reference else []))
    return blame_of(record, await evaluate(record, metrics=metrics, judge=built.judge()))


@pytest.mark.slow
@pytest.mark.parametrize("has_reference", [False, True])
async def test_every_class_is_found_and_no_other(has_reference: bool) -> None:
    found: Counter[tuple[BlameClass | None, BlameClass | None]] = Counter()
    for fault in (None, *BlameClass):
        for number in range(EACH):
            built = pipeline(fault, Random(f"{fault} {number}"))
            blame = await blamed(built, number, has_reference=has_reference)
            found[fault, blame.primary] += 1
    expected = {fault: fault for fault in (None, *BlameClass)}
    if has_reference:  # a reference says that there is an answer, which the retriever missed
        expected[BlameClass.UNANSWERABLE] = BlameClass.RETRIEVAL_MISS
    assert found == dict.fromkeys(expected.items(), EACH)


async def test_without_a_reranker_or_grades_nothing_is_guessed() -> None:
    for fault in (None, BlameClass.CONTRADICTED_CONTEXT, BlameClass.FABRICATED):
        built = pipeline(fault, Random(1), has_reranker=False)
        assert (await blamed(built, has_reference=False)).primary is fault
    built = pipeline(BlameClass.RETRIEVAL_MISS, Random(2))
    (record,) = extract_records(built.trace(0)).records
    ungraded = blame_of(record, await evaluate(record, metrics=("faithfulness",), judge=built.judge()))
    assert (ungraded.faults, ungraded.missing) == ((), (NEEDS_RELEVANCE,))


async def test_each_fault_names_its_evidence() -> None:
    dropped = (await blamed(pipeline(BlameClass.RERANK_DROP, Random(3)), has_reference=False)).faults[0]
    assert (dropped.span_id, len(dropped.chunk_ids)) == ("00000000000000a9", 1)
    assert "pump needs" in dropped.quote
    said = (await blamed(pipeline(BlameClass.CONTRADICTED_CONTEXT, Random(3)), has_reference=False)).faults[0]
    assert (said.claim, len(said.chunk_ids)) == (0, 1)
    assert "pump needs" in said.quote
    conflict = await blamed(pipeline(BlameClass.STALE_OR_CONFLICTING_CHUNKS, Random(3)), has_reference=False)
    assert len(set(conflict.faults[0].chunk_ids)) == 2
