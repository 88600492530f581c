"""How a consumer of topics is, as pages and metrics tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """One moment of a consumer."""

    trouble: str | None = None
    """Why nothing can be read; ``None`` while the topics can be read."""
    is_paused: bool = False
    """Whether it fetches nothing, because the store is full."""
    partitions: int = 0
    """How many partitions its group gave it."""
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How many messages wait, by topic and partition, as far as that is known."""
