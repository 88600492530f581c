"""The power fails: what was acknowledged is on the disk, and what was told as delivered is where it went."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode
from ragtrace_collector.store.database import Database
from ragtrace_collector.store.ledger import read_ledger
from ragtrace_collector.store.sqlite import SqliteFile
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.attack.power_loss import Disk
from tests.backends.process import eventually
from tests.integration.cli.program import start
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

PROTOBUF: Final = {"content-type": "application/x-protobuf"}
SENDERS: Final = 4
ANSWERS: Final = 120
LUCKS: Final = (0.0, 0.5, 1.0)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    try:
        return Disk.mounted(tmp_path)
    except FileNotFoundError:
        if os.environ.get("RAGTRACE_REQUIRE_BACKENDS"):
            raise
        pytest.skip("there is no C compiler: install gcc")


def config_of(folder: Path) -> Mapping[str, Any]:
    return settings_of(
        folder,
        receive={"grpc": None, "http": "127.0.0.1:0"},
        assemble={"quiet_period": "50ms", "deadline": "5m", "linger": "1h"},
        judge={"use": "scripted"},
        attach={"carrier_time": "target"},
        telemetry={"listen": None},
    )


def acknowledged_until_the_power_fails(collector: CollectorProcess, *, answers: int) -> set[str]:
    """Send from several threads at once, and kill the collector when so many answers are acknowledged."""
    acknowledged: set[str] = set()
    enough = threading.Event()

    def keep_sending(first: int) -> None:
        number = first
        with httpx.Client(base_url=f"http://127.0.0.1:{collector.http_port}", timeout=PATIENCE_S) as client:
            while not enough.is_set():
                headers = {"content-type": "application/x-protobuf"}
                try:
                    answer = client.post("/v1/traces", content=encode(rag_trace(number)), headers=headers)
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    acknowledged.add(trace_id_of(number))
                if len(acknowledged) >= answers:
                    enough.set()
                number += SENDERS

    senders = [threading.Thread(target=keep_sending, args=(first,)) for first in range(SENDERS)]
    for sender in senders:
        sender.start()
    assert enough.wait(PATIENCE_S)
    collector.kill()
    for sender in senders:
        sender.join()
    return acknowledged


def carriers(folder: Path) -> Counter[str]:
    """Return how many carriers stand in the file, by trace."""
    file = folder / "out.jsonl"
    *lines, _under_way = file.read_text("utf-8", "replace").split("\n") if file.exists() else [""]
    spans = (span for line in lines if "\0" not in line for span in decode_json(line))
    return Counter(span.trace_id for span in spans if semconv.EVAL_STATUS in span.attributes)


def known(store: Path) -> set[str]:
    """Return the traces that a store knows of."""
    with closing(sqlite3.connect(store)) as db:
        return {row[0] for row in db.execute("SELECT trace_id FROM slice UNION SELECT trace_id FROM job")}


def delivered(store: Path) -> set[str]:
    """Return the traces whose carriers a store takes for delivered."""
    with closing(sqlite3.connect(store)) as db:
        return {row[0] for row in db.execute("SELECT trace_id FROM carrier WHERE state = 'delivered'")}


def accounted(database: Database) -> tuple[int, int]:
    with database.reading() as db:
        ledger = read_ledger(db)
    assert ledger.adds_up
    return ledger.seen, ledger.pending + ledger.outbox_items_in("waiting")


def test_what_was_acknowledged_outlives_a_power_loss_and_is_judged_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in the state folder, which the collector makes
    config = {name: value for name, value in config_of(disk.root).items() if name != "store"}
    with monkeypatch.context() as preloaded:
        for name, value in disk.environment.items():
            preloaded.setenv(name, value)
        with collector_process(disk.root, config) as collector:
            acknowledged = acknowledged_until_the_power_fails(collector, answers=ANSWERS)
    for left in [disk.after_power_loss(Random(1), luck=luck) for luck in LUCKS]:
        disk.restore(left)
        (store,) = map(SqliteFile, disk.root.rglob("ragtrace.db"))
        with collector_process(disk.root, config) as collector:
            eventually(lambda: acknowledged <= carriers(disk.root).keys(), what="every answer's carrier")
            eventually(lambda store=store: accounted(store)[1] == 0, what="nothing to be under way")
            assert collector.stop() == 0
        found = carriers(disk.root)
        assert b"\0" not in (disk.root / "out.jsonl").read_bytes(), "a damaged line was not mended"
        assert set(found.values()) == {1}, "a carrier stands there twice"
        assert accounted(store) == (len(found), 0)


_MOST_ANSWERS: Final = 40


def acknowledged_one_by_one(
    collector: CollectorProcess, *, answer: str = "Refunds take 14 days."
) -> Iterator[str]:
    """Send answers until the collector is gone; yield the traces that it acknowledged."""
    with httpx.Client(base_url=f"http://127.0.0.1:{collector.http_port}", timeout=PATIENCE_S) as client:
        for number in range(_MOST_ANSWERS):
            body = encode(rag_trace(number, answer=f"{answer} {number}."))
            try:
                told = client.post("/v1/traces", content=body, headers=PROTOBUF)
            except httpx.TransportError:
                return
            if told.status_code == 200:
                yield trace_id_of(number)


def test_whatever_the_power_fails_in_nothing_that_was_told_is_gone(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails right before a sync, and nothing survives but what was synced before."""
    folder = disk.root / "verdicts"  # which the sink makes
    config = {**config_of(disk.root), "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}]}
    make_store(disk, monkeypatch, config)
    with started_on(disk, monkeypatch, disk.failing_at(15), config) as collector:
        acknowledged = set(acknowledged_one_by_one(collector))
        collector.kill()
    disk.restore(disk.after_power_loss(Random(15), luck=0))
    assert 0 < len(acknowledged) < _MOST_ANSWERS, "the power did not fail meanwhile"
    assert acknowledged <= known(disk.root / "store.db")
    assert delivered(disk.root / "store.db") <= carriers(folder).keys()


def make_store(disk: Disk, monkeypatch: pytest.MonkeyPatch, config: Mapping[str, Any]) -> None:
    """Let a collector make its tables, whose syncs are not those that fail."""
    with started_on(disk, monkeypatch, disk.environment, config) as collector:
        assert collector.stop() == 0


@contextmanager
def started_on(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], config: Mapping[str, Any]
) -> Iterator[CollectorProcess]:
    with monkeypatch.context() as preloaded:
        for name, value in environment.items():
            preloaded.setenv(name, value)
        with collector_process(disk.root, config) as collector:
            yield collector


@pytest.mark.parametrize("report", ["rows.jsonl", "page.html"])
def test_a_report_that_was_written_outlives_a_power_loss(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    records, out = tmp_path / "records.jsonl", disk.root / report
    records.write_text('{"question": "How long?", "contexts": ["14 days."], "answer": "It takes 14 days."}\n')
    for name, value in disk.environment.items():
        monkeypatch.setenv(name, value)
    with start("evaluate", str(records), "--judge", "lexical", "--out", str(out)) as evaluating:
        evaluating.communicate(timeout=PATIENCE_S)
    assert evaluating.returncode == 0
    assert disk.after_power_loss(Random(15), luck=0)[report] == out.read_bytes() != b""
