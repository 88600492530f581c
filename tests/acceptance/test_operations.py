"""The collector under a service manager: it says how it is, and follows SIGHUP."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.process import eventually
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    return settings_of(folder, judge={"use": "lexical"}, log_format="json", **changes)


def status(collector: CollectorProcess) -> dict[str, Any]:
    page = httpx.get(f"http://127.0.0.1:{collector.pages_port}/status", timeout=PATIENCE_S).raise_for_status()
    found: dict[str, Any] = page.json()["collector"]
    return found


def events(collector: CollectorProcess) -> list[str]:
    lines = map(json.loads, collector.log.read_text().splitlines())
    return [line["event_name"] for line in lines if "event_name" in line]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listen where systemd would, with a watchdog of one second."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        yield listening


def heard(manager: socket.socket, word: str) -> str:
    while not (said := manager.recv(1000).decode()).startswith(word):
        pass
    return said


def test_the_service_manager_hears_when_it_serves_lives_reloads_and_stops(
    tmp_path: Path, manager: socket.socket
) -> None:
    with collector_process(tmp_path, config_of(tmp_path)) as collector:
        assert heard(manager, "READY=1") == "READY=1\nSTATUS=judging with lexical"
        heard(manager, "WATCHDOG=1")
        collector.process.send_signal(signal.SIGHUP)
        heard(manager, "RELOADING=1\nMONOTONIC_USEC=")
        heard(manager, "READY=1")
        assert collector.stop() == 0
        heard(manager, "STOPPING=1")


def test_sighup_follows_the_file_and_goes_on_where_it_cannot(tmp_path: Path) -> None:
    with collector_process(tmp_path, config_of(tmp_path)) as collector:
        before, file = status(collector), tmp_path / "collector.yaml"
        file.write_text(json.dumps(config_of(tmp_path, sample={"ratio": 0.5})))
        collector.process.send_signal(signal.SIGHUP)
        after = eventually(lambda: changed(collector, applied=1), what="the reload")
        file.write_text("sample: {ration: 1}")
        collector.process.send_signal(signal.SIGHUP)
        last = eventually(lambda: changed(collector, refused=1), what="the refusal")
        assert collector.stop() == 0
    assert before["config"] != after["config"] == last["config"]
    assert "did you mean `ratio`?" in collector.log.read_text()
    assert events(collector) == ["listening", "judging", "reloaded", "reload_refused", "stopping", "stopped"]


def changed(collector: CollectorProcess, **reloads: int) -> dict[str, Any] | None:
    found = status(collector)
    return found if reloads.items() <= found["reloads"].items() else None
