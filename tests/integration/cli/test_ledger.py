"""``ragtrace ledger``: the account as people and machines read it, of a real store."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragtrace.budget import Budget, Limit, Period, Spend
from ragtrace.model import Sample
from ragtrace.process import SystemClock
from ragtrace_collector.ledger import State
from ragtrace_collector.sampling import Decision
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.store import Store
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.rag_spans import rag_trace
from tests.stores.place import open_budget

HOUR_NS = 3600 * 10**9
RATIO = Sample(rule="ratio", rate=0.5, probability=0.5)
DROP = Sample(rule="health-checks", rate=0.0, probability=None)


@pytest.fixture
async def store(store: Store) -> Store:
    """Four answers: an old one judged; of today one that failed, one left out by a rule, and one pending."""
    now_ns = time.time_ns()
    await settle(store, "a", service="shop", tenant="acme", now_ns=now_ns - 2 * HOUR_NS)
    await end(store, State.JUDGED, now_ns=now_ns - 2 * HOUR_NS)
    await settle(store, "b", service="search", now_ns=now_ns)
    await end(store, State.FAILED.because("judge_timeout"), now_ns=now_ns)
    left_out = Decision(span_id="s", sample=DROP, service="shop", left_out=State.FILTERED)
    await store.decide_trace("c", jobs=[], outcomes=[left_out], keep_spans=False, now_ns=now_ns)
    await settle(store, "d", service="shop", now_ns=now_ns)
    return store


async def settle(store: Store, trace: str, *, service: str, tenant: str = "", now_ns: int) -> None:
    job = Job(trace_id=trace, span_id="s", sample=RATIO, service=service, tenant=tenant)
    await store.decide_trace(trace, jobs=[job], outcomes=[], keep_spans=False, now_ns=now_ns)


async def end(store: Store, outcome: str, *, now_ns: int) -> None:
    (job,) = await store.take_jobs(1, now_ns=now_ns)
    await store.finish(job, outcome, outbox_items={"grpc://tempo:4317": b"carrier"}, now_ns=now_ns)


def told(path: Path, *options: str) -> dict[str, Any]:
    result = run("ledger", "--from", f"store:{path}", "--json", *options)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.output)
    return report


def rows(report: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = report["rows"]
    return found


async def test_seen_is_what_is_pending_and_what_ended(store: Store, path: Path) -> None:
    report = told(path)
    assert (report["seen"], report["pending"], report["ended"], report["adds_up"]) == (4, 1, 3, True)
    assert rows(report) == {"judged": 1, "failed": 1, "filtered": 1, "queued": 1}
    assert report["oldest_pending_ns"] > time.time_ns() - HOUR_NS


async def test_it_adds_up_by_what_is_asked_for(store: Store, path: Path) -> None:
    for by, expected in (
        ("reason", {"judged": 1, "failed:judge_timeout": 1, "filtered": 1, "queued": 1}),
        ("rule", {"ratio": 3, "health-checks": 1}),
        ("service", {"shop": 3, "search": 1}),
        ("tenant", {"": 3, "acme": 1}),
    ):
        assert rows(told(path, "--by", by)) == expected, by


async def test_since_leaves_out_what_was_seen_before(store: Store, path: Path) -> None:
    report = told(path, "--since", "1h")
    assert report["seen"] == 3
    assert rows(report) == {"failed": 1, "filtered": 1, "queued": 1}


async def test_the_totals_outlive_what_the_store_forgets(store: Store, path: Path) -> None:
    later = time.time_ns() + HOUR_NS
    await store.expire(decided_before_ns=later, ended_before_ns=later)
    assert rows(told(path)) == {"judged": 1, "failed": 1, "filtered": 1, "queued": 1}
    assert rows(told(path, "--since", "1d")) == {"queued": 1}


async def test_people_read_it_in_80_columns_with_what_to_do(store: Store, path: Path) -> None:
    output = run("ledger", "--from", f"store:{path}", "--by", "reason").output
    assert output.startswith("4 answers seen = 3 ended + 1 pending (the oldest for ")
    assert "           1   25.0%  failed:judge_timeout\n" in output
    assert "raise `judge.timeout`" in " ".join(output.split())
    assert "to grpc://tempo:4317: 2 waiting" in output
    assert max(map(len, output.splitlines())) <= 80


async def test_an_account_that_does_not_add_up_is_told(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE ledger SET number = number + 1 WHERE state = 'judged'")
        db.commit()
    result = run("ledger", "--from", f"store:{path}")
    assert result.exit_code == 1
    assert "do not add up" in result.output


CONFIG = """
budget: {live: {month: [5 USD, 1000 calls]}}
drift: {anchors: builtin, budget: 200 calls}
store: {path: %s}
"""


@pytest.fixture
async def config(path: Path, store: Store, tmp_path: Path) -> Path:
    file = tmp_path / "collector.yaml"
    file.write_text(CONFIG % path)
    live = Budget(name="live", limits={Period.MONTH: Limit(calls=1000, usd_nano=5_000_000_000)})
    spent = Spend(calls=250, tokens=90_000, usd_nano=1_250_000_000)
    async with open_budget(path) as book:
        await book.reserve(live, spent, now_ns=SystemClock().now_ns())
    return file


async def test_what_judging_cost_is_shown_of_each_limit_and_until_when(config: Path) -> None:
    output = " ".join(run("ledger", "--config", str(config)).output.split())
    assert "budget live: month_calls 250 of 1,000 (25%), until 20" in output
    assert "budget live: month_usd 1.2500 USD of 5.0000 USD (25%), until 20" in output
    assert "budget drift: day_calls 0 of 200 (0%), until 20" in output
    (calls, usd, _) = json.loads(run("ledger", "--config", str(config), "--json").output)["limits"]
    assert (usd["budget"], usd["limit"], usd["spent"], usd["left"]) == ("live", "month_usd", 1.25, 3.75)
    assert (calls["most"], calls["resets_at"]) == (1000, usd["resets_at"])


async def test_what_was_refused_is_told_by_reason_and_sent_again(store: Store, path: Path) -> None:
    sink = "grpc://tempo:4317"
    await store.reject(await store.outbox_items(sink, 2), reason="400", now_ns=2)
    (refused,) = told(path)["refused"]
    assert (refused["sink"], refused["reason"], refused["requests"]) == (sink, "400", 2)
    shown = run("ledger", "--from", f"store:{path}").output
    assert f"refused by {sink} since 1970-01-01 00:00 UTC: 2 requests: 400" in " ".join(shown.split())
    result = run("ledger", "--from", f"store:{path}", "--send-refused")
    assert (result.exit_code, "2 requests sent again" in result.stderr) == (0, True)
    assert len(await store.outbox_items(sink, 10)) == 2
    assert (await store.ledger()).adds_up


async def test_a_running_collector_tells_the_same_on_its_pages(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await post(collector, request_of(*rag_trace(0)))
        while not (await collector.pipeline.store.ledger()).outbox_items_in("delivered"):  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)
        url = f"http://127.0.0.1:{collector.operations.port}"
        for options in ((), ("--since", "1h"), ("--by", "service")):
            asked = await asyncio.to_thread(run, "ledger", "--from", url, "--json", *options)
            own = {"limits", "refused"}  # they are told of the store only
            there, here = json.loads(asked.output), told(tmp_path / "store.db", *options)
            assert {**there, **dict.fromkeys(own)} == {**here, **dict.fromkeys(own)}
