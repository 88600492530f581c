"""The pace at which a judge is asked: cut by overloads, grown by clean rounds."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.errors import JudgeError, JudgeNonsense, JudgeTimeout, JudgeUnavailable
from ragtrace.judge import AdaptiveLimiter
from tests.patience import PATIENCE_S


async def one(limiter: AdaptiveLimiter, failure: JudgeError | None = None) -> None:
    with suppress(JudgeError):
        async with limiter.turn():
            if failure:
                raise failure


@pytest.mark.parametrize(
    ("failure", "pace"), [(JudgeUnavailable("429"), 4), (JudgeTimeout("late"), 4), (JudgeNonsense("?"), 8)]
)
async def test_an_overload_halves_the_pace_and_no_other_failure(failure: JudgeError, pace: int) -> None:
    limiter = AdaptiveLimiter(8)
    await one(limiter, failure)
    assert limiter.limit == pace


async def test_a_clean_round_raises_the_pace_by_one_up_to_the_most() -> None:
    limiter = AdaptiveLimiter(4)
    await one(limiter, JudgeUnavailable("429"))
    limits = []
    for _ in range(7):
        await one(limiter)
        limits.append(limiter.limit)
    assert limits == [2, 3, 3, 3, 4, 4, 4]


@given(most=st.integers(1, 6), ends=st.lists(st.sampled_from(["clean", "overload", "cancel"]), max_size=40))
async def test_never_more_are_under_way_than_allowed_and_no_slot_is_lost(most: int, ends: list[str]) -> None:
    limiter = AdaptiveLimiter(most)
    under_way = peak = 0

    async def request(end: str) -> None:
        nonlocal under_way, peak
        async with limiter.turn():
            under_way += 1
            peak = max(peak, under_way)
            try:
                await asyncio.sleep(0)
                if end == "overload":
                    raise JudgeUnavailable("429")
                if end == "cancel":
                    raise asyncio.CancelledError
            finally:
                under_way -= 1

    await asyncio.gather(*map(request, ends), return_exceptions=True)
    assert peak <= most
    for _ in range(most * most + most):
        await one(limiter)
    assert limiter.limit == most
    await asyncio.wait_for(asyncio.gather(*(one(limiter) for _ in range(most))), PATIENCE_S)
