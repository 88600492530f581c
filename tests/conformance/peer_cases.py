"""The cases that were run against the real tools: what their judge replied, and what they reported."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragtrace.model import CompatStatus, RagRecord

CASES = Path(__file__).parents[1] / "data" / "conformance.dev.jsonl"

PEERS = {
    "ragas": ("ragas", ("ragas",)),
    "ragas_legacy": ("ragas-legacy", ("ragas_legacy", "ragas")),
    "deepeval": ("deepeval-4", ("deepeval4",)),
    "deepeval_3.9.9": ("deepeval-3", ("deepeval3",)),
    "promptfoo": ("promptfoo", ("promptfoo",)),
    "rag_evals": ("rag_evals", ("rag_evals",)),
}
"""The profile of a peer, and where its recorded replies stand. `deepeval_native`, deepeval with an endpoint
that keeps a schema by itself, is no profile: it reads no text."""


@dataclass(frozen=True, kw_only=True)
class PeerCase:
    """One case, and what one peer made of it."""

    case: dict[str, Any]
    peer: str

    def __str__(self) -> str:
        return f"{self.case['id']}-{self.profile}"

    @property
    def profile(self) -> str:
        return PEERS[self.peer][0]

    @property
    def metric(self) -> str:
        metric: str = self.case["metric"]
        return metric

    @property
    def expected(self) -> dict[str, Any]:
        expected: dict[str, Any] = self.case["expected"][self.peer]
        return expected

    @property
    def status(self) -> CompatStatus:
        return CompatStatus(self.expected["status"])

    @property
    def embeddings(self) -> dict[str, list[float]]:
        embeddings: dict[str, list[float]] = self.case["input"].get("embeddings", {})
        return embeddings

    @property
    def row(self) -> dict[str, Any]:
        """The record as a row of a file."""
        parts = {key: value for key, value in self.case["input"].items() if key != "embeddings"}
        return {"id": self.case["id"], **parts}

    @property
    def record(self) -> RagRecord:
        row = self.row
        return RagRecord.of(
            question=row["question"],
            contexts=row["contexts"],
            answer=row["answer"],
            reference=row.get("reference"),
        )

    @property
    def replies(self) -> list[str]:
        """What the peer's model replied, call by call."""
        if self.peer == "rag_evals":
            return [_one_reply(self.metric, self.case["neutral"])]
        outputs = self.case["outputs"]
        steps = next(outputs[family] for family in PEERS[self.peer][1] if family in outputs)
        times: Counter[str] = Counter()
        replies = []
        for step in (call.removeprefix("fix:") for call in self.expected["calls"]):
            replies.append(steps[step][min(times[step], len(steps[step]) - 1)])
            times[step] += 1
        return replies


def _one_reply(metric: str, neutral: dict[str, Any]) -> str:
    """Write the one reply of a rag_evals metric: it was not run, and has no recorded one."""
    if metric == "faithfulness":
        supported = [verdict["label"] == "S" for verdict in neutral["verdicts"]]
        listed = zip(neutral["claims"], supported, strict=True)
        return json.dumps({"statements": [{"statement": text, "is_supported": yes} for text, yes in listed]})
    graded = [{"id_chunk": n, "score": bool(yes)} for n, yes in enumerate(neutral["node_verdicts"])]
    return json.dumps({"graded_chunks": graded})


def read_cases() -> list[PeerCase]:
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [PeerCase(case=case, peer=peer) for case in cases for peer in case["expected"] if peer in PEERS]
