"""The demo's collector: a process of its own, configured as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ragtrace.errors import RagtraceError

_STOP_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A trace back end that gets the traffic and the verdicts."""

    endpoint: str
    ui: str | None
    """Where Jaeger's page is, if it is Jaeger."""


@contextmanager
def running_collector(folder: Path, *, judge: str, verdicts: Path, backend: Backend | None) -> Iterator[str]:
    """Run ``ragtrace collector`` and yield the address of its OTLP/gRPC receiver.

    Raises:
        RagtraceError: it did not start; its own message says why.
    """
    config = folder / "collector.yaml"
    # JSON is YAML: no library is needed to write it.
    config.write_text(json.dumps(_config(folder, judge, verdicts, backend), indent=2), "utf-8")
    command = [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(config), "--json"]
    with (
        (folder / "collector.log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                process.wait()
                raise RagtraceError(f"the collector did not start:\n{_tail(folder / 'collector.log')}")
            yield f"http://127.0.0.1:{json.loads(ready)['grpc_port']}"
        finally:
            _stop(process)


def _config(folder: Path, judge: str, verdicts: Path, backend: Backend | None) -> Mapping[str, object]:
    export: list[Mapping[str, object]] = [{"endpoint": f"otlp-file:{verdicts}"}]
    if backend is not None:
        export.append({"endpoint": backend.endpoint, "forward": True})
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "telemetry": {"listen": None},
        # The demo's application sends its spans at once: no need to wait as long as for a real one.
        "assemble": {"quiet_period": "300ms", "deadline": "10s"},
        "judge": {"use": judge},
        "evaluate": {"retry_delays": ["1s"]},
        "export": export,
        "store": {"path": str(folder / "ragtrace.db")},
        "drain_timeout": "5s",
    }


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _tail(log: Path) -> str:
    return os.linesep.join(log.read_text("utf-8", "replace").splitlines()[-5:])
