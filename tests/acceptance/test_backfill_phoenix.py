"""Scores of a collector are in a real Phoenix where it shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.collector_process import collector_process
from tests.acceptance.judge_server import JudgeServer, running_judge
from tests.acceptance.replies import REPLIES
from tests.backends.phoenix_server import Phoenix
from tests.backends.process import eventually
from tests.patience import PATIENCE_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "minimal_rag.py"
QUESTIONS = ("How long is the warranty?", "What costs a belt?")


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    with running_judge(REPLIES) as server:
        yield server


def ask_questions(project: str, *, endpoint: str) -> None:
    """Run an application that sends its spans to an OTLP/HTTP endpoint."""
    env = {
        **os.environ,
        "PYTHONPATH": ":".join(path for path in sys.path if path),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}",
    }
    for question in QUESTIONS:
        subprocess.run([sys.executable, EXAMPLE, question], env=env, check=True, timeout=PATIENCE_S)


def answers(phoenix: Phoenix, project: str) -> set[str]:
    """Return the spans of whole RAG calls."""
    spans = phoenix.spans(project)
    return {span["context"]["span_id"] for span in spans if span["name"] == "invoke_workflow handbook"}


def test_a_collector_writes_live_verdicts_on_the_spans_that_it_forwards(
    phoenix: Phoenix, judge: JudgeServer, tmp_path: Path
) -> None:
    name = "app-live"
    config = {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "200ms", "deadline": "5s"},
        "judge": {"use": "openai:rule", "base_url": judge.base_url, "api_key": "not-a-key"},
        "export": [
            {"endpoint": f"{phoenix.url}/v1/traces", "forward": True},
            {"endpoint": f"phoenix:{phoenix.url}"},
        ],
    }
    with collector_process(tmp_path, config) as collector:
        ask_questions(name, endpoint=f"http://127.0.0.1:{collector.http_port}")
        eventually(lambda: len(phoenix.annotations(name)) == len(QUESTIONS), what="the verdicts in Phoenix")
    found = phoenix.annotations(name)
    assert {each["span_id"] for each in found} == answers(phoenix, name)
    assert {(each["name"], each["result"]["label"]) for each in found} == {("faithfulness", "pass")}
    assert {each["metadata"]["ragtrace.eval.mode"] for each in found} == {"append"}
