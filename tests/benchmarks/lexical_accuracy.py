"""Measure the lexical judge against human labels.

    python tests/benchmarks/lexical_accuracy.py LABELLED.jsonl …

A row holds ``contexts``, ``answer``, ``answer_label`` and ``claims[{text, label}]`` with the labels
``supported``, ``contradicted``, ``neutral`` or null (left out). Both wrong labels count as *unsupported*.
Balanced accuracy is the mean of the shares found among the supported and among the unsupported; intervals
are 95 % bootstrap percentiles over rows, since the claims of a row are not independent. Sentences that the
judge itself takes for headings, announcements or remarks about the sources are left out of the claims.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragtrace.evaluation import evaluate
from ragtrace.judge.lexical import LexicalJudge, claim_kind
from ragtrace.metrics.steps import Prompts
from ragtrace.metrics.verify import Context, verify_claims
from ragtrace.model import Chunk, Claim, RagRecord, VerdictLabel

Pair = tuple[bool, bool | None]
"""What people say and what the judge says: supported? ``None`` where it abstains."""

BOOTSTRAPS = 1000


@dataclass(frozen=True)
class Measured:
    claims: list[list[Pair]]
    """By row."""
    answers: list[list[Pair]]
    ms_a_claim: float


def main(paths: Sequence[str]) -> None:
    for path in paths:
        rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line]
        measured = asyncio.run(measure(rows))
        print(f"{Path(path).name}: {len(rows)} rows, {measured.ms_a_claim:.2f} ms a claim")
        for name, pairs in (("claims", measured.claims), ("answers", measured.answers)):
            report(name, pairs)


async def measure(rows: Sequence[Any]) -> Measured:
    judge = LexicalJudge()
    start = time.perf_counter()
    claims = [await claim_pairs(row, judge) for row in rows]
    elapsed = time.perf_counter() - start
    answers = [await answer_pairs(row, judge) for row in rows]
    return Measured(claims, answers, 1000 * elapsed / max(1, sum(map(len, claims))))


async def claim_pairs(row: Any, judge: LexicalJudge) -> list[Pair]:
    labelled = [c for c in row["claims"] if c["label"] and claim_kind(c["text"]) == "factual"]
    claims = [Claim(index=i, text=claim["text"]) for i, claim in enumerate(labelled)]
    if not claims:
        return []
    found = await verify_claims(
        claims,
        Context(chunks_of(row), pack_chars=60_000, max_packs=8),
        judge=judge,
        prompt=Prompts.built_in().verify,
        fence_code="0",
        claims_per_call=20,
    )
    return [
        (
            claim["label"] == "supported",
            None if v.label is VerdictLabel.UNJUDGED else v.label is VerdictLabel.SUPPORTED,
        )
        for claim, v in zip(labelled, found.verdicts, strict=True)
    ]


async def answer_pairs(row: Any, judge: LexicalJudge) -> list[Pair]:
    """An answer counts as supported by the judge only if it is faithful throughout."""
    if not row["answer_label"]:
        return []
    record = RagRecord(id=row["id"], question=row["question"], chunks=chunks_of(row), answer=row["answer"])
    [result] = (await evaluate(record, judge=judge)).results
    return [(row["answer_label"] == "supported", None if result.score is None else result.score == 1.0)]


def chunks_of(row: Any) -> tuple[Chunk, ...]:
    return tuple(Chunk(id=str(n), text=text, rank=n) for n, text in enumerate(row["contexts"]))


def report(name: str, rows: list[list[Pair]]) -> None:
    pairs = [pair for row in rows for pair in row]
    if not pairs:
        return
    decided = [pair for pair in pairs if pair[1] is not None]
    print(f"  {name}: {len(pairs)}, of them unsupported {sum(not human for human, _ in pairs)}")
    print(
        f"    coverage {len(decided) / len(pairs):.2f}, balanced accuracy of the decided "
        f"{with_interval(rows, decided_accuracy)}"
    )
    right = f"supported {precision(decided, True):.2f}, of not mentioned {precision(decided, False):.2f}"
    print(f"    precision of {right}")
    print(f"    two-way, unjudged counted as unsupported: {with_interval(rows, two_way_accuracy)}")


def decided_accuracy(pairs: Sequence[Pair]) -> float | None:
    return balanced([(human, judge) for human, judge in pairs if judge is not None])


def two_way_accuracy(pairs: Sequence[Pair]) -> float | None:
    return balanced([(human, bool(judge)) for human, judge in pairs])


def balanced(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    right = [[judge == human for human, judge in pairs if human is side] for side in (True, False)]
    return sum(sum(side) / len(side) for side in right) / 2 if all(right) else None


def precision(decided: Sequence[Pair], said: bool) -> float:
    human = [human is said for human, judge in decided if judge is said]
    return sum(human) / len(human) if human else float("nan")


def with_interval(rows: list[list[Pair]], measure: Callable[[Sequence[Pair]], float | None]) -> str:
    drawn = random.Random(0)
    samples = (
        measure([pair for row in drawn.choices(rows, k=len(rows)) for pair in row]) for _ in range(BOOTSTRAPS)
    )
    values = sorted(value for value in samples if value is not None)
    point = measure([pair for row in rows for pair in row])
    if point is None or not values:
        return "not defined"
    low, high = values[int(0.025 * len(values))], values[int(0.975 * len(values))]
    return f"{point:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main(sys.argv[1:])
