"""What is tried again, and after which wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backends.jaeger import JaegerGrpcReader
from ragtrace.errors import ReadError
from ragtrace.http import Backoff, ReadRetries, retry_after_s_in


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


@given(retry=st.integers(0, 2000), draw=st.floats(0, 1), longest_wait_s=st.floats(0.5, 1e6))
def test_an_own_wait_is_drawn_between_half_and_all_of_twice_the_one_before(
    retry: int, draw: float, longest_wait_s: float
) -> None:
    backoff = Backoff(longest_wait_s=longest_wait_s)
    whole = min(0.5 * 2.0 ** min(retry, 30), longest_wait_s)
    assert backoff.own_wait_s(retry) == whole
    assert whole / 2 <= backoff.own_wait_s(retry, draw) <= whole


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7),
        ({"retry-after-ms": "99999999999999"}, 86_400),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_headers_ask_for_a_wait_in_milliseconds_seconds_or_by_a_date(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_after_s_in(headers) == wait_s


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
