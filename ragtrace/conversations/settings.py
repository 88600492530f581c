"""How sessions are judged, live and in back-fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ragtrace import semconv

_MINUTE_NS: Final = 60 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How sessions are judged."""

    idle_ns: int = 30 * _MINUTE_NS
    """A session is over when it has had no turn for so long."""
    keep_ns: int = 24 * 60 * _MINUTE_NS
    """A turn that comes so long after the last one begins another session under the same id."""
    max_turns: int = 1_000
    """Beyond them the oldest go."""
    earlier_turns: int = 20
    """Each turn is checked against so many before it."""
    context_turns: int = 0
    """So many turns of other traces are shown to the judge when it words an answer's claims."""
    tenant: str = semconv.TENANT
    """The attribute that names the tenant."""
