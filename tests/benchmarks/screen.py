"""Measure what the judge without a key takes: ``python -m tests.benchmarks.screen qa.jsonl summary.jsonl``.

*Evaluate* is the whole of ``evaluate()`` on a record, *suspicion* what sampling asks of every answer. *New
chunks* is with nothing kept of the chunks, as for an answer whose chunks nobody saw before; else what is
kept of those before it helps. Each answer counts its least processor time of several rounds, so that other
processes on the machine add little.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from ragtrace import sentences
from ragtrace.judge import _words
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.labeled_data import read_labeled
from ragtrace.model import RagRecord
from ragtrace.pipeline.evaluation import evaluate, suspicion_of
from tests.benchmarks.measured import table

ROUNDS = 5
Work = Callable[[RagRecord], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="labeled answers, as `ragtrace calibrate` reads them")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    before = peak_mb()
    print(table([row(file, options.rounds) for file in options.files]))
    print(f"\nmemory at most: {peak_mb():.0f} MB, {before:.0f} MB of them before the first answer")


def row(file: str, rounds: int) -> dict[str, object]:
    """Measure the answers of one file."""
    answers = list(read_labeled(file))
    records = [answer.record for answer in answers]
    new_ms = mean_ms(records, _evaluate, rounds, new_chunks=True)
    claims = sum(len(answer.claims) for answer in answers) / len(answers)
    return {
        "data": Path(file).name,
        "answers": len(records),
        "evaluate, new chunks, ms": new_ms,
        "as in the file, ms": mean_ms(records, _evaluate, rounds),
        "suspicion, new chunks, ms": mean_ms(records, suspicion_of, rounds, new_chunks=True),
        "labeled claims a second": claims / new_ms * 1e3,
    }


def mean_ms(records: Sequence[RagRecord], work: Work, rounds: int, *, new_chunks: bool = False) -> float:
    """Return the mean over answers of each one's least processor time."""
    taken = [asyncio.run(_round(records, work, new_chunks=new_chunks)) for _ in range(rounds)]
    return sum(map(min, zip(*taken, strict=True))) / len(records) * 1e3


async def _round(records: Sequence[RagRecord], work: Work, *, new_chunks: bool) -> list[float]:
    forget()
    found = []
    for record in records:
        if new_chunks:
            forget()
        start = time.process_time()
        await work(record)
        found.append(time.process_time() - start)
    return found


def forget() -> None:
    """Drop what is kept of chunks; the words of a language are kept, as they are in any traffic."""
    for kept in (_words._prepared, sentences._split):
        kept.cache_clear()


async def _evaluate(record: RagRecord) -> object:
    return await evaluate(record, judge=LexicalJudge())


def peak_mb() -> float:
    """Return the most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
