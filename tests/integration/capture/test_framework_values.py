"""What frameworks and vector stores really return is read: run in the environment that has them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

SCRIPT = Path(__file__).with_name("apps") / "framework_values.py"
METADATA = {"p": 1}

CHUNKS: dict[str, Any] = {
    "langchain": [{"id": "a", "content": "A", "metadata": METADATA}],
    "langchain with scores": [{"id": "a", "score": 0.5, "content": "A"}],
    "llama-index": [{"id": "a", "score": 0.5, "content": "A"}],
    "llama-index response": [{"id": "a", "content": "A"}],
    "haystack": [{"id": "a", "score": 0.5, "content": "A"}],
    "chroma query": [
        {"id": "a", "distance": 0.0, "content": "A", "metadata": METADATA},
        {"id": "b", "distance": 2.0, "content": "B", "metadata": METADATA},
    ],
    "chroma get": [
        {"id": "a", "content": "A", "metadata": METADATA},
        {"id": "b", "content": "B", "metadata": METADATA},
    ],
    "qdrant response": [{"id": "1", "score": 0.5, "content": "A"}],
    "qdrant points": [{"id": "1", "score": 0.5, "content": "A"}],
    "weaviate": [{"id": "7b0f8a52-3d0e-4f0f-9d3a-3c1f1a5e2b11", "score": 0.5, "content": "A"}],
    "faiss": None,
}
"""What stands on the span; nothing where a search gives rows of an index only, as FAISS does."""


@pytest.mark.slow
def test_chunks_and_answers_of_frameworks_are_read_as_they_are(frameworks: Path) -> None:
    ended = subprocess.run(
        [frameworks, SCRIPT],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={"HOME": "/"},
    )
    told = dict(json.loads(line) for line in ended.stdout.splitlines())
    assert told.pop("unread") == 1
    assert {name: told.pop(f"retrieval {name}") for name in CHUNKS} == CHUNKS
    assert set(told.values()) == {"Ada"}
