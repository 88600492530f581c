"""Amounts: what was spent, and the limits of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NANO: Final = 1_000_000_000
"""Amounts of money are in billionths of a US dollar."""
_UNITS: Final = {"calls": "calls", "tokens": "tokens", "usd": "usd_nano"}
"""The units, by the words that messages, metrics and the configuration have for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount in integers, so that sums are exact."""

    calls: int = 0
    tokens: int = 0
    """Tokens of prompts and replies."""
    usd_nano: int = 0
    """Billionths of a US dollar, less than the price of the cheapest token."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            usd_nano=self.usd_nano + other.usd_nano,
        )

    def __sub__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls - other.calls,
            tokens=self.tokens - other.tokens,
            usd_nano=self.usd_nano - other.usd_nano,
        )

    def part(self, unit: str) -> int:
        """Return the amount in one unit: ``calls``, ``tokens`` or ``usd``."""
        part: int = getattr(self, _UNITS[unit])
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limits of a budget in one window; ``None`` is unlimited."""

    calls: int | None = None
    tokens: int | None = None
    usd_nano: int | None = None

    @classmethod
    def of(cls, *, calls: int | None, tokens: int | None, usd: float | None) -> Limit:
        """Make limits, of which money is in US dollars."""
        return cls(calls=calls, tokens=tokens, usd_nano=None if usd is None else round(usd * NANO))

    def part(self, unit: str) -> int | None:
        """Return the limit in one unit: ``calls``, ``tokens`` or ``usd``."""
        part: int | None = getattr(self, _UNITS[unit])
        return part

    def parts(self) -> list[tuple[str, int]]:
        """Return the units that are limited, with their limits."""
        return [(unit, most) for unit in _UNITS if (most := self.part(unit)) is not None]

    def exceeded_by(self, spend: Spend, *, share: float = 1.0) -> str | None:
        """Return the unit of which an amount exceeds the limit, if any."""
        return next((unit for unit, most in self.parts() if spend.part(unit) > most * share), None)

    def used(self, spend: Spend) -> float:
        """Return the largest share of a limit that an amount uses, 0 without limits."""
        shares = (spend.part(unit) / most if most else 1.0 for unit, most in self.parts())
        return max(shares, default=0.0)
