"""The collector as a process: run it, or check what it is told."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from typing import Final

from ragtrace.clock import SystemClock
from ragtrace_collector.collector import Collector
from ragtrace_collector.config import (
    CollectorConfig,
)
from ragtrace_collector.gate import open_gate
from ragtrace_collector.judging import open_judging
from ragtrace_collector.operations.reloading import Reloads
from ragtrace_collector.operations.signals import Signals
from ragtrace_collector.policies import (
    open_export,
)
from ragtrace_collector.store.sealing import open_sealing
from ragtrace_collector.wiring import open_collector

__all__ = ["check_config", "run_collector"]


async def run_collector(
    config: CollectorConfig,
    *,
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
    _look_for_cycles_seldom()
    signals = Signals(longest_stop_s=(config.drain_timeout + config.cancel_timeout).total_seconds())
    with signals.handled():
        async with open_collector(config) as collector:
            reloads = Reloads(asked=signals.reload, read=reread) if reread else None
            await collector.serve(signals.stop, on_ready=on_ready, reloads=reloads)
            return (await collector.store.ledger()).by_name()


def _look_for_cycles_seldom() -> None:
    """Let the collector of cycles seldom run: what a request is made of dies at once, and without it."""
    gc.freeze()
    gc.set_threshold(*_OBJECTS_A_ROUND)


_OBJECTS_A_ROUND: Final = (50_000, 20, 20)
"""Measured: with Python's own 700, a twentieth of what it costs to keep a span."""


def check_config(config: CollectorConfig) -> None:
    """Open what a configuration names, as far as that touches neither network nor disk.

    Raises:
        ConfigError: a metric, judge, key or endpoint cannot be used.
    """
    open_gate(config, SystemClock())
    asyncio.run(_open_and_close(config))
    open_sealing([key.get_secret_value() for key in config.store.encryption_keys])
    for export in config.export:
        open_export(export)


async def _open_and_close(config: CollectorConfig) -> None:
    async with open_judging(config):
        pass
