"""Answers that unpack without end, come without end, or drip: they are refused in bounded memory, in time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import datetime
from itertools import repeat
from urllib.parse import parse_qs, urlsplit

import pytest

import ragtrace
from ragtrace.backends import JaegerReader
from ragtrace.backends import http_api as web
from ragtrace.backends.http_api import windows
from ragtrace.capture import _guard as hints
from ragtrace.capture import statistics
from ragtrace.errors import (
    JudgeTimeout,
    ReadError,
    ReadUnavailable,
    SendError,
    SendRetryable,
    SendUnconfirmed,
)
from ragtrace.ports import TraceQuery
from ragtrace.traces.otlp import encode_json
from tests.attack.clients import CLIENTS
from tests.attack.hostile_server import MIB, Sent, bomb_of, dripping, dripping_head, hostile_server
from tests.integration.cli.faulty_servers import FaultyServer, faulty_jaeger
from tests.patience import PATIENCE_S
from tests.rag_spans import START_NS, rag_trace, trace_id_of
from tests.sharing import ROOT
from tests.unit.backends.servers import HttpAnswer

pytestmark = pytest.mark.slow

BOMB_MIB = 2_560
BOMB = Sent(headers={"content-encoding": "gzip"}, body=bomb_of(BOMB_MIB))
ENDLESS = Sent(body=repeat(b" " * MIB))
MOST_READ = {
    "jaeger": 128,
    "tempo": 128,
    "phoenix": 128,
    "langfuse": 128,
    "embedder": 32,
    "batch results": 512,
}
"""MiB of an answer; others read few."""
LIBRARIES_MIB = 130
"""What a client brings in when it first asks."""

OVERSIZED = {ReadError: "ReadOversized", SendError: "SendUnconfirmed"}


@pytest.mark.slow
def test_an_answer_without_end_takes_bounded_memory_and_is_refused() -> None:
    """One process asks by every client, those first that read least: what one took is a peak to the next."""
    names = sorted(CLIENTS, key=lambda name: MOST_READ.get(name, 4))
    code = "import sys; from tests.attack.clients import measure; measure(*sys.argv[1:])"
    with hostile_server(BOMB) as server:
        asked = subprocess.run(
            [sys.executable, "-c", code, server.url, *names],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    before, *lines = asked.stdout.splitlines()
    for name, line in zip(names, lines, strict=True):
        peak, _, said = line.partition(" ")
        grown = (int(peak) - int(before)) / MIB
        # a buffer that grows is there twice
        assert grown < LIBRARIES_MIB + 2 * MOST_READ.get(name, 4), name
        if CLIENTS[name].answers_in_full:
            assert said.startswith(OVERSIZED.get(CLIENTS[name].error, "JudgeOversized")), name
        else:
            assert said == "nothing", name  # the status said yes, and nothing else was asked for


LATE = {ReadError: ReadUnavailable, SendError: SendRetryable}


@pytest.mark.parametrize("where", ["head", "body"])
@pytest.mark.parametrize("name", ["jaeger", "otlp sink", "phoenix sink", "openai judge"])
async def test_an_answer_that_drips_ends_in_time(name: str, where: str) -> None:
    """A byte comes long before any time-out for a single one, and so on without end."""
    client = CLIENTS[name]
    with hostile_server(lambda _: dripping_head if where == "head" else Sent(body=dripping(b"{"))) as server:
        async with asyncio.timeout(PATIENCE_S):
            if where != "head" and not client.answers_in_full:
                await client.ask(server.url, 0.5)  # the status says enough
                return
            with pytest.raises(client.error) as caught:
                await client.ask(server.url, 0.5)
    late: type[Exception] = LATE.get(client.error, JudgeTimeout)
    if client.error is SendError and where != "head":
        late = SendUnconfirmed
    assert isinstance(caught.value, late)


async def test_a_page_of_traces_that_is_too_long_is_asked_for_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second_ns = 10**9
    stored = [rag_trace(number, start_ns=START_NS + number * second_ns) for number in range(40)]
    with faulty_jaeger(stored) as server:
        server.fault = lambda path: of_the_time_asked_for(server, path)
        monkeypatch.setattr(web, "MOST_READ_BYTES", 40_000)
        reader = JaegerReader(server.url)
        query = TraceQuery(since_ns=START_NS, until_ns=START_NS + 60 * second_ns, service="shop")
        found = [trace_id async for window in windows(reader, query) for trace_id in window.found]
        await reader.aclose()
    assert sorted(found) == sorted(trace_id_of(number) for number in range(40))


def of_the_time_asked_for(server: FaultyServer, path: str) -> HttpAnswer | None:
    asked = parse_qs(urlsplit(path).query)
    if "query.start_time_min" not in asked:
        return None
    since, until = (
        int(datetime.fromisoformat(asked[f"query.start_time_{end}"][0]).timestamp() * 1e9)
        for end in ("min", "max")
    )
    found = [span for trace in server.found(since, until) for span in trace]
    body = f'{{"result":{encode_json(found)}}}'.encode()
    return HttpAnswer(body=body) if found else HttpAnswer(status=404)


@pytest.mark.parametrize("sent", [ENDLESS, lambda _: Sent(body=dripping(b"."))], ids=["endless", "dripping"])
def test_an_application_gives_an_answer_without_end_up_and_counts_its_spans(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "_shown", {})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with hostile_server(sent) as server:
        assert ragtrace.instrument(endpoint=server.url, protocol="http/protobuf", only=[])
        with ragtrace.rag(question="?"):
            pass
        assert not ragtrace.flush(PATIENCE_S)
        counts = statistics()
        ragtrace.uninstrument()
    assert (counts.spans_exported, counts.spans_failed) == (0, 1)
