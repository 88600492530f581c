"""A floor for each tenant, so that small tenants are judged too."""

from __future__ import annotations

from ragtrace_collector.sampling.windows import Windows

_PERIOD = "tenant_floor"
_HOUR_NS = 3600 * 10**9


class TenantFloor:
    """Raises the rate of tenants with too few sampled answers a window.

    The rate of a window is the one that would have kept ``answers`` in the last window. Of a tenant without
    answers in the last window, the first ``answers`` are always kept.
    """

    def __init__(self, *, answers: int, window_ns: int = _HOUR_NS) -> None:
        self.windows = Windows(_PERIOD, window_ns)
        self._answers = answers

    def rate_of(self, tenant: str) -> float:
        """Return the guaranteed rate of a tenant's next answer."""
        before = self.windows.last.get(tenant)
        if before is not None and before.seen:
            return min(1.0, self._answers / before.seen)
        now = self.windows.current.get(tenant)
        return 1.0 if now is None or now.seen < self._answers else 0.0

    def see(self, tenant: str) -> None:
        """Count an answer."""
        self.windows.of(tenant).seen += 1
