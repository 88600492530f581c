"""The event loop hangs in code of a user's own: SIGTERM ends the process, nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.collector_process import collector_process, settings_of
from tests.attack.attacked import send, stored_traces
from tests.backends.process import eventually
from tests.integration.collector.running import carriers_in
from tests.patience import PATIENCE_S
from tests.rag_spans import trace_id_of

ANSWERS = 4
HANGS = {
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
@pytest.mark.parametrize("hang", HANGS)
def test_a_process_whose_loop_hangs_ends_when_told_to_and_loses_nothing(hang: str, tmp_path: Path) -> None:
    mark = tmp_path / "hangs"
    (tmp_path / "judge.py").write_text(JUDGE.format(mark=str(mark), hang=HANGS[hang]))
    with collector_process(tmp_path, config_of(tmp_path, "./judge.py:open_it")) as collector:
        acknowledged = send(collector, range(ANSWERS))
        eventually(mark.exists, what="the judge that hangs")
        collector.process.terminate()
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
