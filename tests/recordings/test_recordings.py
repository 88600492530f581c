"""Every recording is one readable trace that tells nothing of the machine it was made on."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

from ragtrace.traces import otlp
from tests.recordings import through_tempo
from tests.recordings.scenarios import SCENARIOS

FOLDER = Path(__file__).parents[1] / "data" / "recordings"
FILES = sorted(FOLDER.glob("*.json"))
LOGS = sorted(FOLDER.glob("*.logs.jsonl"))
VERCEL = {f"{version}.{how}" for version in ("vercel", "vercel-legacy") for how in ("generate", "stream")}
OF_A_MACHINE = re.compile(
    r"/(?:home|opt|root|tmp|usr|work)/|site-packages|\.venv|process\.pid|host\.name|service\.version|-dirty"
)


def recording(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_every_scenario_has_a_recording_and_every_recording_a_scenario() -> None:
    scenarios = {name for name, scenario in SCENARIOS.items() if not scenario.kind}
    assert {file.stem for file in FILES} == scenarios | VERCEL | through_tempo.NAMES


def test_log_records_lie_beside_each_trace_whose_content_is_in_events() -> None:
    in_events = {
        name for name, scenario in SCENARIOS.items() if "EVENT" in "".join(scenario.environment.values())
    }
    assert {file.name.removesuffix(".logs.jsonl") for file in LOGS} == in_events


def test_log_records_are_of_the_spans_of_their_trace() -> None:
    for file in LOGS:
        text = file.read_text(encoding="utf-8")
        trace = json.dumps(recording(file.with_name(file.name.replace(".logs.jsonl", ".json")))["trace"])
        spans = set(re.findall(r'"spanId": "(\w+)"', trace))
        assert spans >= set(re.findall(r'"spanId":"(\w+)"', text)) != set(), file.name


def test_recording_is_one_trace() -> None:
    for file in FILES:
        request = otlp.parse_request(json.dumps(recording(file)["trace"]).encode(), encoding="json")
        assert len(otlp.split_by_trace(request).slices) == 1, file.name


def test_recording_has_no_facts_of_a_machine() -> None:
    for file in (*FILES, *LOGS, *FOLDER.glob("streams/*.json")):
        text = file.read_text(encoding="utf-8")
        assert not OF_A_MACHINE.search(text), file.name
        assert socket.gethostname() not in text, file.name


def test_true_answer_is_made_of_the_true_chunks_if_there_are_any() -> None:
    for file in FILES:
        truth = recording(file)["truth"]
        context = " ".join(chunk["text"] for chunk in truth["chunks"])
        stands_in_chunks = all(sentence in context for sentence in truth["answer"].split(". "))
        assert stands_in_chunks if truth["chunks"] else file.stem.endswith("-talk"), file.name
