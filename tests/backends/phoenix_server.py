"""The real Phoenix as a process, and what a person finds by its REST API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from tests.backends.process import eventually, free_ports, is_ready, running
from tests.patience import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Phoenix:
    """A Phoenix that runs. Its methods block: call them in a thread from async tests."""

    url: str
    """``http://127.0.0.1:port`` of its page, its REST API and OTLP/HTTP."""
    log: Path
    grpc: int
    """The port of OTLP/gRPC."""
    pid: int

    def store(self, spans: Sequence[Span], *, project: str) -> None:
        """Send spans, and wait until all can be read."""
        headers = {"content-type": "application/x-protobuf", "x-project-name": project}
        httpx.post(
            f"{self.url}/v1/traces", content=encode(spans), headers=headers, timeout=PATIENCE_S
        ).raise_for_status()
        eventually(
            lambda: len(self.span_ids(project)) >= len(spans),
            what=f"{len(spans)} spans in Phoenix",
            deadline_s=PATIENCE_S,
        )

    def spans(self, project: str) -> list[dict[str, Any]]:
        """Return a project's spans, as far as they fit into one page."""
        return self._data(f"/v1/projects/{project}/spans", {"limit": 1000})

    def span_ids(self, project: str) -> list[str]:
        return [span["context"]["span_id"] for span in self.spans(project)]

    def annotations(self, project: str) -> list[dict[str, Any]]:
        asked = {"span_ids": self.span_ids(project), "limit": 1000}
        return self._data(f"/v1/projects/{project}/span_annotations", asked)

    def _data(self, path: str, params: dict[str, Any]) -> list[dict[str, Any]]:
        response = httpx.get(f"{self.url}{path}", params=params, timeout=PATIENCE_S)
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        found: list[dict[str, Any]] = response.raise_for_status().json()["data"]
        return found


@contextmanager
def running_phoenix(program: Sequence[str | Path], folder: Path) -> Iterator[Phoenix]:
    """Run a Phoenix with an empty SQLite database in the folder, where its log is kept too."""
    http, grpc = free_ports(2)
    env = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    url, log = f"http://127.0.0.1:{http}", folder / "phoenix.log"
    # it imports half of what there is, and migrates an empty database through all its versions
    with running([*program, "serve"], env=env, ready=lambda: is_ready(f"{url}/healthz"), log=log) as process:
        yield Phoenix(url=url, log=log, grpc=grpc, pid=process.pid)
