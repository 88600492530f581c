"""Measure whether step A may say in passing what a statement is worth to the question.

    python tests/benchmarks/relevance_merge.py LABELLED.jsonl --judge openai:MODEL --base-url URL

A row holds ``question`` and ``answer``; rows of the same question count once. Each answer is made longer by
sentences from the answer to another question: its own sentences are known to be relevant, the others not.
One run of step A gives the merged relevance, step R over the same statements the separate one. A sentence
counts as relevant if any statement drawn from it is direct or supporting; sentences without a judged
statement are left out, and counted. Headings and remarks about the sources are not labelled. Intervals are
95 % bootstrap percentiles over rows; the difference is paired.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragtrace.errors import JudgeError
from ragtrace.judge import open_judge
from ragtrace.judge.lexical import claim_kind
from ragtrace.metrics import StepLimits, Steps
from ragtrace.metrics.sentences import split_sentences
from ragtrace.metrics.steps import Statement
from ragtrace.model import RagRecord, Usage, VerdictLabel
from ragtrace.ports import Judge

BOOTSTRAPS = 2000
OWN, FOREIGN = 4, 3
"""Sentences of each kind in an answer."""

Pair = tuple[bool, bool | None]
"""Is the sentence relevant: as known, and as judged (``None``: not judged)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """An answer with sentences that do not belong to it."""

    record: RagRecord
    relevant: dict[int, bool]
    """By the number of the sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One answer, judged in both forms."""

    merged: list[Pair]
    separate: list[Pair]
    extract: Usage
    relevance: Usage


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--judge", required=True)
    parser.add_argument("--base-url")
    parser.add_argument("--rows", type=int, default=60, help="at most so many answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a request")
    parser.add_argument("--at-once", type=int, default=1, help="answers judged side by side")
    chosen = parser.parse_args(arguments)
    mixed = mix(read_rows(chosen.paths), limit=chosen.rows, drawn=random.Random(chosen.seed))
    judge = open_judge(chosen.judge, base_url=chosen.base_url, timeout_s=chosen.timeout)
    report(asyncio.run(compare_all(mixed, judge, chosen.at_once)))


def read_rows(paths: Iterable[Path]) -> list[Any]:
    rows = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines() if line]
    return list({row["question"]: row for row in reversed(rows) if row["question"]}.values())[::-1]


def mix(rows: Sequence[Any], *, limit: int, drawn: random.Random) -> list[Mixed]:
    """Lay sentences of another row's answer before or behind those of each answer."""
    texts = {row["question"]: labelled_sentences(row["answer"]) for row in rows}
    usable = [row for row in rows if len(texts[row["question"]]) >= 2]
    mixed = []
    for place, row in enumerate(usable):
        other = usable[(place + 1 + drawn.randrange(len(usable) - 1)) % len(usable)]
        own = [(text, True) for text in texts[row["question"]][:OWN]]
        foreign = [(text, False) for text in texts[other["question"]][:FOREIGN]]
        parts = [*own, *foreign] if drawn.random() < 0.5 else [*foreign, *own]
        mixed.append(mixed_answer(row, parts))
    return drawn.sample(mixed, min(limit, len(mixed)))


def labelled_sentences(answer: str) -> list[str]:
    sentences = (" ".join(sentence.text.split()) for sentence in split_sentences(answer))
    return [text for text in sentences if claim_kind(text) == "factual" and text[-1] in ".!"]


def mixed_answer(row: Any, parts: Sequence[tuple[str, bool]]) -> Mixed:
    answer = "\n".join(text for text, _ in parts)
    record = RagRecord(id=row["id"], question=row["question"], chunks=(), answer=answer)
    # a text may be split in two when it stands between others: its label goes by where it stands
    ends, end = [], 0
    for text, relevant in parts:
        end += len(text) + 1
        ends.append((end, relevant))
    numbered = {
        sentence.number: next(relevant for end, relevant in ends if sentence.start < end)
        for sentence in split_sentences(answer)
    }
    return Mixed(record=record, relevant=numbered)


async def compare_all(mixed: Sequence[Mixed], judge: Judge, at_once: int) -> list[Compared]:
    slots, found = asyncio.Semaphore(at_once), []

    async def one(each: Mixed) -> None:
        async with slots:
            try:
                found.append(await compare(each, judge))
            except JudgeError as failed:
                print(f"{each.record.id}: {failed}", file=sys.stderr)
            print(f"\r{len(found)} of {len(mixed)}", end="", file=sys.stderr, flush=True)

    async with asyncio.TaskGroup() as group:
        for each in mixed:
            group.create_task(one(each))
    print(file=sys.stderr)
    await judge.aclose()
    return found


async def compare(mixed: Mixed, judge: Judge) -> Compared:
    steps = Steps(mixed.record, judge, limits=StepLimits(relevance="separate"))
    merged = (await steps.extract()).statements
    extract = steps.usage
    separate = await steps.statements()
    spent = steps.usage
    return Compared(
        merged=pairs(mixed, merged),
        separate=pairs(mixed, separate),
        extract=extract,
        relevance=Usage(
            calls=spent.calls - extract.calls,
            input_tokens=spent.input_tokens - extract.input_tokens,
            output_tokens=spent.output_tokens - extract.output_tokens,
        ),
    )


def pairs(mixed: Mixed, statements: Sequence[Statement]) -> list[Pair]:
    return [(known, judged(number, statements)) for number, known in mixed.relevant.items()]


def judged(number: int, statements: Sequence[Statement]) -> bool | None:
    labels = {each.relevance for each in statements if number in each.sentences} - {VerdictLabel.UNJUDGED}
    return bool(labels - {VerdictLabel.IRRELEVANT}) if labels else None


def report(rows: Sequence[Compared]) -> None:
    if not rows:
        print("no answer was judged")
        return
    known = [known for row in rows for known, _ in row.merged]
    print(f"{len(rows)} answers, {len(known)} sentences, {known.count(False)} of them from another answer")
    for name, of in (("merged", merged_pairs), ("separate", separate_pairs)):
        print(f"{name:9} balanced accuracy {with_interval(rows, lambda some, of=of: balanced(of(some)))}")
        print(f"          {shares(of(rows))}")
    print(f"separate - merged: {with_interval(rows, difference)}")
    for name, spent in (
        ("step A", total(r.extract for r in rows)),
        ("step R", total(r.relevance for r in rows)),
    ):
        print(
            f"{name}: {spent.calls / len(rows):.2f} calls, {spent.input_tokens / len(rows):.0f} + "
            f"{spent.output_tokens / len(rows):.0f} tokens an answer"
        )


def merged_pairs(rows: Sequence[Compared]) -> list[Pair]:
    return [pair for row in rows for pair in row.merged]


def separate_pairs(rows: Sequence[Compared]) -> list[Pair]:
    return [pair for row in rows for pair in row.separate]


def shares(found: Sequence[Pair]) -> str:
    sides = [[said for known, said in found if known is side and said is not None] for side in (True, False)]
    own, foreign = (
        sum(said is side for said in each) / max(1, len(each))
        for side, each in zip((True, False), sides, strict=True)
    )
    unjudged = sum(said is None for _, said in found)
    return (
        f"own sentences found relevant {own:.2f}, foreign found irrelevant {foreign:.2f}, unjudged {unjudged}"
    )


def difference(rows: Sequence[Compared]) -> float | None:
    merged, separate = balanced(merged_pairs(rows)), balanced(separate_pairs(rows))
    return None if merged is None or separate is None else separate - merged


def balanced(found: Sequence[Pair]) -> float | None:
    sides = [
        [said is side for known, said in found if known is side and said is not None]
        for side in (True, False)
    ]
    return sum(sum(side) / len(side) for side in sides) / 2 if all(sides) else None


def with_interval(rows: Sequence[Compared], measure: Callable[[Sequence[Compared]], float | None]) -> str:
    drawn = random.Random(0)
    samples = (measure(drawn.choices(rows, k=len(rows))) for _ in range(BOOTSTRAPS))
    values = sorted(value for value in samples if value is not None)
    point = measure(rows)
    if point is None or not values:
        return "not defined"
    low, high = values[int(0.025 * len(values))], values[int(0.975 * len(values))]
    return f"{point:.3f} [{low:.3f}, {high:.3f}]"


def total(usages: Iterable[Usage]) -> Usage:
    return sum(usages, Usage())


if __name__ == "__main__":
    main(sys.argv[1:])
