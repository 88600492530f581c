"""Judges the record by ragtrace with six metrics, in a process as its commands run; prints one line of JSON.

``python -m tests.benchmarks.judge_cost.ours URL RECORDS CONCURRENCY [METRIC…]``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ragtrace import process
from ragtrace.judge import open_judge
from ragtrace.metrics import metric_named
from ragtrace.model import Chunk, MetricFailure, RagRecord
from ragtrace.pipeline import evaluate
from tests.benchmarks.judge_cost import subject
from tests.benchmarks.judge_cost.peers import measure

METRIC_NAMES = (
    "faithfulness",
    "hallucination",
    "answer_relevance",
    "context_precision",
    "context_relevance",
    "context_recall",
)


async def run(url: str, records: int, concurrency: int, names: Sequence[str]) -> dict[str, float]:
    """Measure what ``peers.measure`` measures."""
    environ = {"OPENAI_API_KEY": "none"}
    judge = open_judge("openai:stub", base_url=url, environ=environ, max_concurrency=4 * concurrency)
    chunks = tuple(
        Chunk(id=f"chunk-{rank}", text=text, rank=rank) for rank, text in enumerate(subject.CHUNKS)
    )
    record = RagRecord(
        id="1", question=subject.QUESTION, chunks=chunks, answer=subject.ANSWER, reference=subject.REFERENCE
    )

    metrics = [metric_named(name) for name in names]

    async def one() -> None:
        evaluation = await evaluate(record, metrics=metrics, judge=judge)
        for outcome in evaluation.outcomes:
            if isinstance(outcome, MetricFailure) or outcome.score is None:
                raise AssertionError(f"no score: {outcome}")

    try:
        return await measure(one, records, concurrency)
    finally:
        await judge.aclose()


if __name__ == "__main__":
    url, records, concurrency, *names = sys.argv[1:]
    process.look_for_cycles_seldom()
    print(json.dumps(process.run(run(url, int(records), int(concurrency), names or METRIC_NAMES))))
