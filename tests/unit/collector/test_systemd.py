"""What systemd is told: sd_notify's own protocol, on a socket as systemd opens it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragtrace_collector.operations.signals import (
    notify_ready,
    notify_reloading,
    notify_stopping,
    notify_watchdog,
    watchdog_pause_s,
)
from tests.patience import PATIENCE_S


@pytest.fixture(params=["path", "abstract"])
def service_manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """Listen where systemd would."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@ragtrace-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1))
        listening.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


def test_the_service_manager_hears_of_each_state(service_manager: socket.socket) -> None:
    for say in (notify_reloading, notify_watchdog, notify_stopping):
        say()
    notify_ready("judging with lexical")
    reloading, watchdog, stopping, ready = (service_manager.recv(1000).decode() for _ in range(4))
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert (watchdog, stopping) == ("WATCHDOG=1", "STOPPING=1\nSTATUS=draining")
    assert ready == "READY=1\nSTATUS=judging with lexical"


def test_a_service_manager_that_went_away_does_not_end_the_collector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify_stopping()
    assert "systemd was not notified of STOPPING=1" in caplog.text


@pytest.mark.parametrize(
    ("environ", "pause_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_answered_twice_in_its_time(environ: dict[str, str], pause_s: float | None) -> None:
    assert watchdog_pause_s(environ) == pause_s
