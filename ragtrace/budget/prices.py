"""Prices of a judge's tokens, from a table that the user can extend."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.model import Evaluation, JudgeIdentity, Usage
from ragtrace.validation import in_words

_SUFFIX: Final = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)$")
_MILLION: Final = 1_000_000
_MOST_DAYS: Final = 180
"""Prices that were looked up earlier may be outdated."""


def _written(value: object) -> object:
    """Accept an unquoted TOML date."""
    return value.isoformat() if isinstance(value, date) else value


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    """Price of cached input tokens; by default the price of the others."""
    as_of: Annotated[str, BeforeValidator(_written)] = ""
    """When the price was looked up; by default the date of its table."""

    def times(self, share: float) -> Price:
        """Return the price multiplied by ``share``."""
        cached = None if self.cached_input is None else self.cached_input * share
        return Price(
            input=self.input * share, output=self.output * share, cached_input=cached, as_of=self.as_of
        )

    def dated(self, as_of: str) -> Price:
        """Return the price with ``as_of`` unless it already has a date."""
        return self if self.as_of else self.model_copy(update={"as_of": as_of})

    def cost_usd(self, usage: Usage) -> float:
        """Return what the tokens cost, in US dollars."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        cached_input = self.input if self.cached_input is None else self.cached_input
        dollars = (usage.input_tokens - cached) * self.input + cached * cached_input
        return (dollars + usage.output_tokens * self.output) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices by provider and model."""

    as_of: str
    """When the prices were looked up."""
    models: Mapping[str, Mapping[str, Price]]
    batch: Mapping[str, float] = field(default_factory=dict)
    """By provider: the share of these prices that batched requests cost."""

    def in_batches(self) -> Prices:
        """Return the prices of batched requests; providers without a batch share keep the full price."""
        return Prices(
            as_of=self.as_of,
            models={
                provider: {name: price.times(self.batch.get(provider, 1.0)) for name, price in known.items()}
                for provider, known in self.models.items()
            },
        )

    def price_of(self, identity: JudgeIdentity) -> Price | None:
        """Return the price of a model, ignoring a date at the end of its name; ``None`` if it is unknown."""
        known = self.models.get(identity.provider, {})
        return known.get(identity.model) or known.get(_SUFFIX.sub("", identity.model))

    def too_old(self, identity: JudgeIdentity, *, now_ns: int) -> str | None:
        """Return a warning if a model's price is too old; ``None`` if not, or if its date is unknown."""
        price = self.price_of(identity)
        if identity.computes or price is None or not (looked_up := _date(price.as_of)):
            return None
        days = (datetime.fromtimestamp(now_ns / 1e9, UTC).date() - looked_up).days
        if days <= _MOST_DAYS:
            return None
        return (
            f"the price of {identity.model} was looked up on {price.as_of}, {days} days ago: look it up"
            " again, and name a file that has it with its `as_of` (--prices, `judge.prices`)"
        )

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


def load_prices(path: str | Path | None = None) -> Prices:
    """Read ragtrace's own prices; prices of the file override them.

    Raises:
        ConfigError: the file cannot be read, or is not a table of prices.
    """
    ours = _parse(files("ragtrace.budget").joinpath("prices.toml").read_text(encoding="utf-8"), "prices.toml")
    if path is None:
        return ours
    try:
        theirs = _parse(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the prices {str(path)!r} cannot be read: {exc}") from exc
    providers = {**ours.models, **theirs.models}
    merged = {name: {**ours.models.get(name, {}), **theirs.models.get(name, {})} for name in providers}
    return Prices(as_of=theirs.as_of or ours.as_of, models=merged, batch={**ours.batch, **theirs.batch})


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
    return Prices(as_of=table.as_of, models=models, batch=table.batch)
