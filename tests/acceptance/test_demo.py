"""``ragtrace demo`` does the whole job with nothing set up, and shows it in a back end where there is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.demo_environment import ROOT, locked, make_demo_environment
from tests.acceptance.judge_server import running_judge
from tests.backends.jaeger_server import Jaeger
from tests.backends.process import free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-m", "ragtrace.cli", "demo", "--rate", "50"]


def run(*options: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *options],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "80", **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def lines(finished: subprocess.CompletedProcess[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    *answers, last = (json.loads(line) for line in finished.stdout.splitlines())
    return answers, last["summary"]


def test_it_needs_nothing_and_judges_every_answer(tmp_path: Path) -> None:
    finished = run("--to", "otlp-file:copy.jsonl", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "Judge and people agree on" in finished.stdout
    assert "lexical, a heuristic" in finished.stdout
    *shown, link = finished.stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert link.startswith("trace ")
    assert len((tmp_path / "copy.jsonl").read_text().splitlines()) > 0


def test_json_lines_stand_beside_the_labels_of_people(tmp_path: Path) -> None:
    finished = run("--json", "--limit", "6", "--to", f"otlp-file:{tmp_path / 'copy.jsonl'}")
    answers, summary = lines(finished)
    assert (len(answers), summary["missing"]) == (6, 0)
    assert summary["scored"] + summary["unscored"] == 6
    assert all(isinstance(answer["human"]["faithful"], bool) for answer in answers)


def test_the_link_leads_to_the_trace_and_its_verdict(jaeger: Jaeger) -> None:
    options = ("--to", jaeger.otlp_grpc, "--ui", jaeger.query_url)
    (answer, *_), _ = lines(run("--json", "--limit", "2", *options))
    assert answer["link"] == f"{jaeger.query_url}/trace/{answer['trace_id']}"
    names = [span["operationName"] for span in jaeger.wait_for_trace(answer["trace_id"], spans=4)["spans"]]
    assert f"evaluation {answer['label']}" in names


def test_with_an_endpoint_set_it_asks_that_judge() -> None:
    claim = {"id": 1, "text": "It is so.", "kind": "factual", "relevance": "direct"}
    replies: dict[str, Any] = {
        "extract": {"claims": [claim | {"sentence_ids": [*range(1, 17)]}], "refusal": False},
        "verify": {
            "verdicts": [{"id": 1, "chunks": [], "quote": "", "label": "not_mentioned", "reason": "No."}]
        },
    }
    with running_judge(replies) as judge:
        finished = run("--json", "--limit", "3", OPENAI_BASE_URL=judge.base_url, OPENAI_API_KEY="test")
    answers, summary = lines(finished)
    assert summary["judge"] == "openai:gpt-4o-mini"
    assert [answer["score"] for answer in answers] == [0.0, 0.0, 0.0]
    assert judge.calls == 6


def test_a_back_end_that_is_not_there_is_said_at_once() -> None:
    (port,) = free_ports(1)
    finished = run("--to", f"http://127.0.0.1:{port}")
    assert finished.returncode == 2
    assert "nothing listens there" in finished.stderr


def test_tracing_that_is_turned_off_is_said_at_once() -> None:
    finished = run("--limit", "1", OTEL_SDK_DISABLED="true")
    assert finished.returncode == 2
    assert "OTEL_SDK_DISABLED" in finished.stderr


def test_ctrl_c_ends_it_cleanly() -> None:
    process = subprocess.Popen(
        [*DEMO[:-2], "--rate", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "score" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_its_environment_has_under_forty_packages_of_the_versions_that_are_tested() -> None:
    packages, tested = locked(), locked(ROOT / "requirements.lock")
    assert len(packages) < 40
    assert packages.items() <= tested.items()


def test_it_runs_with_the_packages_of_its_lock_alone(tmp_path: Path) -> None:
    python = make_demo_environment(tmp_path / "environment")
    finished = subprocess.run(
        [python, "-m", "ragtrace.cli", "demo", "--json", "--limit", "3", "--rate", "50"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert lines(finished)[1]["missing"] == 0
