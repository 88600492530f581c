"""Pages, own metrics and logs: what they tell is true at every moment, and never content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ragtrace import semconv
from ragtrace.traces.trace import Scope
from ragtrace_collector.service.collector import Collector
from tests.integration.cli.program import run
from tests.integration.collector.running import (
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.integration.collector.test_access import entry
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
from tests.reading.kinds import node, spans_of
from tests.reading.test_unread import FLAT
from tests.unit.backends.servers import HttpAnswer, http_server

pytestmark = pytest.mark.slow


async def get(collector: Collector, path: str, **headers: str) -> httpx.Response:
    url = f"http://127.0.0.1:{collector.operations.port}"
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        return await client.get(path, headers=headers)


async def scrape(collector: Collector) -> Sequence[Sample]:
    text = (await get(collector, "/metrics")).text
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def total(samples: Sequence[Sample], name: str, **labels: str) -> float:
    return sum(
        sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
    )


async def test_the_probes_say_that_it_lives_and_takes_spans(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        alive, ready = await get(collector, "/livez"), await get(collector, "/readyz")
    assert alive.json() == {"status": "alive"}
    assert (ready.status_code, ready.json()) == (
        200,
        {"ready": True, "judging": True, "reasons": [], "notes": []},
    )


async def test_the_port_without_a_path_lists_all_pages(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        listed = [line.split()[0] for line in (await get(collector, "/")).text.splitlines()]
        codes = {path: (await get(collector, path)).status_code for path in listed[:-1]}
    assert {*PAGES} - {"/"} < {*listed}
    assert codes == dict.fromkeys(listed[:-1], 200)


async def test_a_store_that_takes_nothing_is_told_as_the_reason_for_not_being_ready(tmp_path: Path) -> None:
    config = config_of(tmp_path, store={"max_bytes": 100_000}, assemble={"deadline": "1h"})
    async with running_collector(config) as collector:
        for number in range(1, 100):
            answer = await post(collector, request_of(*rag_trace(number, answer="x" * 10_000)[1:]))
            if answer.status_code != 200:
                break
        ready = await get(collector, "/readyz")
        samples = await scrape(collector)
    assert ready.status_code == 503
    assert "`store.max_bytes`" in ready.json()["reasons"][0]
    assert total(samples, "ragtrace_collector_ready") == 0
    assert (
        total(samples, "ragtrace_store_size_bytes") > total(samples, "ragtrace_store_limit_bytes") == 100_000
    )


async def test_pages_with_numbers_ask_for_a_token_and_probes_do_not(tmp_path: Path) -> None:
    tokens = [entry("test", "prometheus", may=["read"])]
    async with running_collector(config_of(tmp_path, receive={"tokens": tokens})) as collector:
        codes = {path: (await get(collector, path)).status_code for path in PAGES}
        allowed = {
            path: (await get(collector, path, authorization="Bearer test")).status_code for path in PAGES
        }
    assert codes == {"/": 200, "/livez": 200, "/readyz": 200, "/metrics": 401, "/status": 401}
    assert set(allowed.values()) == {200}


PAGES = ("/", "/livez", "/readyz", "/metrics", "/status")


@pytest.mark.parametrize("is_there", [True, False], ids=["overloaded", "down"])
async def test_a_judge_that_is_away_is_told_until_it_answers_again(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")
    with http_server(lambda _: HttpAnswer(status=503, body=b"{}")) as server:
        url = server.url if is_there else "http://127.0.0.1:9"
        judge = {"use": "openai:m", "base_url": f"{url}/v1", "api_key_env": "JUDGE_KEY"}
        async with running_collector(config_of(tmp_path, judge=judge)) as collector:
            await post(collector, request_of(*rag_trace(0)))
            await until(lambda: collector.vitals.judge_stopped())
            ready, samples = await get(collector, "/readyz"), await scrape(collector)
            await until(lambda: "has no score" in caplog.text)
    assert (ready.json()["ready"], ready.json()["judging"]) == (True, False)
    assert ready.json()["notes"] == ["nothing is judged, and answers wait on disk: failed:judge_unavailable"]
    assert total(samples, "ragtrace_judge_stopped", why="failed") == 1
    (ended,) = [record for record in caplog.records if "has no score" in record.getMessage()]
    assert (ended.levelname, ended.event_name) == ("WARNING", "answer_unscored")  # type: ignore[attr-defined]
    assert ended.fields["error"] == "judge_unavailable"  # type: ignore[attr-defined]


# -- the laws of the numbers ------------------------------------------------------------------------------
def traffic(number: int) -> bytes:
    """A request with spans for every way that a span can go."""
    first = number * 10
    good = [span for each in range(first, first + 4) for span in rag_trace(each)]
    too_many = [
        replace(good[0], span_id=f"{span:016x}", trace_id=f"{9_000 + number:032x}") for span in range(1, 40)
    ]
    own = replace(good[0], scope=Scope(name=semconv.SCOPE_EVALUATION), span_id="00000000000000ee")
    nobodys = replace(good[0], trace_id="0" * 32)
    return request_of(*good, *too_many, own, nobodys)


async def test_spans_and_answers_add_up_at_every_scrape_while_traffic_of_every_kind_comes_in(
    tmp_path: Path,
) -> None:
    config = config_of(
        tmp_path, sample={"ratio": 0.6}, assemble={"quiet_period": "20ms", "max_spans_per_trace": 30}
    )
    async with running_collector(config) as collector:
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                send = post if number % 2 else send_grpc
                group.create_task(send(collector, traffic(number)))
            scrapes = [group.create_task(scrape(collector)) for _ in range(10)]
        await until(lambda: collector.counters.snapshot()["answers_judged"])
        pages = [task.result() for task in scrapes] + [await scrape(collector) for _ in range(5)]
    ways = ("kept", "rejected", "sampled_out", "own", "over_limit")
    for page in pages:
        gone = [total(page, f"ragtrace_collector_spans_{way}_total") for way in ways]
        assert total(page, "ragtrace_collector_spans_received_total") == sum(gone)
        assert total(page, "ragtrace_answers") == total(page, "ragtrace_answers_seen")
    assert sum(gone) == 12 * (12 + 39 + 1 + 1)
    assert all(gone)


# -- traces that hold text and in which nothing is read ---------------------------------------------------
MAPPING = {"question": "acme.user_question", "context": "acme.hits", "answer": "acme.reply"}


async def test_unread_traces_are_counted_by_producer_and_told_with_a_mapping_that_reads_the_next_ones(
    tmp_path: Path,
) -> None:
    machine = node("GET /", {"http.route": "/a b", "db.statement": "select a from b"})
    async with running_collector(config_of(tmp_path)) as collector:
        for name, root in (("a", FLAT), ("b", FLAT), ("c", replace(FLAT, scope="shop")), ("d", machine)):
            await post(collector, request_of(*spans_of(name, root)))
        await until(lambda: collector.counters.snapshot()["traces_settled"] >= 4)
        samples, status = await scrape(collector), (await get(collector, "/status")).json()
        url = f"http://127.0.0.1:{collector.operations.port}"
        told = json.loads((await asyncio.to_thread(run, "ledger", "--from", url, "--json")).stdout)["unread"]
    assert total(samples, "ragtrace_traces_unread", producer="app") == 2
    assert status["store"]["unread_traces"] == 3
    assert [(each["producer"], each["number"]) for each in told] == [("app", 2), ("shop", 1)]
    assert told[0]["mapping"] == MAPPING
    shown = " ".join(run("ledger", "--from", f"store:{tmp_path}/store.db").stdout.split())
    assert "2 traces of app unread" in shown
    assert "answer: [acme.reply]" in shown
    file = tmp_path / "collector.yaml"
    file.write_text(json.dumps({"store": f"{tmp_path}/store.db", "export": [{"endpoint": "a:1"}]}))
    checks = (await asyncio.to_thread(run, "doctor", "--config", str(file), "--json")).stdout.splitlines()
    found = {each["found"]: each["status"] for each in map(json.loads, checks) if each["name"] == "unread"}
    assert found["nothing was read in 2 traces of app"] == "warn"
    async with running_collector(config_of(tmp_path, extract={"mapping": told[0]["mapping"]})) as collector:
        await post(collector, request_of(*spans_of("e", FLAT)))
        await until(lambda: collector.counters.snapshot()["answers_judged"])
