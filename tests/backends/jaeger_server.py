"""The real Jaeger as a process, and its HTTP API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.backends.binary import BACKENDS
from tests.backends.process import eventually, free_ports, is_listening, running
from tests.patience import PATIENCE_S

JsonTrace = dict[str, Any]
"""A trace as Jaeger's v2 API gives it: ``traceID``, ``spans``, ``processes``, ``warnings``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jaeger:
    """A Jaeger that runs. Its methods block: call them in a thread from async tests."""

    otlp_grpc: str
    """``127.0.0.1:port``; with ``http://`` before it, it is an OTEL_EXPORTER_OTLP_ENDPOINT."""
    otlp_http: str
    """``http://127.0.0.1:port``, without ``/v1/traces``."""
    query_url: str
    """``http://127.0.0.1:port`` of the page and the API."""
    log: Path
    pid: int

    def trace(self, trace_id: str) -> JsonTrace | None:
        """Return the trace as it is stored now, or ``None``."""
        response = httpx.get(f"{self.query_url}/api/traces/{trace_id}", timeout=PATIENCE_S)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        found: list[JsonTrace] = response.raise_for_status().json()["data"]
        return found[0]

    def wait_for_trace(self, trace_id: str, *, spans: int = 1, deadline_s: float = PATIENCE_S) -> JsonTrace:
        """Return the trace once it has at least so many spans."""

        def complete() -> JsonTrace | None:
            trace = self.trace(trace_id)
            return trace if trace and len(trace["spans"]) >= spans else None

        return eventually(
            complete, what=f"{spans} spans of trace {trace_id} in Jaeger", deadline_s=deadline_s
        )

    def search(
        self,
        service: str,
        tags: Mapping[str, str] | None = None,
        *,
        operation: str | None = None,
        limit: int = 500,
    ) -> list[JsonTrace]:
        """Return the traces that a person finds by service, tags and operation, whenever they happened."""
        query = {"service": service, "limit": str(limit), "start": "0", "end": str(2**62 // 1000)}
        if tags:
            query["tags"] = json.dumps(dict(tags))
        if operation:
            query["operation"] = operation
        response = httpx.get(f"{self.query_url}/api/traces", params=query, timeout=PATIENCE_S)
        found: list[JsonTrace] = response.raise_for_status().json()["data"]
        return found


@contextmanager
def running_jaeger(binary: Path, folder: Path) -> Iterator[Jaeger]:
    """Run a Jaeger with an empty memory store; its log is kept in the folder."""
    grpc, http, query, query_grpc = free_ports(4)
    env = {
        "JAEGER_OTLP_GRPC": f"127.0.0.1:{grpc}",
        "JAEGER_OTLP_HTTP": f"127.0.0.1:{http}",
        "JAEGER_QUERY_HTTP": f"127.0.0.1:{query}",
        "JAEGER_QUERY_GRPC": f"127.0.0.1:{query_grpc}",
    }
    log = folder / "jaeger.log"
    command: list[str | Path] = [binary, "--config", BACKENDS / "jaeger" / "jaeger.yaml"]
    with running(
        command, env=env, ready=lambda: all(map(is_listening, (grpc, http, query, query_grpc))), log=log
    ) as process:
        yield Jaeger(
            otlp_grpc=f"127.0.0.1:{grpc}",
            otlp_http=f"http://127.0.0.1:{http}",
            query_url=f"http://127.0.0.1:{query}",
            log=log,
            pid=process.pid,
        )
