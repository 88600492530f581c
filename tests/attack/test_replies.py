"""Replies that point elsewhere, unpack without end, or drip: nobody follows, memory and time are bounded."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from itertools import repeat

import grpc
import pytest

import ragtrace
from ragtrace.backends.otlp_sinks import TRACES, OtlpGrpcSink
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
from ragtrace.traces.otlp import encode
from tests.attack.clients import CLIENTS, CONTENT, SECRET
from tests.attack.hostile_server import MIB, Hostile, Sent, bomb_of, dripping, dripping_head, hostile_server
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
from tests.sharing import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def elsewhere() -> Iterator[Hostile]:
    with hostile_server(Sent(body=b"{}")) as server:
        yield server


def location(elsewhere: Hostile) -> str:
    """The same machine by another name, with what no message may repeat."""
    return elsewhere.url.replace("//127.0.0.1", "//user:pass-word@localhost") + "/path?key=secret-query"


def pointing_to(elsewhere: Hostile) -> Sent:
    return Sent(status=307, headers={"location": location(elsewhere)})


def check_said(said: str) -> None:
    assert "localhost" in said
    assert "redirect" in said
    assert "307" in said
    assert "\n" not in said
    for secret in ("pass-word", "secret-query", SECRET, CONTENT):
        assert secret not in said


@pytest.mark.parametrize("name", CLIENTS)
async def test_no_client_follows_a_redirect_and_each_says_where_it_pointed(
    name: str, elsewhere: Hostile
) -> None:
    client = CLIENTS[name]
    with hostile_server(pointing_to(elsewhere)) as server, pytest.raises(client.error) as caught:
        await client.ask(server.url, 60)
    assert server.requests
    assert elsewhere.requests == []
    check_said(str(caught.value))


def test_an_application_follows_no_redirect_counts_nothing_as_sent_and_says_where_it_pointed(
    elsewhere: Hostile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "_shown", {})
    with hostile_server(pointing_to(elsewhere)) as server:
        settings = {"protocol": "http/protobuf", "headers": {"x-key": SECRET}, "only": []}
        assert ragtrace.instrument(endpoint=server.url, **settings)
        with ragtrace.rag(question=CONTENT):
            pass
        taken, counts = ragtrace.flush(), statistics()
        ragtrace.uninstrument()
    assert len(server.requests) >= 1
    assert elsewhere.requests == []
    assert (taken, counts.spans_exported, counts.spans_failed) == (False, 0, 1)
    (line,) = capsys.readouterr().err.splitlines()
    check_said(line)


BOMB_MIB = 1_024
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


PATIENT_S = 2
"""Time for a reply's head on a busy machine, too."""
LATE = {ReadError: ReadUnavailable, SendError: SendRetryable}


@pytest.mark.parametrize("where", ["head", "body"])
@pytest.mark.parametrize("name", ["jaeger", "otlp sink", "phoenix sink", "openai judge"])
async def test_an_answer_that_drips_ends_in_time(name: str, where: str) -> None:
    """A byte comes long before any time-out for a single one, and so on without end."""
    client = CLIENTS[name]
    with hostile_server(lambda _: dripping_head if where == "head" else Sent(body=dripping(b"{"))) as server:
        async with asyncio.timeout(PATIENCE_S):
            if where != "head" and not client.answers_in_full:
                await client.ask(server.url, PATIENT_S)  # the status says enough
                return
            with pytest.raises(client.error) as caught:
                await client.ask(server.url, PATIENT_S)
    late: type[Exception] = LATE.get(client.error, JudgeTimeout)
    if client.error is SendError and where != "head":
        late = SendUnconfirmed
    assert isinstance(caught.value, late)


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


PART = encode(rag_trace(0))
LARGE = b" " * 10 * MIB


async def test_a_yes_that_is_too_large_is_a_yes_that_nobody_can_read() -> None:
    async def export(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        context.set_compression(grpc.Compression.Gzip)
        return LARGE

    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_registered_method_handlers(TRACES.method.split("/")[1], handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aclosing(OtlpGrpcSink(f"127.0.0.1:{port}")) as sink:
        with pytest.raises(SendUnconfirmed, match=r"unreadable response.*too large") as caught:
            await sink.send(PART)
    await server.stop(None)
    assert caught.value.again
