"""The collector is told to stop: once it drains, twice it leaves, and nothing is lost either way."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.acceptance.collector_process import collector_process
from tests.acceptance.judge_server import running_judge
from tests.acceptance.test_crash import REPLIES, carriers, config_of, send
from tests.backends.process import eventually
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ANSWERS = 12


@pytest.fixture(autouse=True)
def judge_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")


def test_a_signal_drains_what_is_ready_and_ends_with_success(tmp_path: Path) -> None:
    with (
        running_judge(REPLIES) as judge,
        collector_process(tmp_path, config_of(tmp_path, judge)) as collector,
    ):
        send(collector, 0, ANSWERS)
        assert collector.stop() == 0
        assert collector.process.stdout is not None
        stopped = json.loads(collector.process.stdout.read())
    assert stopped["counts"]["judged"] == len(carriers(tmp_path)) == ANSWERS


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
