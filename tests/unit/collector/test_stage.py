"""A stage survives a turn that fails, and says why without quoting what may be content."""

from __future__ import annotations

import asyncio

import pytest

from ragtrace_collector.stage import Stage
from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.telemetry.counters import Counters


async def told_by(error: Exception, caplog: pytest.LogCaptureFixture) -> str:
    """Run a stage whose first turn fails, until its second; return what was logged."""
    turns, stop, counters = [error], asyncio.Event(), Counters()

    async def step() -> bool:
        if turns:
            raise turns.pop()
        stop.set()
        return False

    await Stage(name="sample", step=step, pause_s=0.0).run(stop, counters)
    assert counters.snapshot()["stage_errors"] == 1
    (record,) = caplog.records
    assert vars(record)["event_name"] == "stage_error"
    return record.getMessage()


async def test_the_stores_own_words_are_told(caplog: pytest.LogCaptureFixture) -> None:
    lost = StoreUnavailable("the store cannot be used: another process owns the topic")
    assert await told_by(lost, caplog) == "sample: the store cannot be used: another process owns the topic"


async def test_of_other_errors_the_class_and_the_place_are_told(caplog: pytest.LogCaptureFixture) -> None:
    told = await told_by(RuntimeError("could not read 'a secret answer'"), caplog)
    assert told.startswith("sample: RuntimeError at ")
    assert "test_stage.py:" in told
    assert "secret" not in told
