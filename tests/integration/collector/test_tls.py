"""TLS: the receivers' certificate, clients known by theirs, and whom the collector believes itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragtrace.backends import open_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, SendRetryable
from ragtrace.http import ClientTls
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.web.server import open_auth
from tests.integration.collector.certificates import Authority, Files
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.integration.collector.stepping import StandingClock
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

GOOD = request_of(*rag_trace(0))


def secured(folder: Path, server: Files, **tls: Any) -> CollectorConfig:
    receive = {"tls": {"cert": str(server.cert), "key": str(server.key), **tls}}
    return config_of(folder, receive=receive, drain_timeout="0s")


@asynccontextmanager
async def sinks_of(collector: Collector, tls: ClientTls | None) -> AsyncIterator[tuple[Any, Any]]:
    """Senders over gRPC and HTTP: our own, which the exports use."""
    access = ConnectionSettings(tls=tls, timeout_s=10)
    over_grpc = open_sink(f"grpcs://127.0.0.1:{collector.grpc_port}", access=access)
    over_http = open_sink(f"https://127.0.0.1:{collector.http_port}/v1/traces", access=access)
    try:
        yield over_grpc, over_http
    finally:
        await over_grpc.aclose()
        await over_http.aclose()


async def test_both_receivers_speak_tls_to_who_believes_their_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with running_collector(secured(tmp_path, authority.issue("server"))) as collector:
        async with sinks_of(collector, ClientTls(ca=authority.ca)) as sinks:
            for sink in sinks:
                await sink.send(GOOD)
        await shut_out(collector, None)
        assert collector.counters.snapshot()["requests"] == 2


async def test_a_receiver_with_tls_takes_nothing_in_the_clear(tmp_path: Path) -> None:
    config = secured(tmp_path, Authority(tmp_path).issue("server"))
    async with running_collector(config) as collector:
        plain = open_sink(f"grpc://127.0.0.1:{collector.grpc_port}")
        with pytest.raises(SendRetryable):
            await plain.send(GOOD)
        await plain.aclose()
        with pytest.raises(httpx.TransportError):
            await post(collector, GOOD)


async def shut_out(collector: Collector, tls: ClientTls | None) -> None:
    """See that who has this gets nothing in, over neither protocol."""
    async with sinks_of(collector, tls) as strangers:
        for sink in strangers:
            with pytest.raises(SendRetryable):
                await sink.send(GOOD)


async def test_clients_without_a_certificate_of_the_authority_do_not_get_in(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    config = secured(tmp_path, authority.issue("server"), client_ca=str(authority.ca))
    known, unknown = authority.issue("client"), other.issue("stranger")
    async with running_collector(config) as collector:
        async with sinks_of(collector, ClientTls(ca=authority.ca, cert=known.cert, key=known.key)) as sinks:
            for sink in sinks:
                await sink.send(GOOD)
        await shut_out(collector, ClientTls(ca=authority.ca))
        await shut_out(collector, ClientTls(ca=authority.ca, cert=unknown.cert, key=unknown.key))
        assert collector.counters.snapshot()["requests"] == 2


def certificate_at(port: int | None, authority: Authority) -> bytes:
    assert port is not None
    pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(authority.ca), timeout=PATIENCE_S)
    return pem.encode()


async def test_a_certificate_is_renewed_while_the_collector_runs(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    config = secured(tmp_path, authority.issue("server"))
    async with running_collector(config) as collector:
        ports = (collector.grpc_port, collector.http_port)
        before = [await asyncio.to_thread(certificate_at, port, authority) for port in ports]
        authority.issue("server")
        collector.auth.reload(config.receive)
        after = [await asyncio.to_thread(certificate_at, port, authority) for port in ports]
        assert before[0] == before[1] != after[0] == after[1]
        (tmp_path / "server.key").write_text("half written")
        with pytest.raises(ConfigError, match=r"receive\.tls"):
            collector.auth.reload(config.receive)
        assert await asyncio.to_thread(certificate_at, ports[0], authority) == after[0]
        async with sinks_of(collector, ClientTls(ca=authority.ca)) as sinks:
            await sinks[1].send(GOOD)


TLS = {"cert": "server.crt", "key": "server.key"}
TOKENS = [{"name": "a", "sha256": "0" * 64}]


@pytest.mark.parametrize(
    ("receive", "missing"),
    [
        ({}, "TLS and tokens"),
        ({"tokens": TOKENS}, "TLS"),
        ({"tls": TLS}, "tokens"),
        ({"tls": TLS, "tokens": TOKENS}, None),
        ({"tls": {**TLS, "client_ca": "ca.crt"}}, None),
    ],
)
def test_an_address_that_other_machines_reach_is_not_open_by_accident(
    tmp_path: Path, receive: dict[str, Any], missing: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    Authority(tmp_path).issue("server")
    for address in ("127.0.0.1:0", "127.8.9.1:0", "localhost:0", "[::1]:0"):
        open_auth(config_of(tmp_path, receive={**receive, "grpc": address}), StandingClock())
    for address in ("0.0.0.0:0", "[::]:0", "otel.example:4317"):
        settings = {**receive, "grpc": address, "http": None}
        if missing is None:
            open_auth(config_of(tmp_path, receive=settings), StandingClock())
            continue
        with pytest.raises(ConfigError, match=f"without {missing}: set"):
            open_auth(config_of(tmp_path, receive=settings), StandingClock())
        assert not caplog.records
        open_auth(config_of(tmp_path, receive={**settings, "insecure": True}), StandingClock())
        assert address in caplog.text
        caplog.clear()
    assert not caplog.records
