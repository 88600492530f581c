"""What the collector tells about itself never holds what is under judgment, nor a key."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from ragtrace_collector.service.collector import Collector
from ragtrace_collector.telemetry.logs import JsonLines, TextLines
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.test_operations import get
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import GrpcAnswer, HttpAnswer, HttpServer, grpc_server, http_server

QUESTION, CHUNK, ANSWER = "canary of the question?", "The canary of the chunk.", "A canary of the answer."
KEY = "canary-of-the-key"
SPANS = rag_trace(0, question=QUESTION, chunks=[CHUNK], answer=ANSWER)


class Everything(logging.Handler):
    """Keeps every line of the process, in both formats."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [JsonLines().format(record), TextLines().format(record)]


@pytest.fixture
def log() -> Iterator[Everything]:
    handler, root = Everything(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.setLevel(before)
    root.removeHandler(handler)


async def told(collector: Collector) -> str:
    paths = ("/readyz", "/metrics", "/status", "/ledger", f"/why/{trace_id_of(0)}")
    return "".join([(await get(collector, path)).text for path in paths])


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_judge_that_quotes_what_it_was_asked_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Everything, status: int
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    body = f'{{"error": {{"message": "no: {QUESTION} {CHUNK} {ANSWER} {KEY}", "code": "bad"}}}}'.encode()
    with http_server(lambda _: HttpAnswer(status=status, body=body)) as server:
        judge = {"use": "openai:m", "base_url": f"{server.url}/v1", "api_key_env": "JUDGE_KEY"}
        async with running_collector(config_of(tmp_path, judge=judge, drain_timeout="0s")) as collector:
            await post(collector, request_of(*SPANS))
            await until(lambda: server.requests)
            await until(lambda: sum(collector.counters.snapshot()[name] for name in CAME_TO_NOTHING))
            pages = await told(collector)
    assert "canary" not in pages + "".join(log.lines)


CAME_TO_NOTHING = ("answers_postponed", "answers_failed")


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE])
async def test_a_back_end_that_quotes_what_it_was_sent_is_not_quoted(
    tmp_path: Path, log: Everything, code: grpc.StatusCode
) -> None:
    answer = GrpcAnswer(code=code, details=f"attribute too long: {ANSWER}")
    async with grpc_server(answer) as server:
        export = [{"endpoint": server.endpoint, "forward": True, "headers": {"x-key": KEY}}]
        async with running_collector(config_of(tmp_path, export=export, drain_timeout="0s")) as collector:
            await post(collector, request_of(*SPANS))
            await until(lambda: sum(collector.counters.snapshot()[name] for name in NOT_DELIVERED))
            pages = await told(collector)
    assert any("attribute too long" in line for line in log.lines)
    assert "canary" not in pages + "".join(log.lines)


NOT_DELIVERED = ("parcels_rejected", "deliveries_failed")


async def test_own_spans_and_metrics_hold_no_content(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as server:
        config = config_of(tmp_path, judge={"use": "lexical"}, telemetry={"otlp_endpoint": server.url})
        async with running_collector(config) as collector:
            await post(collector, request_of(*SPANS))
            await until(lambda: collector.counters.snapshot()["parcels_delivered"])
    assert {path for path, _, _ in sent(server)} == {"/v1/traces", "/v1/metrics"}
    assert b"canary" not in b"".join(body for _, _, body in sent(server))


def sent(server: HttpServer) -> list[tuple[str, dict[str, str], bytes]]:
    return server.requests


async def test_what_is_no_otlp_is_not_quoted(tmp_path: Path, log: Everything) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        for headers in ({"content-type": "application/json"}, {"content-type": "application/x-protobuf"}):
            answer = await post(collector, f'{{"resourceSpans": "{QUESTION}"}}'.encode(), headers)
            assert answer.status_code == httpx.codes.BAD_REQUEST
    assert "canary" not in "".join(log.lines)
