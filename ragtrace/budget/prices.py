"""Prices of a judge's tokens: those of the package `genai-prices`, under a table that the user can extend.

The package loads at the first question for a price, and asks no network: only its `UpdatePrices` would.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.model import Evaluation, JudgeIdentity, Usage
from ragtrace.ports import Clock
from ragtrace.process import SystemClock
from ragtrace.text import in_words

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import MatchLogic, ModelInfo, PriceCalculation, Tier, TieredPrices

_SUFFIX: Final = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$")
_MILLION: Final = 1_000_000
_MOST_DAYS: Final = 180
"""Prices that were looked up earlier may be outdated."""


def _written(value: object) -> object:
    """Accept an unquoted TOML date."""
    return value.isoformat() if isinstance(value, date) else value


class Rates(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """Price of cached input tokens; by default the price of the others."""


class LongPrompts(Rates):
    """The rates of a request whose prompt is longer than ``over`` tokens."""

    over: int = Field(gt=0)


class Price(Rates):
    """The rates of a model."""

    long_prompts: LongPrompts | None = None
    """What requests with long prompts cost, if that is more."""
    as_of: Annotated[str, BeforeValidator(_written)] = ""
    """When the price was looked up; by default the date of its table."""

    def dated(self, as_of: str) -> Price:
        """Return the price with ``as_of`` unless it already has a date."""
        return self if self.as_of else self.model_copy(update={"as_of": as_of})

    def cost_usd(self, usage: Usage) -> float:
        """Return what the tokens cost, in US dollars.

        The sum of several requests costs what short prompts cost: it does not tell how long each one was.
        """
        long = self.long_prompts
        rates: Rates = long if long and usage.calls == 1 and usage.input_tokens > long.over else self
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_input = rates.input if rates.cached_input is None else rates.cached_input
        dollars = (usage.input_tokens - cached) * rates.input + cached * cached_input
        return (dollars + usage.output_tokens * rates.output) / _MILLION


def _scaled(price: Price, share: float) -> Price:
    """Return a price multiplied by ``share``."""
    scaled = price.model_dump()
    for rates in (scaled, scaled["long_prompts"] or {}):
        rates |= {name: rates[name] * share for name in Rates.model_fields if rates.get(name) is not None}
    return Price(**scaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices by provider and model."""

    models: Mapping[str, Mapping[str, Price]]
    as_of: str = ""
    """When the prices in ``models`` were looked up."""
    batch: Mapping[str, float] = field(default_factory=dict)
    """By provider: the share of these prices that batched requests cost."""
    unknown: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By provider: models of which the package's price is not believed."""
    clock: Clock | None = None
    """Models that are not in ``models`` have the package's prices of this clock's day; without one, none."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """By provider: the share of all prices that is paid."""

    def in_batches(self) -> Prices:
        """Return the prices of batched requests; providers without a batch share keep the full price."""
        return replace(self, shares=self.batch)

    @property
    def date(self) -> str:
        """When the prices were looked up: the own table's date, else the package's."""
        if self.as_of or self.clock is None:
            return self.as_of
        return bundled_date(_day(self.clock.now_ns()))

    def price_of(self, identity: JudgeIdentity) -> Price | None:
        """Return the price of a model, ignoring a date at the end of its name; ``None`` if it is unknown."""
        price = self._own(identity) or self._bundled(identity)
        share = self.shares.get(identity.provider, 1.0)
        return price if price is None or share == 1.0 else _scaled(price, share)

    def too_old(self, identity: JudgeIdentity, *, now_ns: int) -> str | None:
        """Return a warning if a model's price is too old; ``None`` if not, or if its date is unknown."""
        price = self.price_of(identity)
        if identity.computes or price is None or not (looked_up := _date(price.as_of)):
            return None
        days = (_day(now_ns) - looked_up).days
        if days <= _MOST_DAYS:
            return None
        remedy = "look it up again, and" if self._own(identity) else f"install a later {_PACKAGE}, or"
        return (
            f"the price of {identity.model} was looked up on {price.as_of}, {days} days ago: {remedy}"
            " name a file that has it with its `as_of` (`judge.prices`)"
        )

    def _own(self, identity: JudgeIdentity) -> Price | None:
        known = self.models.get(identity.provider, {})
        return known.get(identity.model) or known.get(_SUFFIX.sub("", identity.model))

    def _bundled(self, identity: JudgeIdentity) -> Price | None:
        if self.clock is None or identity.computes:
            return None
        names = dict.fromkeys((identity.model, _SUFFIX.sub("", identity.model)))
        if not names.keys().isdisjoint(self.unknown.get(identity.provider, ())):
            return None
        day = _day(self.clock.now_ns())
        found = (bundled_price(identity.provider, name, day) for name in names)
        return next((price for price in found if price), None)

    def cost_usd(self, usage: Usage, identity: JudgeIdentity) -> float | None:
        """Return the cost of the usage in US dollars, or ``None`` if it is unknown: never a guess.

        It is unknown if the model has no price or the endpoint did not report tokens.
        """
        if identity.computes or not usage.calls:
            return 0.0
        price = self.price_of(identity)
        return price.cost_usd(usage) if price and usage.input_tokens else None

    def cost_of(self, evaluation: Evaluation) -> float | None:
        """Return the cost of an evaluation in US dollars, or ``None`` if it is unknown."""
        if evaluation.compromised:
            return None  # two judges with different prices were asked
        return self.cost_usd(evaluation.usage, evaluation.judge)


def load_prices(path: str | Path | None = None, *, clock: Clock | None = None) -> Prices:
    """Return the prices of the package and of ragtrace's own table; prices of the file override them.

    Args:
        path: A file of prices.
        clock: Says which day's prices hold.

    Raises:
        ConfigError: the file cannot be read, or is not a table of prices.
    """
    ours = replace(_own_table(), clock=clock or SystemClock())
    if path is None:
        return ours
    try:
        theirs = _parse(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the prices {str(path)!r} cannot be read: {exc}") from exc
    models = {
        provider: {**ours.models.get(provider, {}), **theirs.models.get(provider, {})}
        for provider in {**ours.models, **theirs.models}
    }
    unknown = {
        provider: (*ours.unknown.get(provider, ()), *theirs.unknown.get(provider, ()))
        for provider in {**ours.unknown, **theirs.unknown}
    }
    batch = {**ours.batch, **theirs.batch}
    return replace(ours, as_of=theirs.as_of or ours.as_of, models=models, batch=batch, unknown=unknown)


@cache
def _own_table() -> Prices:
    text = files("ragtrace.budget").joinpath("prices.toml").read_text(encoding="utf-8")
    return _parse(text, "prices.toml")


def _day(now_ns: int) -> date:
    return datetime.fromtimestamp(now_ns / 1_000_000_000, UTC).date()


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:  # `as_of` is for people: "today", "spring"
        return None


class _Table(BaseModel):
    """A file of prices. All other sections are providers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Price]]

    as_of: Annotated[str, BeforeValidator(_written)] = ""
    source: str = ""
    batch: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    unknown: dict[str, list[str]] = {}


def _parse(text: str, name: str) -> Prices:
    try:
        table = _Table.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"the prices {name!r} are not TOML: {exc}") from exc
    except ValidationError as exc:
        fault = exc.errors(include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ConfigError(
            f"the prices {name!r} are wrong at {where}: {in_words(fault)}"
            ' (write [openai] "MODEL" = {input = 0.15, output = 0.60}, in USD per million tokens)'
        ) from exc
    models = {
        provider: {model: price.dated(table.as_of) for model, price in known.items()}
        for provider, known in (table.__pydantic_extra__ or {}).items()
    }
    return Prices(as_of=table.as_of, models=models, batch=table.batch, unknown=table.unknown)


_PACKAGE: Final = "genai-prices"


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
