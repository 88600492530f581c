"""A floor for each tenant: a small one beside a loud one is judged too."""

from __future__ import annotations

from ragtrace_collector.sampling.windows import Windows

_PERIOD = "tenant_floor"


class TenantFloor:
    """Raises the rate of tenants of which the rules would keep too few answers a window.

    The rate of a window is what would have kept ``answers`` of those seen in the last one. Of a tenant that
    the last window did not see, the first ``answers`` are kept for certain.
    """

    def __init__(self, *, answers: int, window_ns: int) -> None:
        self.windows = Windows(_PERIOD, window_ns)
        self._answers = answers

    def rate_of(self, tenant: str) -> float:
        """Return the rate that is owed to the next answer of a tenant."""
        before = self.windows.last.get(tenant)
        if before is not None and before.seen:
            return min(1.0, self._answers / before.seen)
        now = self.windows.current.get(tenant)
        return 1.0 if now is None or now.seen < self._answers else 0.0

    def see(self, tenant: str) -> None:
        """Count an answer."""
        self.windows.of(tenant).seen += 1
