"""Requests that lie: gzip members, bytes that are no text, odd questions, strange hosts, silent peers."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.receive import intake as room
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.web.tokens import digest_of
from tests.acceptance.collector_process import collector_process, settings_of
from tests.integration.collector.running import (
    PROTOBUF,
    carriers_in,
    config_of,
    half_a_request,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow


LIMIT = 1_000_000
EMPTY = gzip.compress(b"")


def body_of(first: int) -> bytes:
    return encode([span for number in range(20) for span in rag_trace(20 * first + number)])


def members(body: bytes, number: int) -> bytes:
    """Compress in so many pieces, each a member."""
    size = -(-len(body) // number)
    return b"".join(gzip.compress(body[at : at + size]) for at in range(0, len(body), size))


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[Collector]:
    config = config_of(
        tmp_path,
        assemble={"quiet_period": "10m", "deadline": "10m"},
        receive={"max_message_bytes": LIMIT},
        drain_timeout="0s",
    )
    async with running_collector(config) as running:
        yield running


async def send(collector: Collector, packed: bytes) -> tuple[int, str]:
    answer = await post(collector, packed, {**PROTOBUF, "content-encoding": "gzip"})
    return answer.status_code, status_pb2.Status.FromString(answer.content).message


async def test_every_member_is_read(collector: Collector) -> None:
    for number, packed in enumerate(
        (
            members(body_of(0), 200),
            EMPTY + members(body_of(1), 3) + EMPTY * 3,
            gzip.compress(body_of(2)[:1_000]) + EMPTY + gzip.compress(body_of(2)[1_000:]),
        ),
        start=1,
    ):
        assert await send(collector, packed) == (200, "")
        assert collector.counters.snapshot()["spans_kept"] == number * 60


async def test_what_is_behind_the_last_member_is_refused_and_named(collector: Collector) -> None:
    for behind in (b"\0" * 512, b"\x1f\x8b", b"garbage", EMPTY[:-1], b"\x1f\x8b\x08\x00garbage"):
        status, said = await send(collector, members(body_of(0), 2) + behind)
        assert (status, "after 2 gzip members" in said) == (400, True), behind
    assert collector.counters.snapshot()["spans_kept"] == 0


async def test_members_together_are_bounded_by_what_they_unfold_to(collector: Collector) -> None:
    bomb = gzip.compress(bytes(LIMIT // 10)) * 50
    assert len(bomb) < LIMIT // 100
    status, said = await send(collector, bomb)
    assert (status, "max_message_bytes" in said) == (413, True)
    status, said = await send(collector, EMPTY * 10_000)  # of twenty bytes, each takes a decompressor
    assert (status, "gzip members" in said) == (400, True)


ANSWERS = 100
MARK = "0000mark0000"
"""What becomes no UTF-8 on the way, in as many bytes."""
BAD = b"\xff\xc3(\xed\xa0\x80\xe2\x28\xa1\xf0\x9f!"

PLACES: dict[str, Callable[[Span], Span]] = {
    "key": lambda span: replace(span, attributes={**span.attributes, MARK: 1}),
    "value in a list": lambda span: replace(span, attributes={**span.attributes, "tags": ("a", (MARK,))}),
    "status": lambda span: replace(span, status_message=MARK),
    "scope": lambda span: replace(span, scope=replace(span.scope, name=MARK, schema_url=MARK)),
    "resource": lambda span: replace(
        span, resource=replace(span.resource, attributes={MARK: MARK}, schema_url=MARK)
    ),
}


def batch(*places: str) -> list[Span]:
    """Make a batch of answers, of which the roots of the first have the mark, each in one of these places."""
    spans = []
    for number in range(ANSWERS):
        root, *others = rag_trace(number)
        spans += [PLACES[places[number]](root) if number < len(places) else root, *others]
    return spans


def spoiled(body: bytes, *, bad: bytes = BAD) -> bytes:
    assert MARK.encode() in body
    return body.replace(MARK.encode(), bad)


async def send_json(collector: Collector, spans: list[Span]) -> str:
    body = spoiled(encode_json(spans).encode(), bad=rb"\ud800 \udfff\ud83d")
    answer = await post(collector, body, {"content-type": "application/json"})
    assert answer.status_code == 200
    return str(answer.json()["partialSuccess"])


async def send_protobuf(collector: Collector, spans: list[Span]) -> str:
    return str(await send_grpc(collector, spoiled(encode(spans))))


@pytest.mark.parametrize("send", [send_json, send_protobuf], ids=lambda send: send.__name__)
async def test_a_text_that_is_no_utf8_costs_none_of_a_hundred_answers(
    tmp_path: Path, send: Callable[[Collector, list[Span]], Awaitable[str]]
) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        warning = await send(collector, batch(*PLACES))
        await until(lambda: collector.counters.snapshot()["answers_judged"] == ANSWERS)
        counted = collector.counters.snapshot()
    assert counted["requests_invalid"] == 0
    assert counted["spans_kept"] == 3 * ANSWERS
    assert counted["texts_mended"] >= len(PLACES)
    assert "not UTF-8" in warning
    assert len(carriers_in(tmp_path / "out.jsonl")) == ANSWERS


WRONG = ["9" * 5_000, str(2**63), "-1", "", "1.5", "\u0661", "1_000", " 1 ", "%ff%fe", "1%00"]
NAMES = ("/", "/livez", "/readyz", "/metrics", "/status", "/ledger", f"/why/{trace_id_of(0)}")
ODD = st.text(max_size=12) | st.sampled_from(["9" * 30, "-1", "\u0661", "\0", "@", "%", "a" * 3_000])


async def test_whatever_any_page_is_asked_it_says_what_to_give_and_never_breaks(tmp_path: Path) -> None:
    asked: list[str] = []

    @given(
        page=st.sampled_from(NAMES),
        query=st.lists(st.tuples(st.just("since_ns") | ODD, ODD), max_size=3),
        trace=st.none() | ODD | st.binary(max_size=8),
    )
    def make(page: str, query: list[tuple[str, str]], trace: str | bytes | None) -> None:
        path = page if trace is None else f"/why/{quote(trace, safe='')}"
        parameters = "&".join(f"{quote(name)}={quote(value)}" for name, value in query)
        asked.append(f"{path}?{parameters}")

    make()
    async with running_collector(config_of(tmp_path)) as collector:
        pages = f"http://127.0.0.1:{collector.operations.port}"
        async with httpx.AsyncClient(base_url=pages, timeout=PATIENCE_S) as client:
            for each in asked:
                assert (await client.get(each)).status_code < 500, each
            for time in WRONG:
                answer = await client.get(f"/ledger?since_ns={time}")
                said = answer.json()["error"]
                assert (answer.status_code, "`since_ns`" in said, len(said) < 300) == (400, True, True), time
                assert "give nanoseconds since 1970" in said
            for query in ("since_ns=1&since_ns=2", "since=1"):
                assert (await client.get(f"/ledger?{query}")).status_code == 400, query
            assert (await client.get(f"/ledger?since_ns={2**63 - 1}")).status_code == 200


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
    async with collector_with(tmp_path, **allowed) as (pages, _):
        for host, status in (
            ("ragtrace.example:4329", 200),
            ("ragtrace.monitoring.svc.cluster.local", 200),
            ("svc.cluster.local", 421),
            ("ragtrace.example.evil.example", 421),
        ):
            assert (await pages.get("/ledger", headers=named(host))).status_code == status, host


async def test_where_tokens_are_asked_for_the_token_decides(tmp_path: Path) -> None:
    """A page of a stranger's has none: a scraper that does may call the collector as it likes."""
    tokens = [{"name": "p", "sha256": digest_of("secret").hex(), "may": ["read"]}]
    async with collector_with(tmp_path, receive={"tokens": tokens}) as (pages, _):
        host = named("prometheus.example", authorization="Bearer secret")
        assert (await pages.get("/metrics", headers=host)).status_code == 200
        assert (await pages.get("/metrics", headers=named("evil.example"))).status_code == 401


EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
GOOD = request_of(*rag_trace(0))


@contextmanager
def idle_connections(port: int, number: int) -> Iterator[list[socket.socket]]:
    """Connect so often, and say nothing."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(number)
        ]


@pytest.mark.timeout(120)
async def test_1010_idle_connections_shut_neither_receiver(tmp_path: Path) -> None:
    with collector_process(tmp_path, settings_of(tmp_path, judge={"use": "lexical"})) as collector:
        ports = (collector.http_port, collector.grpc_port, collector.pages_port)
        with ExitStack() as stack:
            for port in ports:
                assert port is not None
                await asyncio.to_thread(stack.enter_context, idle_connections(port, 1_010))
            address = f"http://127.0.0.1:{collector.http_port}/v1/traces"
            async with httpx.AsyncClient(timeout=20) as client:
                response = await client.post(address, content=GOOD, headers=PROTOBUF)
                ready = await client.get(f"http://127.0.0.1:{collector.pages_port}/readyz")
            assert (response.status_code, ready.status_code) == (200, 200)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
                await channel.unary_unary(EXPORT)(request_of(*rag_trace(1)), timeout=20)
            await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 2)


async def test_bodies_that_do_not_come_on_make_room_for_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_SLOW_S", 0.1)
    config = config_of(tmp_path, receive={"max_message_bytes": 1_000_000})
    async with running_collector(config) as collector:
        stuck = [await half_a_request(collector.http_port, 990_000) for _ in range(8)]
        await until(lambda: collector.pipeline.intake.room._free_bytes < 100_000)
        await asyncio.sleep(0.2)  # for as long as is called slow
        large = request_of(*rag_trace(1, answer="x" * 400_000))
        assert (await post(collector, large)).status_code == 200
        first, _ = stuck[0]
        assert (await first.readline()).startswith(b"HTTP/1.1 429")
        assert b"retry-after: 5" in (await first.readuntil(b"\r\n\r\n")).lower()
        for _, writer in stuck:
            writer.close()
