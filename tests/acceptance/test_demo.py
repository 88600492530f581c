"""``ragtrace demo`` does the whole job with nothing set up, and shows it in a back end where there is one."""

from __future__ import annotations

import html
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.demo_environment import ROOT, locked, make_demo_environment
from tests.acceptance.judge_server import running_judge
from tests.backends.jaeger_server import Jaeger
from tests.backends.process import eventually, free_ports
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SAMPLE = ROOT / "examples" / "data" / "ragtruth_qa_sample.jsonl"
DEMO = [sys.executable, "-m", "ragtrace.cli", "demo"]


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
    *verdicts, last = (json.loads(line) for line in finished.stdout.splitlines())
    return verdicts, last["summary"]


@dataclass(frozen=True)
class Terminal:
    process: subprocess.Popen[bytes]
    screen: Path
    url: Path

    def opened(self) -> str | None:
        """Return what the browser was asked for."""
        return self.url.read_text().strip() if self.url.exists() else None

    def text(self) -> str:
        return self.screen.read_text()


@contextmanager
def running_in_terminal(folder: Path, *options: str) -> Iterator[Terminal]:
    """Run the demo in a terminal of its own, with a browser that writes down what it is asked for."""
    browser, url, screen = folder / "browser", folder / "url", folder / "screen"
    browser.write_text(f'#!/bin/sh\necho "$1" > {url}.new && mv {url}.new {url}\n')
    browser.chmod(0o755)
    theirs, ours = pty.openpty()
    environ = {**os.environ, "COLUMNS": "80", "BROWSER": f"{browser} %s"}
    process = subprocess.Popen(
        [*DEMO, *options], stdin=ours, stdout=ours, stderr=ours, env=environ, start_new_session=True
    )
    os.close(ours)
    reading = threading.Thread(target=_copy, args=(theirs, screen))
    reading.start()
    try:
        yield Terminal(process=process, screen=screen, url=url)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reading.join()
        os.close(theirs)


def _copy(terminal: int, screen: Path) -> None:
    with screen.open("wb", buffering=0) as file, suppress(OSError):  # it is closed at the other end
        while data := os.read(terminal, 4096):
            file.write(data)


def page_at(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
        return str(reply.read().decode())


def test_it_needs_nothing_and_shows_a_wrong_claim_in_about_ten_lines(tmp_path: Path) -> None:
    finished = run("--to", "otlp-file:copy.jsonl", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    (link,) = [line for line in finished.stdout.splitlines() if line.startswith("Its trace: ")]
    shown = [line for line in finished.stdout.splitlines() if line != link]
    assert len(shown) <= 14
    assert max(map(len, shown)) <= 80
    assert "http://" not in finished.stdout  # the page ends with the demo
    text = " ".join(line.strip() for line in shown)
    assert "human:ragtruth, the annotators' own labels replayed: 12 pass, 12 fail." in text
    assert "lexical, a heuristic without a key, agrees with people on" in text
    assert "contradicted by passage-1: “The first known reference of the Gemini" in text
    assert len((tmp_path / "copy.jsonl").read_text().splitlines()) > 0


def test_json_lines_stand_beside_the_labels_of_people(tmp_path: Path) -> None:
    finished = run("--json", "--limit", "6", "--to", f"otlp-file:{tmp_path / 'copy.jsonl'}")
    verdicts, summary = lines(finished)
    assert [line["judge"].partition(":")[0] for line in verdicts] == ["human", "lexical"] * 6
    sample = {row["id"]: row["claims"] for row in map(json.loads, SAMPLE.read_text().splitlines())}
    for line in verdicts[::2]:
        flawed = [claim["text"] for claim in sample[line["id"]] if claim["label"] != "supported"]
        assert [each["claim"] for each in line["verdicts"] if each["label"] != "supported"] == flawed
        assert line["label"] == ("fail" if flawed else "pass")
    counts = summary["agreements"]["lexical"]
    assert (summary["missing"], counts["scored"] + counts["unscored"]) == (0, 6)
    assert "around 300 years ago" in summary["wrong_claim"]["claim"]


def test_a_trace_in_jaeger_holds_the_verdict_of_people(jaeger: Jaeger) -> None:
    people, _ = lines(run("--json", "--limit", "1", "--to", jaeger.otlp_grpc))[0]
    spans = jaeger.wait_for_trace(people["trace_id"], spans=4)["spans"]
    said = {
        tags["ragtrace.judge.provider"]: span["operationName"]
        for span in spans
        if "ragtrace.judge.provider" in (tags := {tag["key"]: tag["value"] for tag in span["tags"]})
    }
    assert said == {"human": "evaluation fail"}


CLAIM = {"id": 1, "text": "It is so.", "kind": "factual", "relevance": "direct"}
REPLIES: dict[str, Any] = {
    "extract": {"claims": [CLAIM | {"sentence_ids": [*range(1, 17)]}], "refusal": False},
    "verify": {"verdicts": [{"id": 1, "chunks": [], "quote": "", "label": "not_mentioned", "reason": "No."}]},
}


def test_a_back_end_that_is_not_there_is_said_at_once() -> None:
    (port,) = free_ports(1)
    finished = run("--to", f"http://127.0.0.1:{port}")
    assert finished.returncode == 2
    assert "nothing listens there" in finished.stderr


def test_in_a_terminal_it_opens_the_page_on_the_wrong_claim_and_stays_until_ctrl_c(tmp_path: Path) -> None:
    with running_in_terminal(tmp_path, "--open", "--limit", "3") as shown:
        url = eventually(shown.opened, what="the page in a browser", deadline_s=PATIENCE_S)
        page = html.unescape(page_at(url))
        marked = re.findall(r'<mark class="contradicted[^>]*>(?:<[^>]*>)*([^<]+)', page)
        assert "The first known reference to the Gemini constellation was in Aristotle's" in " ".join(marked)
        assert "The first known reference of the Gemini constellation" in " ".join(marked)
        assert "human:ragtruth" in page
        assert "There is no evaluation" not in page
        assert shown.process.poll() is None
        os.killpg(shown.process.pid, signal.SIGINT)
        assert shown.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in shown.text()
    assert url in shown.text().replace("\r\n", "")


def test_whoever_ends_it_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--stay", "--no-open"],
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert "answers of RAGTruth flow" in process.stdout.readline()
    eventually(lambda: any(tmp_path.glob("*/traces/*.jsonl")), what="a verdict", deadline_s=PATIENCE_S)
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    assert "Traceback" not in errors
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_its_environment_has_under_forty_packages_of_the_versions_that_are_tested() -> None:
    packages, tested = locked(), locked(ROOT / "locks/development.txt")
    assert len(packages) < 40
    assert packages.items() <= tested.items()


def run_in(python: Path, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "ragtrace.cli", "demo", "--json", "--limit", "3"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_it_runs_with_the_packages_of_its_lock_alone_and_asks_a_judge(tmp_path: Path) -> None:
    python = make_demo_environment(tmp_path / "environment")
    finished = run_in(python, tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert lines(finished)[1]["missing"] == 0
    with running_judge(REPLIES) as judge:
        asked = run_in(python, tmp_path, OPENAI_BASE_URL=judge.base_url, OPENAI_API_KEY="test")
    verdicts, summary = lines(asked)
    assert [*summary["agreements"]] == ["lexical", "openai:gpt-4o-mini"]
    assert [line["score"] for line in verdicts[2::3]] == [0.0, 0.0, 0.0], asked.stderr
    assert judge.calls == 6
