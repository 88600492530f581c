"""An answer that kills the collector's process: it is set aside, and all others are judged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from shutil import copy
from signal import SIGKILL
from typing import Any

import grpc
import pytest

from ragtrace.traces.otlp import encode
from ragtrace_collector.ledger import MOST_CRASHES
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.process import eventually
from tests.integration.collector import broken_metric
from tests.integration.collector.running import carriers_in
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

GOOD = 24
POISON = 7


def config_of(folder: Path) -> Mapping[str, Any]:
    copy(broken_metric.__file__, folder / "broken.py")
    return settings_of(folder, judge={"max_concurrency": 4}, evaluate={"metrics": ["./broken.py:Broken"]})


def send(collector: CollectorProcess) -> None:
    """Send one request with good answers, and among them one that kills whoever judges it."""
    traces = (rag_trace(number, answer="KILL" if number == POISON else "Good.") for number in range(GOOD + 1))
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        export(encode([span for trace in traces for span in trace]), timeout=PATIENCE_S)


def outcomes(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "store.db")) as db:
        return dict(db.execute("SELECT trace_id, outcome FROM job WHERE state = 'ended'").fetchall())


def judged(folder: Path) -> list[str]:
    return [span.trace_id for span in carriers_in(folder / "out.jsonl")]


def test_an_answer_that_kills_its_process_is_set_aside_and_all_others_are_judged(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with collector_process(tmp_path, config) as collector:
        send(collector)
        assert collector.process.wait(PATIENCE_S) == -SIGKILL
    for _ in range(MOST_CRASHES - 1):
        with collector_process(tmp_path, config) as collector:
            assert collector.process.wait(PATIENCE_S) == -SIGKILL
    with collector_process(tmp_path, config):
        eventually(lambda: len(outcomes(tmp_path)) == GOOD + 1, what="all answers")
        eventually(lambda: len(judged(tmp_path)) == GOOD, what="all carriers")
    ended = outcomes(tmp_path)
    assert ended.pop(trace_id_of(POISON)) == "failed:poison"
    assert set(ended.values()) == {"judged"}
    assert sorted(judged(tmp_path)) == sorted(ended)
    assert json.dumps("KILL") not in (tmp_path / "collector.log").read_text()
