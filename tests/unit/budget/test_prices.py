"""Prices of the package and of a table of one's own, and that nobody asks the network for them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ragtrace.budget import CostEstimator, Price, Prices, load_prices
from ragtrace.errors import ConfigError
from ragtrace.model import JudgeIdentity, Usage
from tests.patience import PATIENCE_S

SPENT = Usage(
    calls=3, input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000, reasoning_tokens=9
)


def at(day: str) -> int:
    return int(datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC).timestamp() * 1e9)


class Day:
    """A clock that stands at noon of a day."""

    def __init__(self, day: str) -> None:
        self._ns = at(day)

    def now_ns(self) -> int:
        return self._ns


def model(name: str) -> JudgeIdentity:
    provider, _, name = name.partition(":")
    return JudgeIdentity(provider=provider, model=name)


def prices_on(day: str = "2026-11-20", table: Path | None = None) -> Prices:
    return load_prices(table, clock=Day(day))


def price_of(name: str, prices: Prices | None = None) -> Price:
    found = (prices or prices_on()).price_of(model(name))
    assert found is not None
    return found


def test_a_model_that_the_package_lists_has_its_price_and_cached_tokens_theirs() -> None:
    mini, haiku = price_of("openai:gpt-4o-mini"), price_of("anthropic:claude-haiku-4-5")
    assert (mini.input, mini.cached_input, mini.output) == (0.15, 0.075, 0.60)
    assert (haiku.input, haiku.cached_input, haiku.output) == (1.00, 0.10, 5.00)
    assert price_of("openai:gpt-4o-mini-2024-07-18") == mini
    assert price_of("openai:text-embedding-3-small").output == 0
    cost = load_prices().cost_usd(SPENT, model("openai:gpt-4o-mini"))
    assert cost == pytest.approx(0.6 * 0.15 + 0.4 * 0.075 + 0.1 * 0.60)
    assert price_of("openai:o3", prices_on("2025-06-09")).input == 10.0
    assert price_of("openai:o3", prices_on("2025-06-10")).input == 2.0


def test_a_price_that_would_be_a_guess_is_unknown_and_what_costs_nothing_is_known_to() -> None:
    for name in (
        "openai:gpt-4o-mini-tuned",
        "openai:ft:gpt-4o-mini-2024-07-18:org::id",
        "openai:gpt-oss-20b",
        "openai:qwen2.5:14b",
        "anthropic:claude-opus-4-10",
        "deepseek:deepseek-chat",
        "openai-gateway:gpt-4o-mini",
    ):
        assert prices_on().price_of(model(name)) is None, name
        assert prices_on().cost_usd(Usage(calls=1, input_tokens=10, output_tokens=1), model(name)) is None
    assert load_prices().cost_usd(Usage(calls=1), model("openai:gpt-4o-mini")) is None  # no tokens were told
    assert load_prices().cost_usd(Usage(), model("openai:anything")) == 0.0
    computing = JudgeIdentity(provider="lexical", model="lexical-v2", computes=True)
    assert load_prices().cost_usd(Usage(calls=2), computing) == 0.0


def test_a_table_is_above_the_package(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(
        'as_of = "today"\n'
        '[openai]\ngpt-4o = {input = 1, output = 1}\n"gpt-oss-20b" = {input = 3, output = 3}\n'
        '[unknown]\nanthropic = ["claude-haiku-4-5"]\n'
        "[batch]\nanthropic = 0.5\n"
    )
    prices = prices_on(table=table)
    assert price_of("openai:gpt-4o-2024-11-20", prices).input == 1
    assert price_of("openai:gpt-oss-20b", prices).output == 3
    assert prices.price_of(model("anthropic:claude-haiku-4-5-20251001")) is None
    assert price_of("openai:gpt-4o-mini", prices) == price_of("openai:gpt-4o-mini")
    assert prices.date == "today"
    for name, batch, share in (
        ("anthropic:claude-sonnet-4-5", prices.in_batches(), 0.5),
        ("openai:gpt-4o-mini", prices_on().in_batches(), 0.5),
        ("anthropic:claude-sonnet-4-5", prices_on().in_batches(), 1),
    ):
        full = prices.cost_usd(SPENT, model(name))
        assert batch.cost_usd(SPENT, model(name)) == pytest.approx(share * (full or 0)), name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[openai", "TOML"),
        ("[openai]\nm = 3", r"openai\.m"),
        ("[openai]\nm = {input = -1, output = 0}", r"openai\.m\.input"),
        ("[openai]\nm = {input = nan, output = 0}", r"openai\.m\.input"),
        ("[openai]\nm = {input = 1}", r"openai\.m\.output"),
        ("[openai]\nm = {input = 1, output = 1, outptu = 1}", r"openai\.m\.outptu"),
    ],
)
def test_a_wrong_file_is_refused_with_its_field(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    with pytest.raises(ConfigError, match=r"prices\.toml"):
        load_prices(path)
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"prices\.toml.*{named}"):
        load_prices(path)


def test_a_request_with_a_long_prompt_costs_what_the_provider_takes_for_it() -> None:
    price = price_of("anthropic:claude-sonnet-4-5")
    one, longer = (Usage(calls=1, input_tokens=tokens, output_tokens=10) for tokens in (200_000, 200_001))
    assert price.cost_usd(one) == pytest.approx(0.6 + 10 * 15 / 1e6)
    assert price.cost_usd(longer) == pytest.approx(200_001 * 6 / 1e6 + 10 * 22.5 / 1e6)
    assert price.cost_usd(Usage(calls=9, input_tokens=900_000)) == pytest.approx(2.7)  # all are short
    assert CostEstimator(price=price).estimate(longer).usd_nano >= price.cost_usd(longer) * 1e9


def test_the_prices_have_a_date_that_is_not_in_the_future_and_old_ones_are_warned_of() -> None:
    prices, gpt = load_prices(), model("openai:gpt-4o")
    dated = date.fromisoformat(prices.date)
    assert date(2026, 11, 1) <= dated <= datetime.now(UTC).date()
    assert prices.too_old(gpt, now_ns=at(f"{dated}")) is None
    said = prices.too_old(gpt, now_ns=at(f"{dated.replace(year=2040)}")) or ""
    assert f"was looked up on {dated}" in said
    assert "install a later genai-prices" in said


def test_a_price_of_a_table_is_old_after_half_a_year_from_its_own_date(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text("as_of = 2030-01-01\n[openai]\nmine = {input = 1, output = 1}\n")
    prices = load_prices(table)
    for day, is_old in [("2029-01-01", False), ("2030-06-30", False), ("2030-07-01", True)]:
        assert bool(prices.too_old(model("openai:mine"), now_ns=at(day))) is is_old, day


@pytest.mark.slow
def test_no_price_is_asked_for_on_the_network() -> None:
    code = """
import sys, threading
def audit(event, args):
    assert event not in ("socket.connect", "socket.getaddrinfo", "socket.sendto"), (event, args)
sys.addaudithook(audit)
from ragtrace.budget import load_prices
from ragtrace.model import JudgeIdentity
assert load_prices().price_of(JudgeIdentity(provider="openai", model="gpt-4o"))
assert threading.active_count() == 1
print("no connection")
"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert ran.stdout == "no connection\n"
