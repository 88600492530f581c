"""A model behind an HTTP endpoint that is exchanged while the judge's name stays: what drift is about."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gullible_model import gullible_reply, running_model


@dataclass(slots=True)
class DriftingModel:
    """Judges honestly, or as strictly as a test says."""

    url: str = ""
    strictness: float = 0.0
    """The share of claims that it calls not mentioned, whatever the chunks say."""
    model: str | None = "m-2026-01-01"
    """Who answers: ``model`` of its replies."""
    fingerprint: str | None = None
    calls: int = 0
    is_broken: bool = False

    def reply(self, body: Mapping[str, Any]) -> Any:
        self.calls += 1
        if self.is_broken:
            return {"nothing": "of use"}
        completion = gullible_reply(body)
        message = completion["choices"][0]["message"]
        value = json.loads(message["content"])
        for verdict in value.get("verdicts", ()):
            drawn = zlib.crc32(f"{body['messages'][1]['content'][-400:]}{verdict['id']}".encode()) % 100
            if drawn < 100 * self.strictness:
                verdict.update(label="not_mentioned", chunks=[], quote="")
        message["content"] = json.dumps(value)
        completion["model"] = self.model
        if self.fingerprint:
            completion["system_fingerprint"] = self.fingerprint
        return completion


@contextmanager
def running_drifting_model() -> Iterator[DriftingModel]:
    """Serve it on a free loopback port until the block ends."""
    model = DriftingModel()
    with running_model(model.reply) as model.url:
        yield model


def write_anchors(folder: Path, *, number: int = 24) -> Path:
    """Write labeled answers: each third one has a claim that its chunk does not support."""
    file = folder / f"anchors-{number}.jsonl"
    with file.open("w") as out:
        for at in range(number):
            said = f"Refunds of parcel {at} take {10 + at} days."
            wrong = at % 3 == 0
            claim = f"Refunds of parcel {at} need seventeen signatures everywhere." if wrong else said
            row = {
                "id": f"anchor-{at}",
                "question": f"How long do refunds of parcel {at} take?",
                "contexts": [said],
                "answer": claim,
                "claims": [{"text": claim, "label": "unsupported" if wrong else "supported"}],
            }
            out.write(json.dumps(row) + "\n")
    return file
