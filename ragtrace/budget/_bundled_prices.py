"""The prices that the package `genai-prices` bundles.

It loads at the first question for a price, and asks no network: only its `UpdatePrices` would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import MatchLogic, ModelInfo, PriceCalculation, Tier, TieredPrices

    from ragtrace.budget.prices import Price

PACKAGE: Final = "genai-prices"


@lru_cache(maxsize=256)
def bundled_price(provider: str, model: str, day: date) -> Price | None:
    """Return the price of a model on a day (UTC), or ``None`` if it is unknown: never a guess.

    The package matches names loosely. It is believed if it has the provider, and this very name in its list.
    A price that depends on the time of day is unknown, and one of zero too: free offers end.
    """
    from genai_prices import Usage, calc_price

    at = datetime.combine(day, time(12), UTC)
    try:
        found = calc_price(Usage(), model, provider_id=provider, genai_request_timestamp=at)
    except LookupError:
        return None
    if not _is_meant(found, provider, model) or _changes_within_a_day(found.model):
        return None
    return _price(found, as_of=bundled_date(day))


@lru_cache(maxsize=8)
def bundled_date(day: date) -> str:
    """Return the date of the prices: the last day, not after ``day``, from which one of them applies.

    The package has no date of its own, and is released a few times a month.
    """
    from genai_prices.data import providers

    known = (start for provider in providers for model in provider.models for start in _starts(model))
    return max((start for start in known if start <= day), default=date.min).isoformat()


def _starts(model: ModelInfo) -> Iterator[date]:
    from genai_prices.types import StartDateConstraint

    if isinstance(model.prices, list):
        for price in model.prices:
            if isinstance(price.constraint, StartDateConstraint):
                yield price.constraint.start_date


def _is_meant(found: PriceCalculation, provider: str, model: str) -> bool:
    is_own = any(own is found.model for own in found.provider.models)  # not another provider's
    has_name = found.model.id == model or _names(found.model.match, model)
    return found.provider.id == provider and is_own and has_name


def _names(clause: MatchLogic, model: str) -> bool:
    from genai_prices.types import ClauseEquals, ClauseOr, ClauseRegex, ClauseStartsWith

    match clause:
        case ClauseOr(or_=clauses):
            return any(_names(one, model) for one in clauses)
        case ClauseEquals(equals=name) | ClauseStartsWith(starts_with=name):
            return name == model
        case ClauseRegex(regex=pattern):
            return re.fullmatch(pattern, model) is not None
        case _:
            return False


def _changes_within_a_day(model: ModelInfo) -> bool:
    from genai_prices.types import TimeOfDateConstraint

    prices = model.prices if isinstance(model.prices, list) else []
    return any(isinstance(price.constraint, TimeOfDateConstraint) for price in prices)


def _price(found: PriceCalculation, *, as_of: str) -> Price | None:
    from ragtrace.budget.prices import LongPrompts, Price

    prices = (found.model_price.input_mtok, found.model_price.output_mtok, found.model_price.cache_read_mtok)
    input_, output, cached = (_base(price) for price in prices)
    if output is None and "embed" in found.model.id:
        output = 0.0
    if input_ is None or output is None or not (input_ or output):
        return None
    long_prompts = None
    if over := min((tier.start for price in prices for tier in _tiers(price)), default=0):
        highest_input, highest_output, highest_cached = (_highest(price) for price in prices)
        long_prompts = LongPrompts(
            over=over,
            input=highest_input or input_,
            output=highest_output or output,
            cached_input=highest_cached,
        )
    return Price(input=input_, output=output, cached_input=cached, long_prompts=long_prompts, as_of=as_of)


def _base(price: Decimal | TieredPrices | None) -> float | None:
    from genai_prices.types import TieredPrices

    if price is None:
        return None
    return float(price.base if isinstance(price, TieredPrices) else price)


def _tiers(price: Decimal | TieredPrices | None) -> list[Tier]:
    from genai_prices.types import TieredPrices

    return price.tiers if isinstance(price, TieredPrices) else []


def _highest(price: Decimal | TieredPrices | None) -> float | None:
    return max((float(tier.price) for tier in _tiers(price)), default=_base(price))
