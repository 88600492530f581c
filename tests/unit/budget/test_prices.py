from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragtrace.budget import load_prices
from ragtrace.errors import ConfigError
from ragtrace.model import JudgeIdentity, Usage

SPENT = Usage(
    calls=3, input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000, reasoning_tokens=9
)


def model(name: str, provider: str = "openai") -> JudgeIdentity:
    return JudgeIdentity(provider=provider, model=name)


def test_cached_tokens_cost_what_the_provider_takes_for_them() -> None:
    cost = load_prices().cost_usd(SPENT, model("gpt-4o-mini"))
    assert cost == pytest.approx(0.6 * 0.15 + 0.4 * 0.075 + 0.1 * 0.60)


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
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"prices\.toml.*{named}"):
        load_prices(path)


def test_batches_cost_half_at_openai_and_the_full_price_elsewhere() -> None:
    prices = load_prices()
    for identity, share in ((model("gpt-4o-mini"), 0.5), (model("claude-haiku-4-5", "anthropic"), 1.0)):
        full = prices.cost_usd(SPENT, identity)
        assert full is not None
        assert prices.in_batches().cost_usd(SPENT, identity) == pytest.approx(share * full)


def at(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1e9)


@pytest.mark.parametrize(
    ("today", "is_old"),
    [("2026-01-01", False), ("2026-06-30", False), ("2026-07-01", True), ("2025-01-01", False)],
)
def test_a_price_is_old_after_half_a_year(today: str, is_old: bool, tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text("as_of = 2026-01-01\n[openai]\nmine = {input = 1, output = 1}")
    said = load_prices(table).too_old(model("mine"), now_ns=at(today))
    assert bool(said) is is_old
    if is_old:
        assert said is not None
        assert "looked up on 2026-01-01, 181 days ago" in said
        assert "`judge.prices`" in said


def test_a_table_s_date_is_of_its_own_prices_and_not_of_those_that_come_with_ragtrace(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(
        'as_of = "2030-01-01"\n[openai]\nmine = {input = 1, output = 1}\n'
        'older = {input = 1, output = 1, as_of = "2029-01-01"}'
    )
    prices, now_ns = load_prices(table), at("2030-01-02")
    assert prices.too_old(model("mine"), now_ns=now_ns) is None
    assert prices.in_batches().too_old(model("mine"), now_ns=now_ns) is None
    assert "2029-01-01" in (prices.too_old(model("older"), now_ns=now_ns) or "")
    assert load_prices().date in (prices.too_old(model("gpt-4o-mini"), now_ns=now_ns) or "")
