"""The breaker: refusals open it, one request at a time probes it, an answer closes it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import pytest

from ragtrace.errors import (
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace_collector.judge import Breaker, BreakerState

SECOND = 1_000_000_000
REFUSED = JudgeRefused("judge m at host: it does not accept the key (HTTP 401)")


@dataclass
class Clock:
    """A clock that stands still until it is told otherwise."""

    time_ns: int = 1_700_000_000 * SECOND

    def now_ns(self) -> int:
        return self.time_ns

    def forward(self, seconds: float) -> None:
        self.time_ns += int(seconds * SECOND)


def breaker_at(clock: Clock) -> Breaker:
    return Breaker(who="judge", clock=clock, probe_delays_ns=(10 * SECOND, 60 * SECOND))


async def opened(clock: Clock) -> Breaker:
    breaker = breaker_at(clock)
    for _ in range(2):
        await ask(breaker, REFUSED)
    return breaker


async def ask(breaker: Breaker, failure: JudgeError | None = None) -> bool:
    """Make a request; say whether the judge was asked."""
    asked = False
    with suppress(JudgeError):
        async with breaker.passage():
            asked = True
            if failure:
                raise failure
    return asked


async def test_refusals_open_it_and_it_says_why() -> None:
    breaker = await opened(Clock())
    assert breaker.state is BreakerState.OPEN
    assert "HTTP 401" in breaker.reason
    with pytest.raises(JudgeRefused, match="HTTP 401") as refused:
        async with breaker.passage():
            pytest.fail("the judge was asked")
    assert refused.value.usage.calls == 0


@pytest.mark.parametrize("failure", [JudgeTimeout("late"), JudgeUnavailable("503"), JudgeNonsense("?")])
async def test_what_a_retry_may_mend_leaves_it_closed(failure: JudgeError) -> None:
    breaker = breaker_at(Clock())
    await ask(breaker, failure)
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize("failure", [JudgeTimeout("late"), JudgeUnavailable("503")])
async def test_requests_in_a_row_that_nobody_answers_are_told_until_one_is_answered(
    failure: JudgeError,
) -> None:
    breaker = breaker_at(Clock())
    told = []
    for outcome in (failure, None, failure, failure, JudgeNonsense("?"), failure, failure, None):
        assert await ask(breaker, outcome)
        told.append(breaker.reason)
    assert told == ["", "", "", str(failure), "", "", str(failure), ""]


async def test_a_probe_that_is_answered_closes_it() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.forward(9)
    assert not await ask(breaker)
    clock.forward(1)
    assert breaker.state is BreakerState.HALF_OPEN
    assert await ask(breaker)
    assert (breaker.state, breaker.reason) == (BreakerState.CLOSED, "")


async def test_the_delays_before_probes_grow_to_the_last_one() -> None:
    clock = Clock()
    breaker = breaker_at(clock)
    await ask(breaker, REFUSED)
    waits = []
    for _ in range(4):
        await ask(breaker, REFUSED)
        waits.append((breaker.probe_ns - clock.now_ns()) // SECOND)
        clock.time_ns = breaker.probe_ns
    assert waits == [10, 60, 60, 60]


async def test_while_one_request_probes_the_others_wait_for_what_it_finds() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.forward(10)
    answer, asked = asyncio.Event(), 0

    async def request() -> None:
        nonlocal asked
        async with breaker.passage():
            asked += 1
            await answer.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(request())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asked == 1
        answer.set()
    assert asked == 3


async def test_a_probe_that_is_interrupted_lets_the_next_one_probe() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.forward(10)
    with suppress(asyncio.CancelledError):
        async with breaker.passage():
            raise asyncio.CancelledError
    assert breaker.state is BreakerState.HALF_OPEN
    assert await ask(breaker)


async def test_a_probe_that_finds_nobody_leaves_it_open() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.forward(10)
    await ask(breaker, JudgeUnavailable("no connection"))
    assert breaker.state is BreakerState.OPEN
    assert "HTTP 401" in breaker.reason


async def test_a_probe_that_is_answered_with_nonsense_closes_it() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.forward(10)
    await ask(breaker, JudgeNonsense("?"))
    assert breaker.state is BreakerState.CLOSED


async def test_a_long_pause_that_the_endpoint_asks_for_opens_it_and_probes_go_on_meanwhile() -> None:
    clock = Clock()
    breaker = breaker_at(clock)
    waits = []
    for _ in range(3):
        await ask(breaker, JudgeUnavailable("429", retry_after_s=3600))
        waits.append((breaker.probe_ns - clock.now_ns()) // SECOND)
        clock.time_ns = breaker.probe_ns
    assert waits == [10, 60, 60]
    clock.time_ns -= 1
    with pytest.raises(JudgeUnavailable):
        async with breaker.passage():
            pytest.fail("the judge was asked")


async def test_it_tells_of_each_change_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    breaker = breaker_at(clock)
    for failure in (REFUSED, REFUSED, REFUSED, REFUSED, None, None):
        await ask(breaker, failure)
        clock.time_ns = max(clock.time_ns, breaker.probe_ns)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "it does not accept the key" in caplog.text
