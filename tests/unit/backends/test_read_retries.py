"""How long back ends that fail are asked again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backends._jaeger_grpc import JaegerGrpcReader
from ragtrace.backends.read_retries import ReadRetries
from ragtrace.errors import ReadError


def pauses(retries: ReadRetries, asked_for_s: float | None = None) -> list[float]:
    found = []
    while (pause := retries.pause_s(asked_for_s)) is not None:
        found.append(pause)
    return found


def test_pauses_double_up_to_five_seconds_and_end_after_two_minutes() -> None:
    found = pauses(ReadRetries())
    assert found[:6] == [0.5, 1, 2, 4, 5, 5]
    assert (len(found), sum(found)) == (26, 117.5)


@given(asked_for_s=st.floats(0, 1e6))
def test_what_the_server_asks_for_is_kept_within_bounds(asked_for_s: float) -> None:
    found = pauses(ReadRetries(), asked_for_s)
    assert set(found) <= {min(asked_for_s, 30.0)}
    assert sum(found) <= 120
    assert len(found) < 100


def test_the_time_of_attempts_counts_too() -> None:
    assert ReadRetries().pause_s(took_s=121) is None


class Answers:
    """A query service of Jaeger that is away so many times, after it has answered once."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.calls = 0

    async def get_services(self, _: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.calls += 1
        if 1 < self.calls <= 1 + self.away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        return b"\x0a\x04shop"


@asynccontextmanager
async def jaeger(answers: Answers) -> AsyncIterator[JaegerGrpcReader]:
    async def no_pause(_: float) -> None:
        """Wait for nothing."""

    server = grpc.aio.server()
    handlers = {"GetServices": grpc.unary_unary_rpc_method_handler(answers.get_services)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("jaeger.api_v3.QueryService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader = JaegerGrpcReader(f"127.0.0.1:{port}", sleep=no_pause)
    try:
        yield reader
    finally:
        await reader.aclose()
        await server.stop(None)


async def test_a_jaeger_that_is_away_for_a_while_is_asked_again_over_grpc() -> None:
    async with jaeger(Answers(away=5)) as reader:
        assert [await reader.services() for _ in range(2)] == [("shop",)] * 2


async def test_a_jaeger_that_stays_away_is_given_up_with_the_number_of_attempts() -> None:
    async with jaeger(Answers(away=999)) as reader:
        await reader.services()
        with pytest.raises(ReadError, match=r"answered UNAVAILABLE: restarting \(tried 27 times\)"):
            await reader.services()
