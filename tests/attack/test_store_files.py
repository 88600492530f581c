"""The store's files, its clock and its loop fail under a collector: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ragtrace.answers.port import AnswerFilter
from ragtrace.traces.otlp import SpanRef, TraceSlice, parse_request, split_by_trace
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.acceptance.collector_process import collector_process, settings_of
from tests.attack.attacked import idle_config, readiness, send, stored_traces
from tests.backends.process import eventually
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import START_NS, rag_trace, trace_id_of

pytestmark = pytest.mark.slow


def part(trace_id: str) -> TraceSlice:
    return TraceSlice(trace_id=trace_id, payload=b"x", spans=(SpanRef(span_id="s1", parent_span_id=None),))


def test_acknowledged_answers_outlive_a_deleted_log_and_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with collector_process(tmp_path, idle_config(tmp_path)) as collector:
        acknowledged = send(collector, range(30))
        assert readiness(collector)[0] == 200
        (tmp_path / "store.db-wal").unlink()
        eventually(lambda: readiness(collector)[0] == 503, what="/readyz to say that it is not ready")
        assert "store.db-wal" in readiness(collector)[1]
        acknowledged += send(collector, range(30, 35))
        collector.kill()
    assert len(acknowledged) == 30
    with collector_process(tmp_path, idle_config(tmp_path)) as collector:
        assert readiness(collector)[0] == 200
        acknowledged += send(collector, range(40, 42))
        assert collector.stop() == 0
    assert stored_traces(store) >= set(acknowledged)


@pytest.mark.parametrize(("name", "how"), [("-shm", "deleted"), ("-wal", "replaced")])
async def test_nothing_is_acknowledged_into_a_log_that_is_gone(tmp_path: Path, name: str, how: str) -> None:
    path = tmp_path / "store.db"
    store = await Store.open(SqliteFile(path), max_bytes=50 << 20)
    try:
        await store.append([part("t1")], forward={}, now_ns=1)
        file = path.with_name(f"{path.name}{name}")
        copy = file.read_bytes()
        file.unlink()
        if how == "replaced":
            file.write_bytes(copy)
        with pytest.raises(
            StoreUnavailable, match=rf"store\.db{name}.*stop the collector and start it again"
        ):
            await store.append([part("t2")], forward={}, now_ns=2)
        with pytest.raises(StoreUnavailable, match=rf"store\.db{name}"):
            await store.check()
    finally:
        await store.aclose()


def by_hard_link(store: Path, folder: Path) -> Path:
    link = folder / "hard.db"
    os.link(store, link)
    return link


def by_symbolic_link(store: Path, folder: Path) -> Path:
    link = folder / "soft.db"
    link.symlink_to(store)
    return link


Way = Callable[[Path, Path], Path]
WAYS: dict[Way, str] = {
    by_hard_link: "has a second name",
    by_symbolic_link: "in use by another collector",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_second_collector_process_ends_with_what_to_do(tmp_path: Path, way: Way) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    store = first / "store.db"
    with collector_process(first, idle_config(first)) as collector:
        acknowledged = send(collector, range(5))
        file = second / "collector.yaml"
        file.write_text(json.dumps(idle_config(second, store=way(store, second))))
        ended = subprocess.run(
            [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(file)],
            cwd=second,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, WAYS[way] in ended.stderr) == (2, True), ended.stderr
        acknowledged += send(collector, range(5, 10))
        assert readiness(collector)[0] == 200
        collector.kill()
    assert len(acknowledged) == 10
    assert stored_traces(store) == set(acknowledged)


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


@pytest.mark.parametrize("hang", HANGS)
def test_a_process_whose_loop_hangs_ends_when_told_to_and_loses_nothing(hang: str, tmp_path: Path) -> None:
    assemble = {"quiet_period": "2s", "deadline": "9s"}  # all are sent before one is judged
    hanging = partial(settings_of, tmp_path, assemble=assemble, drain_timeout="500ms", log_format="json")
    mark = tmp_path / "hangs"
    (tmp_path / "judge.py").write_text(JUDGE.format(mark=str(mark), hang=HANGS[hang]))
    with collector_process(tmp_path, hanging(judge={"use": "./judge.py:open_it"})) as collector:
        acknowledged = send(collector, range(ANSWERS))
        eventually(mark.exists, what="the judge that hangs")
        collector.process.terminate()
        assert collector.process.wait(PATIENCE_S) == 1
    told = collector.log.read_text()
    assert "Timeout (" in told
    assert "judge.py" in told, "it says where it hangs"
    assert acknowledged == [trace_id_of(number) for number in range(ANSWERS)]
    assert stored_traces(tmp_path / "store.db") == set(acknowledged)
    with collector_process(tmp_path, hanging(judge={"use": "lexical"})):
        eventually(lambda: len(carriers_in(tmp_path / "out.jsonl")) == ANSWERS, what="all carriers")
    assert sorted(span.trace_id for span in carriers_in(tmp_path / "out.jsonl")) == sorted(acknowledged)


AHEAD_NS = 200 * 86_400 * 10**9


async def judge(stepped: Stepped, number: int) -> None:
    began = START_NS + (stepped.clock.time_ns - START_NS) // 10**9 * 10**9
    await stepped.send(*rag_trace(number, start_ns=began))
    await stepped.pass_time(60)
    await stepped.collector.pipeline._expire()


async def listed(stepped: Stepped) -> list[str]:
    page = await stepped.collector.pipeline.store.answers.page(AnswerFilter())
    return sorted(answer.key.trace_id for answer in page.answers)


async def test_a_clock_that_is_far_ahead_at_the_start_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path, judge={"use": "lexical"}, index={"max_age": "168h"})
    async with stepped_collector(config) as stepped:
        await judge(stepped, 0)
    stepped.clock.wrong_by_ns = AHEAD_NS
    async with stepped_collector(config, clock=stepped.clock) as stepped:
        await stepped.collector.pipeline._expire()
        assert await listed(stepped) == [trace_id_of(0)]
    assert "200 days ahead of the newest judged answer" in caplog.text


async def test_a_clock_that_was_set_back_over_a_restart_holds_up_no_retry(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"error": "judge_unavailable"}')
    config = config_of(
        tmp_path,
        judge={"use": f"scripted:{script}"},
        evaluate={"retry_delays": ["1m"], "probe_delays": ["1s"]},
    )
    async with stepped_collector(config) as stepped:
        await stepped.send(*rag_trace(0))
        await stepped.pass_time(5)
        assert await listed(stepped) == []
    stepped.clock.wrong_by_ns = -3600 * 10**9
    script.write_text("{}")
    async with stepped_collector(config, clock=stepped.clock) as stepped:
        await stepped.pass_time(120)
        assert await listed(stepped) == [trace_id_of(0)]


def stored(folder: Path) -> set[str]:
    with closing(sqlite3.connect(folder / "store.db")) as db:
        return {row[0] for row in db.execute("SELECT trace_id FROM trace")}


async def call_and_go_away(collector: Collector, body: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", collector.http_port)
    head = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()


async def test_what_callers_who_went_away_left_on_disk_is_judged_without_a_restart(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await asyncio.gather(
            *(call_and_go_away(collector, request_of(*rag_trace(number))) for number in range(20))
        )
        await until(lambda: stored(tmp_path))
        assert (await post(collector, request_of(*rag_trace(20)))).status_code == 200
        await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) >= len(stored(tmp_path)) > 1)
        assert collector.counters.snapshot()["traces_swept"] == 0
    judged = sorted(span.trace_id for span in carriers_in(tmp_path / "out.jsonl"))
    assert judged == sorted(stored(tmp_path))


async def test_a_stored_trace_that_no_stage_has_is_found_by_a_sweep_and_judged(tmp_path: Path) -> None:
    async with stepped_collector(config_of(tmp_path)) as spans:
        body = request_of(*rag_trace(0))
        slices = split_by_trace(parse_request(body, encoding="protobuf"), body=body).slices
        await spans.collector.pipeline.store.append(slices, forward={}, now_ns=spans.clock.now_ns())
        await spans.send(*rag_trace(1))
        for _ in range(2):  # what is committed now is announced soon: the second time, nobody had it
            await spans.collector.pipeline.sweeper.step()
        await spans.pass_time(1)
        await spans.pass_time(1)
        assert await spans.outcomes() == {"judged": 2}
        assert spans.collector.counters.snapshot()["traces_swept"] == 1
