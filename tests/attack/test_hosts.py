"""A web page that resolves its own name to this machine (DNS rebinding) reads no page, and sends nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import encode
from ragtrace_collector.config import parse_config
from ragtrace_collector.web.tokens import digest_of
from tests.integration.collector.running import config_of, running_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

NUMBERS = ("/metrics", "/status", "/ledger", f"/why/{trace_id_of(0)}")
PROBES = ("/livez", "/readyz", "/")
KNOWN = [
    "LOCALHOST:4329", "localhost.", "app.localhost:4329", "127.8.8.8", "[::1]:4329", "192.0.2.7",
    "[2001:db8::7]:4329", "ragtrace", "host.docker.internal:4329",
]  # fmt: skip
STRANGE = [
    "evil.example:4329", "127.0.0.1.nip.io", "localhost.evil.example", "127.1", "[::1].evil.example",
    "user@localhost", "localhost/..", "a b", "[::1", "localhost:x", "\u00e9vil.example",
]  # fmt: skip


Clients = tuple[httpx.AsyncClient, httpx.AsyncClient]


@asynccontextmanager
async def collector_with(folder: Path, **changes: Any) -> AsyncIterator[Clients]:
    """Run one, and give clients of its pages and of its receiver."""
    async with running_collector(config_of(folder, **changes)) as collector:
        ports = (collector.operations.port, collector.http_port)
        pages, receiver = (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) for port in ports
        )
        async with pages, receiver:
            yield pages, receiver


def named(host: str, **more: str) -> Mapping[str, bytes]:
    return {"host": host.encode("latin-1"), **{key: value.encode() for key, value in more.items()}}


async def test_pages_are_not_shown_by_any_other_name(tmp_path: Path) -> None:
    async with collector_with(tmp_path) as (pages, _):
        for page in NUMBERS:
            for host in KNOWN:
                assert (await pages.get(page, headers=named(host))).status_code in {200, 404}, (host, page)
            for host in STRANGE:
                answer = await pages.get(page, headers=named(host))
                assert answer.status_code == 421, (host, page)
                assert "`receive.allowed_hosts`" in answer.json()["message"]
        for probe in PROBES:
            assert (await pages.get(probe, headers=named("evil.example"))).status_code == 200


async def test_nothing_is_taken_by_another_name_where_only_this_machine_can_send(tmp_path: Path) -> None:
    async with collector_with(tmp_path) as (_, receiver):
        for host, status in (("evil.example", 421), ("localhost", 200), ("127.0.0.1", 200), ("app", 200)):
            headers = {**named(host), "content-type": b"application/x-protobuf"}
            answer = await receiver.post("/v1/traces", content=encode(rag_trace(0)), headers=headers)
            assert answer.status_code == status
            assert (await receiver.get("/status", headers=named(host))).status_code == status
    # Any machine may send to an open receiver, by names that nobody listed; what is read is another matter.
    changes = {"http": "0.0.0.0:0", "insecure": True}
    async with collector_with(tmp_path, receive=changes) as (_, receiver):
        headers = {**named("ragtrace.shop.example"), "content-type": b"application/x-protobuf"}
        answer = await receiver.post("/v1/traces", content=encode(rag_trace(0)), headers=headers)
        assert answer.status_code == 200
        assert (await receiver.get("/status", headers=named("ragtrace.shop.example"))).status_code == 421


async def test_the_names_that_the_configuration_allows_are_known(tmp_path: Path) -> None:
    allowed = {"receive": {"allowed_hosts": ["Ragtrace.Example", "*.svc.cluster.local"]}}
    async with collector_with(tmp_path, **allowed) as (pages, receiver):
        for host, status in (
            ("ragtrace.example:4329", 200),
            ("ragtrace.monitoring.svc.cluster.local", 200),
            ("svc.cluster.local", 421),
            ("evil.ragtrace.example", 421),
            ("evilsvc.cluster.local", 421),
            ("ragtrace.example.evil.example", 421),
        ):
            assert (await pages.get("/ledger", headers=named(host))).status_code == status, host
            assert (await receiver.get("/status", headers=named(host))).status_code == status, host


async def test_where_tokens_are_asked_for_the_token_decides(tmp_path: Path) -> None:
    """A page of a stranger's has none: a scraper that does may call the collector as it likes."""
    tokens = [{"name": "p", "sha256": digest_of("secret").hex(), "may": ["read"]}]
    async with collector_with(tmp_path, receive={"tokens": tokens}) as (pages, _):
        host = named("prometheus.example", authorization="Bearer secret")
        assert (await pages.get("/metrics", headers=host)).status_code == 200
        assert (await pages.get("/metrics", headers=named("evil.example"))).status_code == 401


def test_a_name_that_is_none_is_refused_with_what_to_write() -> None:
    for name in ("http://a.example", "a.example:4329", "*", "a.*.example", "", "a b", "*."):
        receive, export = {"allowed_hosts": [name]}, [{"endpoint": "http://localhost:4317"}]
        with pytest.raises(ConfigError, match="write the name of a host"):
            parse_config(json.dumps({"receive": receive, "export": export}), where="test", environ={})
