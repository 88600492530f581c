"""Notify systemd, if it started the service: sd_notify(3), one datagram a message."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


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
