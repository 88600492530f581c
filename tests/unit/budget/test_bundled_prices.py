"""The prices of the package: which are believed, from when, and that nothing asks the network for them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ragtrace.budget import CostEstimator, Price, Prices, load_prices
from ragtrace.model import JudgeIdentity, Usage
from tests.patience import PATIENCE_S


class Day:
    """A clock that stands at noon of a day."""

    def __init__(self, day: str) -> None:
        self._ns = int(datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC).timestamp() * 1e9)

    def now_ns(self) -> int:
        return self._ns


def model(name: str) -> JudgeIdentity:
    provider, _, name = name.partition(":")
    return JudgeIdentity(provider=provider, model=name)


def prices_on(day: str, table: Path | None = None) -> Prices:
    return load_prices(table, clock=Day(day))


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("openai:gpt-4o-mini", Price(input=0.15, cached_input=0.075, output=0.60)),
        ("openai:gpt-4o-mini-2024-07-18", Price(input=0.15, cached_input=0.075, output=0.60)),
        ("openai:text-embedding-3-small", Price(input=0.02, output=0.0)),
        ("anthropic:claude-3-5-haiku-latest", Price(input=0.80, cached_input=0.08, output=4.00)),
        ("anthropic:claude-haiku-4-5", Price(input=1.00, cached_input=0.10, output=5.00)),
    ],
)
def test_a_model_that_the_package_lists_has_its_price(name: str, price: Price) -> None:
    found = prices_on("2026-11-20").price_of(model(name))
    assert found is not None
    assert found.model_copy(update={"as_of": ""}) == price


@pytest.mark.parametrize(
    "name",
    [
        "openai:gpt-4o-mini-tuned",
        "openai:ft:gpt-4o-mini-2024-07-18:org::id",
        "openai:text-moderation-latest",
        "openai:whisper-1",
        "openai:gpt-oss-20b",
        "openai:qwen2.5:14b",
        "anthropic:claude-3-haiku-mine",
        "anthropic:claude-opus-4-10",
        "deepseek:deepseek-chat",
        "openai-gateway:gpt-4o-mini",
        "azure:claude-haiku-4-5",
    ],
)
def test_a_price_that_would_be_a_guess_is_unknown(name: str) -> None:
    prices = prices_on("2026-11-20")
    assert prices.price_of(model(name)) is None
    assert prices.cost_usd(Usage(calls=1, input_tokens=10, output_tokens=1), model(name)) is None


def test_a_table_is_above_the_package(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(
        '[openai]\ngpt-4o = {input = 1, output = 1}\n"gpt-oss-20b" = {input = 3, output = 3}\n'
        '[unknown]\nanthropic = ["claude-haiku-4-5"]\n'
    )
    prices = prices_on("2026-11-20", table)
    assert prices.price_of(model("openai:gpt-4o-2024-11-20")) == Price(input=1, output=1)
    assert prices.price_of(model("openai:gpt-oss-20b")) == Price(input=3, output=3)
    assert prices.price_of(model("anthropic:claude-haiku-4-5-20251001")) is None
    assert prices.price_of(model("openai:gpt-4o-mini")) is not None


def test_a_request_with_a_long_prompt_costs_what_the_provider_takes_for_it() -> None:
    price = prices_on("2026-11-20").price_of(model("anthropic:claude-sonnet-4-5"))
    assert price is not None
    one, longer = (Usage(calls=1, input_tokens=tokens, output_tokens=10) for tokens in (200_000, 200_001))
    assert price.cost_usd(one) == pytest.approx(0.6 + 10 * 15 / 1e6)
    assert price.cost_usd(longer) == pytest.approx(200_001 * 6 / 1e6 + 10 * 22.5 / 1e6)
    assert price.times(0.5).cost_usd(longer) == pytest.approx(price.cost_usd(longer) / 2)
    estimated = CostEstimator(price=price).estimate(longer)
    assert estimated.usd_nano >= price.cost_usd(longer) * 1e9


def test_the_prices_have_a_date_that_is_not_in_the_future_and_old_ones_are_warned_of() -> None:
    today = datetime.now(UTC).date()
    prices = load_prices()
    dated = date.fromisoformat(prices.date)
    assert date(2026, 11, 1) <= dated <= today
    price = prices.price_of(model("openai:gpt-4o"))
    assert price is not None
    assert price.as_of == prices.date
    assert prices.too_old(model("openai:gpt-4o"), now_ns=Day(f"{dated}").now_ns()) is None
    said = prices.too_old(model("openai:gpt-4o"), now_ns=Day(f"{dated.replace(year=2040)}").now_ns())
    assert said is not None
    assert f"was looked up on {dated}" in said
    assert "install a later genai-prices" in said
    assert "`judge.prices`" in said


def _run(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return ran.stdout


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
    assert _run(code) == "no connection\n"
