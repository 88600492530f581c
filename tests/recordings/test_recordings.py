"""Every recording is one readable trace that tells nothing of the machine it was made on."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from ragtrace.traces import otlp
from tests.recordings import through_tempo
from tests.recordings.scenarios import SCENARIOS

FILES = sorted((Path(__file__).parents[1] / "data" / "recordings").glob("*.json"))
VERCEL = {f"{version}.{how}" for version in ("vercel", "vercel-legacy") for how in ("generate", "stream")}
OF_A_MACHINE = re.compile(
    r"/(?:home|opt|root|tmp|usr|work)/|site-packages|\.venv|process\.pid|host\.name|service\.version|-dirty"
)


def recording(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_every_scenario_has_a_recording_and_every_recording_a_scenario() -> None:
    assert {file.stem for file in FILES} == set(SCENARIOS) | VERCEL | through_tempo.NAMES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recording_is_one_trace_without_facts_of_a_machine(file: Path) -> None:
    trace = json.dumps(recording(file)["trace"])
    request = otlp.parse_request(trace.encode(), encoding="json")
    assert len(otlp.split_by_trace(request).slices) == 1
    assert not OF_A_MACHINE.search(trace)
    assert socket.gethostname() not in trace


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_true_answer_is_made_of_the_true_chunks_if_there_are_any(file: Path) -> None:
    truth = recording(file)["truth"]
    if not truth["chunks"]:
        assert file.stem.endswith("-talk")
        return
    context = " ".join(chunk["text"] for chunk in truth["chunks"])
    assert all(sentence in context for sentence in truth["answer"].split(". "))
