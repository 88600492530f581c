"""The collector as a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ragtrace.process import settle_memory
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.operations.reload import Reloads
from ragtrace_collector.operations.signals import Signals
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.service.pipeline import Role
from ragtrace_collector.service.wiring import open_collector

CANCEL_S: Final = 10
"""How long after ``drain_timeout`` the process is killed, if what it cancelled has not ended."""


async def run_collector(
    config: CollectorConfig,
    *,
    role: Role = Role.ALL,
    shares_ports: bool = False,
    reread: Callable[[], CollectorConfig] | None = None,
    on_ready: Callable[[Collector], None] | None = None,
) -> Mapping[str, int]:
    """Serve until SIGINT or SIGTERM, shut down in order, and return what the store counts at the end.

    ``on_ready`` is called once, when the receivers listen; ``reread`` at each SIGHUP, and returns the
    configuration to follow from then on.

    Raises:
        ConfigError: an address, path, judge, metric or endpoint cannot be used.
        KeyboardInterrupt: a second signal came, and it left at once.
    """
    settle_memory()
    signals = Signals(longest_stop_s=config.drain_timeout.total_seconds() + CANCEL_S)
    with signals.handled():
        async with open_collector(config, role=role, shares_ports=shares_ports) as collector:
            reloads = Reloads(asked=signals.reload, read=reread) if reread else None
            await collector.serve(signals.stop, on_ready=on_ready, reloads=reloads)
            return (await collector.pipeline.store.ledger()).by_name()
