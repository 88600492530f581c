"""Collections of stored answers, as unlike one another as applications are.

Their texts are those of the RAGTruth sample in ``examples/data`` (MIT; see the NOTICE there) and of
``tests/data/conformance.dev.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ragtrace.traces.trace import Trace
from tests.typical_model import Habits
from tests.unit.backfill.stored_traces import plain_trace, rag_trace

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A question, the passages found for it, and the answer; ``None`` where it was not recorded."""

    question: str
    passages: Sequence[str]
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Answers, and who judges them by what."""

    calls: Callable[[Random], Iterable[Call]]
    habits: Habits = field(default_factory=Habits)
    metrics: str = "faithfulness"
    model: str = "gpt-4o-mini"
    chats: int = 0
    """Traces besides, without a RAG call."""

    def traces(self) -> list[Trace]:
        """Store the answers, one a trace."""
        found = [
            rag_trace(
                number,
                call.answer,
                question=call.question,
                chunks={f"{number}-{rank}": text for rank, text in enumerate(call.passages)},
                retrieves=bool(call.passages),
            )
            for number, call in enumerate(self.calls(Random(7)))
        ]
        return [*found, *(plain_trace(len(found) + number) for number in range(self.chats))]


@cache
def _sample() -> tuple[Call, ...]:
    return tuple(
        Call(question=row["question"], passages=[c["text"] for c in row["contexts"]], answer=row["answer"])
        for row in _rows("examples/data/ragtruth_qa_sample.jsonl")
    )


@cache
def _cases() -> tuple[Call, ...]:
    given = [row["input"] for row in _rows("tests/data/conformance.dev.jsonl")]
    return tuple(
        Call(question=each["question"], passages=each["contexts"], answer=each["answer"])
        for each in given
        if each.get("answer") and each.get("contexts")
    )


def _rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_ROOT / path).read_text("utf-8").splitlines()]


def _mixed(chance: Random, number: int, *, passages: tuple[int, int], answers: tuple[int, int]) -> list[Call]:
    texts = [text for call in _sample() for text in call.passages]
    told = [str(call.answer) for call in _sample()]
    return [
        Call(
            question=chance.choice(_sample()).question,
            passages=chance.choices(texts, k=chance.randint(*passages)),
            answer=" ".join(chance.choices(told, k=chance.randint(*answers))),
        )
        for _ in range(number)
    ]


def _half_recorded(chance: Random) -> list[Call]:
    calls = _mixed(chance, 70, passages=(2, 4), answers=(1, 1))
    gone = [replace(call, passages=()) for call in calls[:10]]
    return [*gone, *(replace(call, answer=None) for call in calls[10:20]), *calls[20:]]


def _few_giants(chance: Random) -> list[Call]:
    small = _mixed(chance, 70, passages=(1, 2), answers=(1, 1))
    return [*_mixed(chance, 8, passages=(15, 30), answers=(4, 8)), *small]


CORPORA: Mapping[str, Corpus] = {
    "as they are": Corpus(calls=lambda _: (*_sample(), *_sample()[:12]), chats=5),
    "long answers": Corpus(
        calls=lambda chance: _mixed(chance, 40, passages=(3, 6), answers=(2, 5)), model="gpt-4.1-nano"
    ),
    "half recorded": Corpus(
        calls=_half_recorded, chats=20, habits=Habits(claims=(0.0, 0.5, 0.5), reason_words=(15, 40))
    ),
    "short cases": Corpus(
        calls=lambda chance: chance.choices(_cases(), k=80),
        metrics="faithfulness,context_relevance,answer_relevance",
        habits=Habits(forgets=0.08, malformed=0.05),
    ),
    "few giants": Corpus(calls=_few_giants, habits=Habits(letters_a_token=6.0)),
}
