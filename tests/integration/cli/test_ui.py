"""``ragtrace ui``: over a store, a file or a back end, until Ctrl-C; what it cannot read, it says at once."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragtrace.traces.otlp import encode_json
from tests.integration.cli.program import run, start
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace


@pytest.fixture
async def judged(tmp_path: Path) -> Path:
    """Return a folder with the store and the exports of a collector that judged two answers."""
    out = tmp_path / "out.jsonl"
    config = config_of(tmp_path, export=[{"endpoint": f"otlp-file:{out}", "forward": True}])
    async with running_collector(config) as collector:
        for number in (0, 1):
            await post(collector, request_of(*rag_trace(number)))
        await until(lambda: out.exists() and out.read_bytes().count(b"ragtrace.schema") >= 2)
    return tmp_path


@contextmanager
def page(*args: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """Start the command on a free port; end it at last."""
    process = start("ui", "--no-open", "--listen", "127.0.0.1:0", *args)
    try:
        assert process.stderr
        said = process.stderr.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found, said
        with httpx.Client(base_url=found[0], timeout=PATIENCE_S, trust_env=False) as client:
            yield client, process
    finally:
        process.kill()
        process.communicate()


def listed(client: httpx.Client, count: int) -> list[dict[str, Any]]:
    """Return the rows, once there are so many: a search goes on while the page is shown."""
    for _ in range(int(PATIENCE_S * 10)):
        rows = client.get("/answers.jsonl").text.splitlines()
        if len(rows) >= count:
            return [json.loads(row) for row in rows]
        client.get("/answers")
    raise AssertionError(rows)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["store:{}/store.db", "{}/out.jsonl"])
def test_answers_are_listed_and_opened_and_ctrl_c_ends_it(judged: Path, source: str) -> None:
    with page("--from", source.format(judged), "--set", "ui.links.Mine=http://x/{trace_id}") as (
        client,
        process,
    ):
        rows = listed(client, 2)
        for row in rows:
            answer = client.get(f"/answers/{row['trace_id']}/{row['span_id']}")
            assert answer.status_code == 200
            assert f"http://x/{row['trace_id']}" in answer.text
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert b"Traceback" not in err
    assert out == b""


@pytest.mark.slow
def test_a_configuration_says_which_store_and_which_tokens(judged: Path) -> None:
    config = {
        "export": [{"endpoint": "http://localhost:4317"}],
        "store": {"path": str(judged / "store.db")},
        "receive": {"tokens": [{"name": "me", "sha256": "0" * 64, "may": ["read"]}]},
    }
    (judged / "collector.yaml").write_text(json.dumps(config))
    with page("--config", str(judged / "collector.yaml")) as (client, _):
        assert client.get("/answers").headers["location"].startswith("/login")


def test_without_a_store_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGTRACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    told = run("ui", "--no-open")
    assert told.exit_code == 2
    for way in ("ragtrace collector", "--from store:PATH", "--from jaeger:"):
        assert way in told.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--from", "missing.jsonl"], "there is no file 'missing.jsonl', and it is not an address"),
        (["--from", "store:text.txt"], "cannot be read as a collector's store"),
        (["--from", "file:text.txt", "--listen", "0.0.0.0:0"], "tokens"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_used_is_told_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("no database, and no spans\n" * 100)
    told = run("ui", "--no-open", *args)
    assert told.exit_code in (1, 2)
    assert said in " ".join(told.stderr.split())


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    spans = tmp_path / "spans.jsonl"
    spans.write_text(encode_json(rag_trace(0)) + "\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = run("ui", "--no-open", "--from", f"file:{spans}", "--listen", f"127.0.0.1:{port}")
    assert told.exit_code == 2
    assert f"cannot listen on '127.0.0.1:{port}'" in told.stderr
