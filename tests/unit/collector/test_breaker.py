"""The breaker: refusals open it, one request at a time probes it, an answer closes it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from ragtrace.errors import JudgeError, JudgeNonsense, JudgeRefused, JudgeUnavailable
from ragtrace_collector.judge import Breaker, BreakerState

SECOND = 1_000_000_000
REFUSED = JudgeRefused("judge m at host: it does not accept the key (HTTP 401)")


class Clock:
    """A clock that stands still until it is told otherwise."""

    time_ns = 1_700_000_000 * SECOND

    def now_ns(self) -> int:
        return self.time_ns


async def ask(breaker: Breaker, failure: BaseException | None = None) -> bool:
    """Make a request; say whether the judge was asked."""
    asked = False
    with suppress(JudgeError, asyncio.CancelledError):
        async with breaker.passage():
            asked = True
            if failure:
                raise failure
    return asked


async def probed() -> Breaker:
    """Return a breaker whose next request probes."""
    clock = Clock()
    breaker = Breaker(who="judge", clock=clock, probe_delays_ns=(10 * SECOND, 60 * SECOND))
    for _ in range(2):
        await ask(breaker, REFUSED)
    assert not await ask(breaker)
    clock.time_ns += 10 * SECOND
    return breaker


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (None, BreakerState.CLOSED),
        (JudgeNonsense("?"), BreakerState.CLOSED),
        (JudgeUnavailable("no connection"), BreakerState.OPEN),
        (asyncio.CancelledError(), BreakerState.HALF_OPEN),
    ],
    ids=["an answer", "nonsense", "nobody", "interrupted"],
)
async def test_what_a_probe_finds_closes_it_or_not(found: BaseException | None, state: BreakerState) -> None:
    breaker = await probed()
    assert await ask(breaker, found)
    assert (breaker.state, "HTTP 401" in breaker.reason) == (state, state is not BreakerState.CLOSED)
    assert await ask(breaker) is (state is not BreakerState.OPEN)
