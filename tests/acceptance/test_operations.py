"""The collector under a service manager and with its default store: what it says, follows and keeps."""

from __future__ import annotations

import json
import signal
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.process import eventually
from tests.integration.cli.program import json_lines, run
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow


def config_of(folder: Path, **changes: Any) -> dict[str, Any]:
    return settings_of(folder, judge={"use": "lexical"}, log_format="json", **changes)


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


def default_config(folder: Path) -> Mapping[str, Any]:
    return {
        "receive": {"grpc": None, "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "100ms"},
        "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}],
        "telemetry": {"listen": None},
    }


def judged(*options: str) -> int:
    """Count by the command what was judged."""
    result = run("ledger", "--json", *options)
    rows: dict[str, int] = json.loads(result.stdout)["rows"] if result.exit_code == 0 else {}
    return rows.get("judged", 0)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state-of-its-own"
    monkeypatch.setenv("RAGTRACE_STATE_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_without_a_path_the_store_is_in_the_state_folder_and_commands_find_it(
    tmp_path: Path, state: Path
) -> None:
    with collector_process(tmp_path, default_config(tmp_path)) as collector:
        assert collector.send(*rag_trace(0)).status_code == 200
        eventually(lambda: judged() == 1, what="a judged answer")
        assert not (tmp_path / "ragtrace.db").exists()
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert stat.S_IMODE((state / "ragtrace.db").stat().st_mode) == 0o600
        trace = trace_id_of(0)
        assert "judged" in run("why", trace).stdout
        assert "judged" in run("why", trace, "--config", str(tmp_path / "collector.yaml")).stdout
        explained = json_lines(run("explain", trace, "--from", "store", "--json").stdout)
        assert explained[0]["records"][0]["question"] == "How long do refunds take?"
        ledger = run("ledger", "--config", str(tmp_path / "collector.yaml"))
        assert ledger.exit_code == 0, ledger.output
        doctor = run("doctor", "--config", str(tmp_path / "collector.yaml"), "--json")
        [store] = [line for line in json_lines(doctor.stdout) if line["name"].startswith("store ")]
        assert store["name"] == f"store {state / 'ragtrace.db'}"
        assert store["found"] == "can be read"
