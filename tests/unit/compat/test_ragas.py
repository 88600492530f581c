"""RAGAS' rules, as 0.4.3 showed them when it was run on the same replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ragtrace.compat.ragas import RagasUnreadable, Statements, read_leniently, read_to_the_letter
from ragtrace.compat.tool import ToolOptions, tool_named
from ragtrace.model import Chunk, RagRecord
from ragtrace.ports import FreeText
from tests.unit.compat.double import CannedCalls

OBSERVED = Path(__file__).parents[2] / "data" / "ragas.observed.jsonl"


class OneAfterTheOther(CannedCalls):
    """Gives replies in their order, whatever is asked; the last one repeats."""

    def __init__(self, in_order: Sequence[str | list[str]], vectors: dict[str, list[float]]) -> None:
        super().__init__({}, vectors)
        self._in_order = in_order

    async def text(self, step: str, prompt: str, **settings: Any) -> FreeText:
        reply = self._in_order[min(len(self.asked), len(self._in_order) - 1)]
        self.asked.append(step)
        text, finish = (reply, "stop") if isinstance(reply, str) else reply
        # RAGAS was given repaired replies in the object that it asks for
        return FreeText(
            text=json.dumps({"text": text}) if step == "fix" else text, cut_off=finish == "length"
        )


def record_of(case: dict[str, Any]) -> RagRecord:
    chunks = [Chunk(id=str(rank), text=text, rank=rank) for rank, text in enumerate(case["contexts"])]
    return RagRecord(
        id=case["id"],
        question=case["question"],
        chunks=tuple(chunks),
        answer=case["answer"],
        reference=case["reference"],
    )


async def difference(case: dict[str, Any]) -> str | None:
    calls = OneAfterTheOther(case["replies"], case.get("embeddings", {}))
    try:
        run = await tool_named(case["metric"], case["profile"]).run(record_of(case), calls, ToolOptions())
    except KeyError:  # a text without a vector
        return None if case["status"] == "error" else "it embeds another text"
    found = [run.status.value, len(calls.asked), run.score or 0.0]
    expected = [case["status"], case["n_calls"], pytest.approx(case["score"] or 0.0, rel=1e-9, abs=1e-9)]
    return None if found == expected else f"{found} instead of {expected}"


def is_without_reference(case: dict[str, Any]) -> bool:
    """RAGAS raises here, and has its other metric for that: context_precision then is context_utilization."""
    return case["metric"] == "context_precision" and not case["reference"] and case["status"] == "error"


async def test_every_reply_is_made_of_what_ragas_made_of_it() -> None:
    cases = [json.loads(line) for line in OBSERVED.read_text("utf-8").splitlines()]
    found = {
        f"{case['id']} {case['profile']}": await difference(case)
        for case in cases
        if not is_without_reference(case)
    }
    assert len(found) > 400
    assert {name: what for name, what in found.items() if what} == {}


def test_what_neither_reads_is_said_without_quoting_it() -> None:
    for reply in ["", "no", "[1]", '{"statements": "x"}', '{"statements": [1]}', "{]}", "{" * 9]:
        for read in (read_leniently, read_to_the_letter):
            with pytest.raises(RagasUnreadable) as caught:
                read(reply, Statements)
            assert "{]}" not in str(caught.value)
