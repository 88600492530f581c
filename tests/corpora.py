"""Ten collections of stored answers, as unlike one another as applications are.

Their texts are the questions, passages and answers of the RAGTruth sample in ``examples/data`` (MIT; see the
NOTICE there), the cases of ``tests/data/conformance.dev.jsonl``, and sentences written for this file.
"""

# ruff: noqa: RUF001  this module handles other scripts

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ragtrace.sentences import split_sentences
from ragtrace.traces.trace import Trace
from tests.typical_model import Habits
from tests.unit.backfill.stored_traces import plain_trace, rag_trace

_ROOT = Path(__file__).parents[1]
_OTHERS = (
    "Bestellungen können innerhalb von vierzehn Tagen nach Erhalt der Ware zurückgegeben werden.",
    "Die Erstattung erfolgt in der Regel fünf Werktage nach Eingang der Rücksendung in unserem Lager.",
    "订单可以在收到商品后的十四天内退货，前提是包装没有损坏。",
    "退款通常需要五个工作日，周末和节假日不计算在内。",
    "Заказы можно вернуть в течение четырнадцати дней после получения товара.",
    "Возврат денег обычно занимает пять рабочих дней после того, как склад получил посылку.",
    "ऑर्डर को सामान मिलने के चौदह दिनों के भीतर वापस किया जा सकता है।",
    "Orders can be returned within fourteen days of receipt if the packaging is whole.",
)
_REFUSAL = "I cannot answer this based on the given passages."


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
    rows = _rows("examples/data/ragtruth_qa_sample.jsonl")
    return tuple(
        Call(
            question=row["question"],
            passages=[each["text"] for each in row["contexts"]],
            answer=row["answer"],
        )
        for row in rows
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
    """Make calls of passages and answers that need not belong together."""
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


def _first_sentences(chance: Random) -> list[Call]:
    calls = _mixed(chance, 80, passages=(1, 2), answers=(1, 1))
    return [_answering(call, split_sentences(str(call.answer))[0].text) for call in calls]


def _answering(call: Call, answer: str | None) -> Call:
    return Call(question=call.question, passages=call.passages, answer=answer)


def _half_recorded(chance: Random) -> list[Call]:
    calls = _mixed(chance, 70, passages=(2, 4), answers=(1, 1))
    gone = [Call(question=call.question, passages=(), answer=call.answer) for call in calls[:10]]
    return [*gone, *(_answering(call, None) for call in calls[10:20]), *calls[20:]]


def _again_and_again(chance: Random) -> list[Call]:
    calls = _mixed(chance, 10, passages=(2, 5), answers=(1, 2)) * 7
    chance.shuffle(calls)
    return calls


def _many_tongues(chance: Random) -> list[Call]:
    return [
        Call(
            question=chance.choice(_OTHERS),
            passages=[" ".join(chance.choices(_OTHERS, k=6)) for _ in range(chance.randint(2, 5))],
            answer=" ".join(chance.choices(_OTHERS, k=chance.randint(1, 7))),
        )
        for _ in range(60)
    ]


def _few_giants(chance: Random) -> list[Call]:
    small = _mixed(chance, 70, passages=(1, 2), answers=(1, 1))
    giants = _mixed(chance, 8, passages=(15, 30), answers=(4, 8))
    return [*giants, *small]


def _refusing(chance: Random) -> list[Call]:
    calls = _mixed(chance, 70, passages=(3, 5), answers=(1, 1))
    return [_answering(call, _REFUSAL) if chance.random() < 0.4 else call for call in calls]


CORPORA: Mapping[str, Corpus] = {
    "as they are": Corpus(calls=lambda _: (*_sample(), *_sample()[:12]), chats=5),
    "one sentence": Corpus(calls=_first_sentences),
    "long answers": Corpus(
        calls=lambda chance: _mixed(chance, 40, passages=(3, 6), answers=(2, 5)), model="gpt-4.1-nano"
    ),
    "many chunks": Corpus(
        calls=lambda chance: _mixed(chance, 45, passages=(10, 40), answers=(1, 2)),
        metrics="faithfulness,context_relevance",
        habits=Habits(counts_schema=False),
    ),
    "half recorded": Corpus(
        calls=_half_recorded, chats=20, habits=Habits(claims=(0.0, 0.5, 0.5), reason_words=(15, 40))
    ),
    "again and again": Corpus(calls=_again_and_again, metrics="hallucination,answer_relevance"),
    "many tongues": Corpus(calls=_many_tongues, model="gpt-4o", habits=Habits(bytes_a_token=3.2)),
    "short cases": Corpus(
        calls=lambda chance: chance.choices(_cases(), k=80),
        metrics="faithfulness,context_relevance,answer_relevance",
        habits=Habits(forgets=0.08, malformed=0.05),
    ),
    "few giants": Corpus(calls=_few_giants, habits=Habits(letters_a_token=6.0)),
    "refusing": Corpus(
        calls=_refusing,
        model="gpt-4.1",
        habits=Habits(claims=(0.3, 0.7, 0.0), reason_words=(0, 5), quote_chars=(0, 40)),
    ),
}
