"""``ragtrace budget``: what is spent and left, read beside the collector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragtrace.budget import Budget, Limit, Period, Spend
from ragtrace.clock import SystemClock
from tests.integration.cli.program import run
from tests.stores.place import open_budget

CONFIG = """
export: [{endpoint: "http://localhost:4317"}]
budget: {live: {month: [5 USD, 1000 calls]}}
store: {path: %s}
"""


@pytest.fixture
async def config(tmp_path: Path) -> Path:
    store, file = tmp_path / "store.db", tmp_path / "collector.yaml"
    file.write_text(CONFIG % store)
    live = Budget(name="live", limits={Period.MONTH: Limit(calls=1000, usd_nano=5_000_000_000)})
    spent = Spend(calls=250, tokens=90_000, usd_nano=1_250_000_000)
    async with open_budget(store) as book:
        await book.reserve(live, spent, now_ns=SystemClock().now_ns())
    return file


async def test_it_shows_what_is_spent_of_each_limit_and_until_when(config: Path) -> None:
    lines = run("budget", "--config", str(config)).output.splitlines()
    assert lines[0] == "live"
    assert lines[1].startswith("  month_calls    250 of 1,000 (25%), until 20")
    assert lines[2].startswith("  month_usd      1.2500 USD of 5.0000 USD (25%), until 20")
    assert lines[3] == "backfill: no limits"


async def test_it_tells_machines_the_same_in_dollars(config: Path) -> None:
    told = json.loads(run("budget", "--config", str(config), "--json").output)
    (calls, usd) = told["limits"]
    assert (usd["purse"], usd["limit"], usd["spent"], usd["left"]) == ("live", "month_usd", 1.25, 3.75)
    assert (calls["most"], calls["resets_at"]) == (1000, usd["resets_at"])


def test_the_budget_of_the_drift_check_is_shown_if_there_are_anchors(config: Path) -> None:
    config.write_text(config.read_text() + "drift: {anchors: builtin, budget: 200 calls}\n")
    lines = run("budget", "--config", str(config)).output.splitlines()
    assert lines[-2] == "drift"
    assert lines[-1].startswith("  day_calls      0 of 200 (0%), until 20")


def test_without_a_store_it_says_what_to_name(tmp_path: Path) -> None:
    file = tmp_path / "collector.yaml"
    file.write_text(CONFIG % (tmp_path / "none.db"))
    result = run("budget", "--config", str(file))
    assert result.exit_code == 1
    assert "`store.path`" in result.output
