"""Amounts: what was spent, and the limits of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_NANO: Final = 1_000_000_000


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

    @property
    def usd(self) -> float:
        """US dollars."""
        return self.usd_nano / _NANO


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limits of a budget; ``None`` is unlimited."""

    calls: int | None = None
    tokens: int | None = None
    usd_nano: int | None = None

    def exceeded_by(self, spend: Spend, *, share: float = 1.0) -> str | None:
        """Return the limit that an amount exceeds (``calls``, ``tokens`` or ``usd``), if any."""
        for name, most, amount in self.pairs(spend):
            if amount > most * share:
                return name
        return None

    def used(self, spend: Spend) -> float:
        """Return the largest share of a limit that an amount uses, 0 without limits."""
        shares = (amount / most if most else 1.0 for _, most, amount in self.pairs(spend))
        return max(shares, default=0.0)

    def pairs(self, spend: Spend) -> list[tuple[str, int, int]]:
        """Return the set limits: name, limit, and the amount's part that counts."""
        every = (
            ("calls", self.calls, spend.calls),
            ("tokens", self.tokens, spend.tokens),
            ("usd", self.usd_nano, spend.usd_nano),
        )
        return [(name, most, amount) for name, most, amount in every if most is not None]
