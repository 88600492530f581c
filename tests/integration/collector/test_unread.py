"""Traces that hold text and in which nothing is read: counted by producer, and told with a mapping."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ragtrace_collector.ledger import Ledger
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.ledger import take_stock
from ragtrace_collector.store.sqlite import SqliteFile
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
from tests.reading.kinds import node, spans_of
from tests.reading.test_unread import FLAT

pytestmark = pytest.mark.slow

MAPPING = {"question": "acme.user_question", "context": "acme.hits", "answer": "acme.reply"}


async def settled(collector: Collector, number: int) -> Ledger:
    await until(lambda: collector.counters.snapshot()["traces_settled"] >= number)
    return await collector.pipeline.store.ledger()


async def page(collector: Collector, path: str) -> str:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        return (await client.get(f"http://127.0.0.1:{collector.operations.port}{path}")).text


async def test_they_are_counted_by_producer_and_told_with_a_mapping(tmp_path: Path) -> None:
    machine = node("GET /", {"http.route": "/a b", "db.statement": "select a from b"})
    async with running_collector(config_of(tmp_path)) as collector:
        for name, root in (("a", FLAT), ("b", FLAT), ("c", replace(FLAT, scope="shop")), ("d", machine)):
            await post(collector, request_of(*spans_of(name, root)))
        await post(collector, request_of(*rag_trace(0)))
        ledger = await settled(collector, 5)
        assert (ledger.seen, ledger.adds_up) == (1, True)
        assert {each.producer: each.number for each in ledger.unread} == {"app": 2, "shop": 1}
        assert 'ragtrace_traces_unread{producer="app"} 2.0' in await page(collector, "/metrics")
        assert json.loads(await page(collector, "/status"))["store"]["unread_traces"] == 3
        url = f"http://127.0.0.1:{collector.operations.port}"
        told = json.loads((await asyncio.to_thread(run, "ledger", "--from", url, "--json")).stdout)["unread"]
    assert [(each["producer"], each["traces"]) for each in told] == [("app", 2), ("shop", 1)]
    assert told[0]["mapping"] == MAPPING
    shown = " ".join(run("ledger", "--from", f"store:{tmp_path}/store.db").stdout.split())
    assert "2 traces of app unread" in shown
    assert "answer: [acme.reply]" in shown


async def test_the_doctor_shows_them_with_a_mapping_that_reads_the_next_ones(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await post(collector, request_of(*spans_of("a", FLAT)))
        await settled(collector, 1)
    file = tmp_path / "collector.yaml"
    export = f"otlp-file:{tmp_path / 'out.jsonl'}"
    file.write_text(f"store: {{path: {tmp_path / 'store.db'}}}\nexport: [{{endpoint: '{export}'}}]\n")
    shown = (await asyncio.to_thread(run, "doctor", "--config", str(file), "--json")).stdout.splitlines()
    (check,) = (each for each in map(json.loads, shown) if each["name"] == "unread")
    assert (check["status"], check["found"]) == ("warn", "nothing was read in 1 trace of app")
    assert "turn on" not in check["advice"]
    pasted = check["advice"].partition("`extract: ")[2].rstrip("`")
    assert all(f"{part}: [{path}]" in pasted for part, path in MAPPING.items())
    (account,) = take_stock(SqliteFile(tmp_path / "store.db")).unread
    mapped = config_of(tmp_path, extract={"mapping": dict(account.mapping)})
    async with running_collector(mapped) as collector:
        await post(collector, request_of(*spans_of("b", FLAT)))
        await until(lambda: collector.counters.snapshot()["answers_judged"])
        assert [each.number for each in (await collector.pipeline.store.ledger()).unread] == [1]
