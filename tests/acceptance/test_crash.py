"""kill -9 of the collector, or a stop: every acknowledged answer is judged, once."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.traces.trace import Span
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.acceptance.judge_server import JudgeServer, running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.backends.process import eventually
from tests.integration.collector.running import carriers_in
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
from tests.timeless import without_durations

pytestmark = pytest.mark.slow


ANSWERS = 24
CONCURRENCY = 4
VOLATILE = {semconv.EVAL_RUN_ID, semconv.EVAL_STARTED_AT, semconv.EVAL_DURATION_MS}


def config_of(folder: Path, judge: JudgeServer) -> Mapping[str, Any]:
    rule = {"use": "openai:rule", "base_url": judge.base_url, "api_key_env": "JUDGE_KEY"}
    return settings_of(
        folder, judge={**rule, "max_concurrency": CONCURRENCY}, attach={"carrier_time": "target"}
    )


def send(collector: CollectorProcess, first: int, last: int) -> None:
    """Send answers and return when all are acknowledged."""
    for number in range(first, last):
        assert collector.send(*rag_trace(number, answer=ANSWER)).status_code == 200


def carriers(folder: Path) -> Sequence[Span]:
    return carriers_in(folder / "out.jsonl")


def settled(spans: Sequence[Span]) -> list[Span]:
    """Leave out what differs between any two runs: the run's id and its times."""
    return sorted(
        (
            replace(
                without_durations(span),
                attributes={k: v for k, v in span.attributes.items() if k not in VOLATILE},
            )
            for span in spans
        ),
        key=lambda span: span.trace_id,
    )


@pytest.fixture(autouse=True)
def judge_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Span]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch, running_judge(REPLIES) as judge:
        patch.setenv("JUDGE_KEY", "test")
        with collector_process(folder, config_of(folder, judge)) as collector:
            send(collector, 0, ANSWERS)
            eventually(lambda: len(carriers(folder)) == ANSWERS, what="all carriers")
    return settled(carriers(folder))


def test_a_killed_collector_ends_its_work_after_a_restart(tmp_path: Path, undisturbed: list[Span]) -> None:
    """Midway; at night, `tests.faults` kills it everywhere."""
    calls = 9
    with running_judge(REPLIES) as judge:
        config = config_of(tmp_path, judge)
        judge.hold_from(calls)
        with collector_process(tmp_path, config) as collector:
            send(collector, 0, ANSWERS)
            judge.wait_for_calls(calls)
            collector.kill()
        before = len(carriers(tmp_path))
        judge.release()
        with collector_process(tmp_path, config):
            eventually(lambda: len(carriers(tmp_path)) >= ANSWERS, what="all carriers")
    assert before < ANSWERS
    assert settled(carriers(tmp_path)) == undisturbed


def test_a_collector_killed_while_spans_wait_judges_them_after_a_restart(
    tmp_path: Path, undisturbed: list[Span]
) -> None:
    with running_judge(REPLIES) as judge:
        config = {**config_of(tmp_path, judge), "assemble": {"quiet_period": "1h", "deadline": "1h"}}
        with collector_process(tmp_path, config) as collector:
            send(collector, 0, ANSWERS)
            collector.kill()
        assert judge.calls == 0
        with collector_process(tmp_path, config_of(tmp_path, judge)):
            eventually(lambda: len(carriers(tmp_path)) >= ANSWERS, what="all carriers")
    assert settled(carriers(tmp_path)) == undisturbed


def test_a_second_signal_ends_the_drain_and_loses_nothing(tmp_path: Path) -> None:
    with running_judge(REPLIES) as judge:
        config = {**config_of(tmp_path, judge), "drain_timeout": "1h"}
        judge.gate.clear()
        with collector_process(tmp_path, config) as collector:
            send(collector, 0, ANSWERS)
            judge.wait_for_calls(1)
            collector.process.send_signal(signal.SIGTERM)
            eventually(lambda: "stopping" in collector.log.read_text(), what="the drain")
            collector.process.send_signal(signal.SIGINT)
            assert collector.process.wait(PATIENCE_S) == 130
        assert "Traceback" not in collector.log.read_text()
        judge.gate.set()
        with collector_process(tmp_path, config):
            eventually(lambda: len(carriers(tmp_path)) == ANSWERS, what="all carriers")
