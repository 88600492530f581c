"""Bodies of several gzip members (RFC 1952, section 2.2): all are read, none is lost, and no bomb unfolds."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.rpc import status_pb2

from ragtrace.traces.otlp import encode
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import PROTOBUF, config_of, post, running_collector
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

LIMIT = 1_000_000
SPANS = [span for number in range(20) for span in rag_trace(number)]
BODY = encode(SPANS)
EMPTY = gzip.compress(b"")


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
    packings = (
        members(BODY, 200),
        EMPTY + members(BODY, 3) + EMPTY * 3,
        gzip.compress(BODY[:1_000]) + EMPTY + gzip.compress(BODY[1_000:]),
    )
    for number, packed in enumerate(packings, start=1):
        assert await send(collector, packed) == (200, "")
        assert collector.counters.snapshot()["spans_kept"] == number * len(SPANS)


async def test_what_is_behind_the_last_member_is_refused_and_named(collector: Collector) -> None:
    for behind in (b"\0" * 512, b"\x1f\x8b", b"garbage", EMPTY[:-1], b"\x1f\x8b\x08\x00garbage"):
        status, said = await send(collector, members(BODY, 2) + behind)
        assert (status, "after 2 gzip members" in said) == (400, True), behind
    assert collector.counters.snapshot()["spans_kept"] == 0


async def test_members_together_are_bounded_by_what_they_unfold_to(collector: Collector) -> None:
    bomb = gzip.compress(bytes(LIMIT // 10)) * 50
    assert len(bomb) < LIMIT // 100
    status, said = await send(collector, bomb)
    assert (status, "max_message_bytes" in said) == (413, True)
    status, said = await send(collector, EMPTY * 10_000)  # of twenty bytes, each takes a decompressor
    assert (status, "gzip members" in said) == (400, True)
