"""Signals: SIGTERM and SIGINT stop the process (a second one at once), SIGHUP reloads; systemd is told."""

from __future__ import annotations

import asyncio
import faulthandler
import hashlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


_STDERR: Final = 2
"""The number of the file, which may be closed."""


@dataclass(slots=True, kw_only=True)
class Signals:
    """The signals that came."""

    longest_stop_s: float
    """How long a stop may take before the process is killed."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    reload: asyncio.Event = field(default_factory=asyncio.Event)
    _leaves: bool = False
    _is_armed: bool = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals until the block ends.

        Raises:
            KeyboardInterrupt: a second signal came, and the block was cancelled.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop, task)
            self._arm_at(number)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        try:
            yield
        except asyncio.CancelledError:
            if self._leaves:
                raise KeyboardInterrupt from None
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _arm_at(self, number: signal.Signals) -> None:
        """Have a process that hangs end after the longest stop, with 1, and say where it hangs.

        This is done in the signal handler, since a hung event loop never runs its own, and by a timer that
        needs no interpreter. It loses no more than a SIGKILL does: acknowledged spans are committed.
        """
        of_the_loop = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None) -> None:
            if not self._is_armed:
                self._is_armed = True
                faulthandler.dump_traceback_later(self.longest_stop_s, exit=True, file=_STDERR)
            if callable(of_the_loop):
                of_the_loop(number, frame)

        signal.signal(number, handle)
        signal.siginterrupt(number, False)

    def _on_stop(self, task: asyncio.Task[object] | None) -> None:
        if self.stop.is_set() and task is not None and not self._leaves:
            log.warning("second signal: stopping at once; unfinished work is on disk", extra=event("left"))
            self._leaves = True
            task.cancel()
        self.stop.set()


def notify_ready(status: str) -> None:
    """Report ready, after a start or a reload; ``systemctl status`` shows ``status``."""
    _notify("READY=1", f"STATUS={status}")


def notify_reloading() -> None:
    """Report that a reload began; ``notify_ready`` reports its end (``Type=notify-reload``)."""
    _notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """Report that the service stops and drains."""
    _notify("STOPPING=1", "STATUS=draining")


def notify_watchdog() -> None:
    """Report that the event loop runs."""
    _notify("WATCHDOG=1")


def watchdog_pause_s(environ: Mapping[str, str] | None = None) -> float | None:
    """Return how often to notify the watchdog: half of ``WatchdogSec``, as sd_watchdog(3)
    recommends. ``None``: there is no watchdog."""
    values = os.environ if environ is None else environ
    wanted, process = values.get("WATCHDOG_USEC", ""), values.get("WATCHDOG_PID", "")
    if not wanted.isdigit() or (process and process != str(os.getpid())):
        return None
    return int(wanted) / 2e6


def _notify(*lines: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # in the abstract namespace
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagram:
            datagram.connect(address)
            datagram.sendall("\n".join(lines).encode())
    except OSError as exc:
        log.warning("systemd was not notified of %s: %s", lines[0], exc, extra=event("systemd_away"))


_NEEDS_A_RESTART: Final = (
    "receive.grpc",
    "receive.http",
    "receive.max_message_bytes",
    "receive.tls",
    "receive.insecure",
    "receive.kafka",
    "attach.mode",
    "attach.hold_timeout",
    "export",
    "store",
    "telemetry",
    "ui",
    "drain_timeout",
    "log_format",
)
"""Settings that are used once, at the start."""
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloads:
    """The request to reload, and how to reload."""

    asked: asyncio.Event
    read: Callable[[], CollectorConfig]
    """Raises ConfigError."""


def changed_keys(before: CollectorConfig, after: CollectorConfig) -> tuple[str, ...]:
    """Return the keys whose values differ, written as in the file: ``sample.ratio``."""
    old, new = dict(_flat(before.model_dump())), dict(_flat(after.model_dump()))
    return tuple(sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)))


def refuse_what_needs_a_restart(before: CollectorConfig, after: CollectorConfig) -> None:
    """Check that a running collector can apply the change.

    Raises:
        ConfigError: a key changed that needs a restart; the message names it.
    """
    changed = changed_keys(before, after)
    fixed = [key for key in changed if any(_is_within(key, each) for each in _NEEDS_A_RESTART)]
    if fixed:
        raise ConfigError(f"{', '.join(f'`{key}`' for key in fixed)} changed, which needs a restart")


def digest_of(config: CollectorConfig) -> str:
    """Return a digest of a configuration with its secrets masked: equal configurations have equal digests."""
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:_DIGITS]


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_within(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")
