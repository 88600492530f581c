"""The collector as users run it: a process of its own, which a test may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from tests.patience import PATIENCE_S

__all__ = ["CollectorProcess", "collector_process", "settings_of"]

RAGTRACE = (sys.executable, "-m", "ragtrace.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorProcess:
    """A collector that runs. Its methods block."""

    process: subprocess.Popen[str]
    grpc_port: int
    http_port: int
    pages_port: int | None
    ui_port: int | None
    log: Path

    def send(self, *spans: Span) -> httpx.Response:
        """POST one request to the OTLP/HTTP receiver."""
        headers = {"content-type": "application/x-protobuf"}
        url = f"http://127.0.0.1:{self.http_port}/v1/traces"
        return httpx.post(url, content=encode(spans), headers=headers, timeout=PATIENCE_S)

    def page(self, path: str) -> httpx.Response:
        """GET one of the pages for operators."""
        return httpx.get(f"http://127.0.0.1:{self.pages_port}{path}", timeout=PATIENCE_S)

    def kill(self) -> None:
        """Send SIGKILL: nothing of its own can run any more."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


def settings_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a configuration that is quick, listens on free ports and writes carriers to ``out.jsonl``."""
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "100ms", "deadline": "5s"},
        "export": [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}],
        "store": {"path": str(folder / "store.db")},
        "telemetry": {"listen": "127.0.0.1:0"},
        **changes,
    }


@contextmanager
def collector_process(
    folder: Path,
    config: Mapping[str, Any],
    *,
    program: Sequence[str | Path] = RAGTRACE,
    options: Sequence[str] = (),
) -> Iterator[CollectorProcess]:
    """Run ``ragtrace collector`` in a folder until the block ends, unless the block ended it before."""
    file, log = folder / "collector.yaml", folder / "collector.log"
    file.write_text(json.dumps(config))
    command = [*program, "collector", "--config", str(file), "--json", *options]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            # its own, whatever the test's: two collectors of a session have one default store otherwise
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready, f"the collector did not start:\n{log.read_text()}"
        ports = json.loads(ready)
        yield CollectorProcess(
            process=process,
            grpc_port=ports["grpc_port"],
            http_port=ports["http_port"],
            pages_port=ports["pages_port"],
            ui_port=ports["ui_port"],
            log=log,
        )
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert process.stdout is not None
        process.stdout.close()
