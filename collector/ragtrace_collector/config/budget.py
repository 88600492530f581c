"""What judging and the drift check may cost: the sections ``budget`` and ``drift``."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from ragtrace.budget import Limit
from ragtrace_collector.config.values import AlternativeForm, Section, one_or_more

_AMOUNT: Final = re.compile(r"(\d{1,15}(?:\.\d+)?) *(calls|tokens|usd)", re.IGNORECASE)
_MOST_USD: Final = 1e9


def limit_of(amounts: tuple[str, ...]) -> Limit:
    """Return what amounts such as ``5 USD`` and ``1000 calls`` allow in one window.

    Raises:
        ValueError: one is no amount, or two limit the same.
    """
    found: dict[str, float] = {}
    for each in amounts:
        amount = _AMOUNT.fullmatch(each.strip())
        number, unit = (float(amount[1]), amount[2].lower()) if amount else (0.0, "")
        if not number or (number >= _MOST_USD and unit == "usd") or (unit != "usd" and number % 1):
            raise ValueError("write an amount such as 5 USD, 1000 calls or 200000 tokens, or a list of them")
        if unit in found:
            raise ValueError(f"two amounts of {unit}: write one")
        found[unit] = number
    whole = {unit: int(found[unit]) if unit in found else None for unit in ("calls", "tokens")}
    return Limit.of(calls=whole["calls"], tokens=whole["tokens"], usd=found.get("usd"))


def _readable(amounts: tuple[str, ...]) -> tuple[str, ...]:
    limit_of(amounts)
    return amounts


Amounts = Annotated[
    tuple[str, ...], AfterValidator(_readable), BeforeValidator(one_or_more), AlternativeForm("string")
]


class BudgetPeriodsConfig(Section):
    """Limits by the length of their windows. All hold."""

    minute: Amounts = ()
    day: Amounts = ()
    month: Amounts = ()


class BudgetConfig(Section):
    """What judging may cost, live and in back-fill, and what happens when it is spent."""

    live: BudgetPeriodsConfig = BudgetPeriodsConfig()
    backfill: BudgetPeriodsConfig = BudgetPeriodsConfig()
    at_limit: Literal["stop", "lower_rate"] = "stop"


class DriftConfig(Section):
    """The drift check: off without ``anchors``, since it asks the judge, which costs money."""

    anchors: str | None = None
    """A file of labeled answers, or ``builtin``."""
    budget: Amounts = ()
    """What all checks of a UTC day may spend, apart from ``budget.live``."""
