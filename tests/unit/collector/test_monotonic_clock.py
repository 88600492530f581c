"""Time inside the collector goes on, whatever is done to the machine's clock."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace_collector.telemetry.counters import SteadyClock

HOUR_NS = 3600 * 10**9


@dataclass
class SetClock:
    """A clock that a test sets."""

    at_ns: int = 0

    def now_ns(self) -> int:
        return self.at_ns


@given(st.lists(st.integers(min_value=0, max_value=2**62), min_size=1))
def test_it_never_goes_back(readings: list[int]) -> None:
    clock = SetClock()
    steady, told = SteadyClock(clock), []
    for clock.at_ns in readings:
        told.append(steady.now_ns())
    assert told == sorted(told)


def test_what_was_written_before_a_restart_is_not_in_the_future() -> None:
    clock = SetClock(9 * HOUR_NS)
    steady = SteadyClock(clock, not_before_ns=10 * HOUR_NS)
    assert steady.now_ns() == 10 * HOUR_NS
    clock.at_ns += 7
    assert steady.now_ns() == 10 * HOUR_NS + 7


def test_setting_back_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock(10 * HOUR_NS)
    steady = SteadyClock(clock)
    steady.now_ns()
    clock.at_ns -= HOUR_NS
    with caplog.at_level(logging.WARNING):
        steady.now_ns(), steady.now_ns()
    (record,) = caplog.records
    assert "set back by 3600 s" in record.getMessage()
