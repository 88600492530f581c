"""Bodies of several gzip members (RFC 1952, section 2.2): all are read, none is lost, and no bomb unfolds."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from google.rpc import status_pb2

from ragtrace.traces.otlp import encode, encode_json
from ragtrace_collector.receive.http import inflated
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import config_of, post, running_collector
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

LIMIT = 1_000_000
SPANS = [span for number in range(20) for span in rag_trace(number)]
BODIES = {"application/x-protobuf": encode(SPANS), "application/json": encode_json(SPANS).encode()}
EMPTY = gzip.compress(b"")


def members(body: bytes, number: int) -> bytes:
    """Compress in so many pieces, each a member."""
    size = -(-len(body) // number)
    return b"".join(gzip.compress(body[at : at + size]) for at in range(0, len(body), size))


def refusal(answer: httpx.Response) -> str:
    if answer.headers["content-type"] == "application/json":
        return str(answer.json()["message"])
    return status_pb2.Status.FromString(answer.content).message


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


async def send(collector: Collector, content_type: str, packed: bytes) -> httpx.Response:
    return await post(collector, packed, {"content-type": content_type, "content-encoding": "gzip"})


async def test_others_have_their_turns_while_a_small_body_unfolds() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield gzip.compress(bytes(40 << 20))

    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.create_task(take_turns())
    steps = [len(step) async for step in inflated(pieces(), LIMIT)]
    others.cancel()
    assert sum(steps) == 40 << 20
    assert turns > 30


@pytest.mark.parametrize("content_type", BODIES)
@pytest.mark.parametrize(
    "packed",
    [
        lambda body: members(body, 2),
        lambda body: members(body, 200),
        lambda body: EMPTY + members(body, 3) + EMPTY * 3,
        lambda body: gzip.compress(body[:1_000]) + EMPTY + gzip.compress(body[1_000:]),
    ],
    ids=["two", "two hundred", "empty ones around", "an empty one between"],
)
async def test_every_member_is_read(
    collector: Collector, content_type: str, packed: Callable[[bytes], bytes]
) -> None:
    answer = await send(collector, content_type, packed(BODIES[content_type]))
    assert answer.status_code == 200
    assert collector.counters.snapshot()["spans_kept"] == len(SPANS)


@pytest.mark.parametrize("content_type", BODIES)
async def test_members_that_come_in_any_pieces_are_read(collector: Collector, content_type: str) -> None:
    packed, dice = members(BODIES[content_type], 7), random.Random(7)

    async def pieces() -> AsyncIterator[bytes]:
        at = 0
        while at < len(packed):
            size = dice.randint(1, 90)
            yield packed[at : at + size]
            at += size

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.http_port}") as client:
        headers = {"content-type": content_type, "content-encoding": "gzip"}
        answer = await client.post("/v1/traces", content=pieces(), headers=headers)
    assert answer.status_code == 200
    assert collector.counters.snapshot()["spans_kept"] == len(SPANS)


@pytest.mark.parametrize("content_type", BODIES)
@pytest.mark.parametrize(
    "behind",
    [b"\0", b"\0" * 512, b"\x1f\x8b", b"garbage", EMPTY[:-1], b"\x1f\x8b\x08\x00garbage"],
    ids=["a zero", "zeros", "two bytes of a member", "text", "all but a byte of a member", "a header"],
)
async def test_what_is_behind_the_last_member_is_refused_and_named(
    collector: Collector, content_type: str, behind: bytes
) -> None:
    answer = await send(collector, content_type, members(BODIES[content_type], 2) + behind)
    assert answer.status_code == 400
    assert "after 2 gzip members" in refusal(answer)
    assert collector.counters.snapshot()["spans_kept"] == 0


@pytest.mark.parametrize("content_type", BODIES)
async def test_members_together_are_bounded_by_what_they_unfold_to(
    collector: Collector, content_type: str
) -> None:
    bomb = gzip.compress(bytes(LIMIT // 10)) * 50
    assert len(bomb) < LIMIT // 100
    answer = await send(collector, content_type, bomb)
    assert (answer.status_code, "max_message_bytes" in refusal(answer)) == (413, True)


async def test_members_without_number_are_refused(collector: Collector) -> None:
    """An empty member is twenty bytes, and each takes a decompressor of its own."""
    answer = await send(collector, "application/x-protobuf", EMPTY * 10_000)
    assert (answer.status_code, "gzip members" in refusal(answer)) == (400, True)
