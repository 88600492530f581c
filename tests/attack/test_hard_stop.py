"""The event loop hangs in code of a user's own: SIGTERM ends the process, nothing acknowledged is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ragtrace_collector.operations.signals import HardStop
from tests.acceptance.collector_process import collector_process, settings_of
from tests.attack.attacked import send, stored_traces
from tests.backends.process import eventually
from tests.integration.collector.running import carriers_in
from tests.patience import PATIENCE_S
from tests.rag_spans import trace_id_of

ANSWERS = 4
HANGS = {
    "busy": "while True: pass",
    "asleep": "time.sleep(3_600)",
    "in a pattern": "re.fullmatch('(a+)+$', 'a' * 60 + 'b')",  # holds the interpreter, too
}
JUDGE = """
import re, time
from pathlib import Path
from ragtrace.judge import open_judge

def open_it(settings):
    return Hanging()

class Hanging:
    def __init__(self):
        self.identity = open_judge("scripted").identity

    async def ask(self, request):
        Path({mark!r}).touch()
        {hang}

    async def aclose(self):
        pass
"""


def config_of(folder: Path, judge: str) -> dict[str, Any]:
    return settings_of(folder, judge={"use": judge}, drain_timeout="500ms", log_format="json")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hang", "number"),
    [
        ("asleep", signal.SIGTERM),
        ("in a pattern", signal.SIGTERM),
        pytest.param("in a pattern", signal.SIGINT, marks=pytest.mark.night),
        pytest.param("busy", signal.SIGTERM, marks=pytest.mark.night),
    ],
)
def test_a_process_whose_loop_hangs_ends_when_told_to_and_loses_nothing(
    hang: str, number: signal.Signals, tmp_path: Path
) -> None:
    mark = tmp_path / "hangs"
    (tmp_path / "judge.py").write_text(JUDGE.format(mark=str(mark), hang=HANGS[hang]))
    with collector_process(tmp_path, config_of(tmp_path, "./judge.py:open_it")) as collector:
        acknowledged = send(collector, range(ANSWERS))
        eventually(mark.exists, what="the judge that hangs")
        collector.process.send_signal(number)
        assert collector.process.wait(PATIENCE_S) == 1
    told = collector.log.read_text()
    if hang == "asleep":  # else nothing of ours runs any more
        assert "stop_forced" in told
        assert "unfinished work is on disk" in told
    assert acknowledged == [trace_id_of(number) for number in range(ANSWERS)]
    assert stored_traces(tmp_path / "store.db") == set(acknowledged)
    with collector_process(tmp_path, config_of(tmp_path, "lexical")):
        eventually(lambda: len(carriers_in(tmp_path / "out.jsonl")) == ANSWERS, what="all carriers")
    assert sorted(span.trace_id for span in carriers_in(tmp_path / "out.jsonl")) == sorted(acknowledged)


def test_a_stop_that_cannot_say_so_leaves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where whoever reads the log does not, and what hangs holds the log's lock."""
    import logging
    import threading

    left, silent = threading.Event(), threading.Event()
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda _: silent.wait())
    logging.getLogger("ragtrace.collector").addHandler(handler)
    stop = HardStop(lambda _: left.set())
    try:
        stop.arm(0.01)
        assert left.wait(30)
    finally:
        silent.set()
        stop.disarm()
        logging.getLogger("ragtrace.collector").removeHandler(handler)


def test_a_stop_is_armed_by_the_signal_itself_and_once() -> None:
    """In a signal's handler no lock may be taken that the interrupted code could hold."""
    import threading

    ended: list[int] = []
    done = threading.Event()
    stop = HardStop(lambda code: (ended.append(code), done.set()))
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.arm(0.05))
    try:
        with threading._active_limbo_lock:  # type: ignore[attr-defined]  # as in the midst of starting a thread
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
        assert done.wait(30)
        assert ended == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)
        stop.disarm()
