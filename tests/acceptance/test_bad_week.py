"""A bad week on the page, exported, mended, and shown to be better by the gate of CI."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from time import time_ns
from typing import Any

import grpc
import httpx
import pytest

from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.process import eventually
from tests.integration.cli.program import json_lines, run
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ANSWERS, WRONG = 60, 40


def asked(number: int) -> Mapping[str, Any]:
    """Two of three answers say another number of days than the chunk."""
    right = f"Branch {number} takes parcels back within 14 days."
    answer = right.replace("14", "30") if number % 3 else right
    return {"question": f"How long does branch {number} take?", "chunks": (right,), "answer": answer}


@pytest.mark.slow
def test_a_bad_week_becomes_a_test_set_and_the_gate_says_when_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings_of(tmp_path, judge={"use": "scripted"}, ui={"listen": "127.0.0.1:0"})
    with collector_process(tmp_path, config) as collector:
        with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
            for number in range(ANSWERS):
                spans = rag_trace(number, start_ns=time_ns(), **asked(number))
                channel.unary_unary(EXPORT)(encode(spans), timeout=PATIENCE_S)
        store = f"store:{tmp_path / 'store.db'}"
        judged = f"{ANSWERS}  100.0%  judged"
        eventually(lambda: judged in run("ledger", "--from", store).stdout, what="every verdict")
        page = f"http://127.0.0.1:{collector.ui_port}"
        failed = httpx.get(f"{page}/answers?label=fail").text
        (link,) = re.findall(r'href="(/answers.records[^"]*)"', failed)
        Path("week.jsonl").write_text(httpx.get(f"{page}{link}".replace("&amp;", "&")).text, "utf-8")
        assert collector.stop() == 0

    rows = json_lines(Path("week.jsonl").read_text("utf-8"))
    assert len(rows) == WRONG
    mended = [{**row, "answer": row["answer"].replace("30", "14")} for row in rows]
    Path("mended.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in mended), "utf-8")
    for name in ("week", "mended"):
        done = run("evaluate", f"{name}.jsonl", "--judge", "scripted", "--out", f"{name}.report.jsonl")
        assert done.exit_code == 0, done.stderr

    gate = ("--fail-if", "possibly worse by more than 0.02")
    better = run("compare", "week.report.jsonl", "mended.report.jsonl", *gate)
    assert better.exit_code == 0, better.output
    assert "40 pairs (40 by record id)" in better.stdout
    assert "40 to pass, 0 to fail" in better.stdout
    worse = run("compare", "mended.report.jsonl", "week.report.jsonl", *gate)
    assert worse.exit_code == 1, worse.output
    assert "0 to pass, 40 to fail" in worse.stdout
