"""Pages, own metrics and logs: what they tell is true at every moment, and never content."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from starlette.routing import Route

from ragtrace.traces.otlp import decode
from ragtrace_collector.service.collector import Collector, open_collector
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import HttpAnswer, HttpServer, http_server

pytestmark = pytest.mark.slow


async def get(collector: Collector, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.operations.port}") as client:
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


async def test_the_port_without_a_path_lists_all_pages_for_browsers_and_terminals(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        plain = await get(collector, "/")
        page = await get(collector, "/", accept="text/html,application/xhtml+xml,*/*;q=0.8")
        links = re.findall(r'href="\.(/[^"]*)"', page.text)
        codes = {link: (await get(collector, link)).status_code for link in links}
        missing = await get(collector, "/nothing")
        routes = collector.operations._pages().routes
    assert plain.headers["content-type"].startswith("text/plain")
    assert page.headers["content-type"].startswith("text/html")
    assert codes == dict.fromkeys(links, 200)
    listed = [line.split()[0].replace("TRACE_ID", "{trace}") for line in plain.text.splitlines()]
    assert {"/", *listed} == {route.path for route in routes if isinstance(route, Route)}
    assert set(links) == {path for path in listed if "{" not in path}
    assert all(f">{path}<" in page.text for path in links)
    assert missing.status_code == 404


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


async def test_while_it_drains_its_pages_say_that_it_stops(tmp_path: Path) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    export = [{"endpoint": "http://127.0.0.1:9"}]  # nobody listens there: there is something to wait for
    config = config_of(tmp_path, export=export, drain_timeout="1h")
    async with open_collector(config) as collector:
        serving = asyncio.create_task(collector.serve(stop, on_ready=lambda _: ready.set()))
        await ready.wait()
        await post(collector, request_of(*rag_trace(0)))
        stop.set()
        state = (await until_stopping(collector)).json()
        assert (await get(collector, "/livez")).status_code == 200
        serving.cancel()
        await asyncio.wait({serving})
    assert state == {"ready": False, "judging": True, "reasons": ["stopping"], "notes": []}


async def until_stopping(collector: Collector) -> httpx.Response:
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await get(collector, "/readyz")).status_code == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return answer


async def test_pages_with_numbers_ask_for_a_token_and_probes_do_not(tmp_path: Path) -> None:
    token = {
        "name": "prometheus",
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    }
    tokens = [{**token, "may": ["read"]}]  # of the word "test"
    async with running_collector(config_of(tmp_path, receive={"tokens": tokens})) as collector:
        codes = {path: (await get(collector, path)).status_code for path in PAGES}
        allowed = {
            path: (await get(collector, path, authorization="Bearer test")).status_code for path in PAGES
        }
    assert codes == {"/": 200, "/livez": 200, "/readyz": 200, "/metrics": 401, "/status": 401}
    assert set(allowed.values()) == {200}


PAGES = ("/", "/livez", "/readyz", "/metrics", "/status")


async def test_own_metrics_are_pushed_as_otlp_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with http_server(lambda _: HttpAnswer()) as server:
        telemetry = {"otlp_endpoint": server.url}
        async with running_collector(config_of(tmp_path, telemetry=telemetry)) as collector:
            await post(collector, request_of(*rag_trace(0)))
            await until(lambda: carriers_in(tmp_path / "out.jsonl"))
            await until(lambda: pushed(server).get("ragtrace.answers.seen") == 1)
    last = pushed(server)
    assert last["ragtrace.collector.spans_received"] == 3
    assert last["ragtrace.answers"] == last["ragtrace.answers.seen"] == 1


def pushed(server: HttpServer) -> Mapping[str, float]:
    """Return the sums of the values that the last push told, by the metric's name."""
    bodies = [body for path, _, body in server.requests if path == "/v1/metrics"]
    request = ExportMetricsServiceRequest.FromString(bodies[-1] if bodies else b"")
    return {
        metric.name: sum(
            point.as_int or point.as_double for point in (*metric.gauge.data_points, *metric.sum.data_points)
        )
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_own_work_is_traced_and_what_comes_back_of_it_is_dropped(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as server:
        telemetry = {"otlp_endpoint": server.url}
        async with running_collector(config_of(tmp_path, telemetry=telemetry)) as collector:
            await post(collector, request_of(*rag_trace(0)))
            await until(lambda: carriers_in(tmp_path / "out.jsonl"))
        bodies = [body for path, _, body in server.requests if path == "/v1/traces"]
        spans = [span for body in bodies for span in decode(body)]
        (tmp_path / "other").mkdir()
        async with running_collector(config_of(tmp_path / "other")) as collector:
            for body in bodies:
                await post(collector, body)
            counted = collector.counters.snapshot()
    assert {span.name for span in spans} == {"settle", "evaluate", "deliver"}
    (evaluated,) = [span for span in spans if span.name == "evaluate"]
    assert [(link.trace_id, link.span_id) for link in evaluated.links] == [
        (trace_id_of(0), rag_trace(0)[0].span_id)
    ]
    assert evaluated.attributes["ragtrace.outcome"] == "judged"
    assert counted["spans_own"] == len(spans) == counted["spans_received"]


async def test_a_judge_that_refuses_is_noted_and_spans_are_taken_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")
    with http_server(lambda _: HttpAnswer(status=401, body=b"{}")) as server:
        judge = {"use": "openai:m", "base_url": f"{server.url}/v1", "api_key_env": "JUDGE_KEY"}
        async with running_collector(config_of(tmp_path, judge=judge, drain_timeout="0s")) as collector:
            await post(collector, request_of(*(span for number in range(9) for span in rag_trace(number))))
            await until(lambda: collector.vitals.judge_stopped())
            ready, samples = await get(collector, "/readyz"), await scrape(collector)
            assert (await post(collector, request_of(*rag_trace(9)))).status_code == 200
    assert ready.json() == {
        "ready": True,
        "judging": False,
        "reasons": [],
        "notes": ["nothing is judged, and answers wait on disk: failed:judge_refused"],
    }
    assert total(samples, "ragtrace_judge_stopped", why="failed") == 1
    assert total(samples, "ragtrace_judge_stopped", why="over_budget") == 0


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


async def test_a_store_that_cannot_be_read_is_said_on_every_page_and_ends_nothing(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        with store_moved_away(tmp_path):
            codes = {path: (await get(collector, path)).status_code for path in PAGES}
        assert (await get(collector, "/readyz")).status_code == 200
    assert codes == {"/": 200, "/livez": 200, "/readyz": 503, "/metrics": 503, "/status": 503}


@contextmanager
def store_moved_away(folder: Path) -> Iterator[None]:
    files = [file for file in folder.glob("store.db*") if file.suffix != ".lock"]
    for file in files:
        file.rename(file.with_name(f"moved-{file.name}"))
    yield
    for file in files:
        file.with_name(f"moved-{file.name}").rename(file)
