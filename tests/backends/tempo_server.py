"""The real Grafana Tempo as a process, and its HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.backends.binary import BACKENDS
from tests.backends.process import eventually, free_ports, is_ready, running
from tests.patience import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempo:
    """A Tempo that runs. Its methods block: call them in a thread from async tests."""

    otlp_grpc: str
    """``127.0.0.1:port``; with ``http://`` before it, it is an OTEL_EXPORTER_OTLP_ENDPOINT."""
    otlp_http: str
    """``http://127.0.0.1:port``, without ``/v1/traces``."""
    url: str
    """``http://127.0.0.1:port`` of the API."""
    log: Path

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """Return the trace as OTLP JSON, as it is stored now, or ``None``."""
        response = httpx.get(
            f"{self.url}/api/v2/traces/{trace_id}", headers={"accept": "application/json"}, timeout=PATIENCE_S
        )
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        found: dict[str, Any] = response.raise_for_status().json().get("trace") or {}
        return found or None

    def wait_for_trace(
        self, trace_id: str, *, spans: int = 1, deadline_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Return the trace once it has at least so many spans."""

        def complete() -> dict[str, Any] | None:
            trace = self.trace(trace_id)
            return trace if trace and _number_of_spans(trace) >= spans else None

        return eventually(complete, what=f"{spans} spans of trace {trace_id} in Tempo", deadline_s=deadline_s)

    def search(self, traceql: str, *, start_s: int, end_s: int, limit: int = 20) -> list[dict[str, Any]]:
        """Return what a person finds by TraceQL between two times, in seconds since 1970."""
        query = {"q": traceql, "start": start_s, "end": end_s, "limit": limit}
        response = httpx.get(f"{self.url}/api/search", params=query, timeout=PATIENCE_S)
        found: list[dict[str, Any]] = response.raise_for_status().json().get("traces") or []
        return found


@contextmanager
def running_tempo(
    binary: Path,
    folder: Path,
    *,
    slack: str = "2m",
    block: str = "5m",
    config: Path = BACKENDS / "tempo" / "tempo.yaml",
) -> Iterator[Tempo]:
    """Run a Tempo with an empty store in the folder, where its log is kept too.

    ``slack`` is its ``ingestion_time_range_slack``: how far from now spans count for the time of a block;
    ``block`` is how long one is written to.
    """
    http, grpc, otlp_grpc, otlp_http, members = free_ports(5)
    env = {
        "TEMPO_FOLDER": str(folder),
        "TEMPO_SLACK": slack,
        "TEMPO_BLOCK": block,
        "TEMPO_HTTP_PORT": str(http),
        "TEMPO_GRPC_PORT": str(grpc),
        "TEMPO_OTLP_GRPC_PORT": str(otlp_grpc),
        "TEMPO_OTLP_HTTP_PORT": str(otlp_http),
        "TEMPO_MEMBERLIST_PORT": str(members),
    }
    url, log = f"http://127.0.0.1:{http}", folder / "tempo.log"
    command = [binary, f"-config.file={config}", "-config.expand-env=true"]
    with running(command, env=env, ready=lambda: is_ready(f"{url}/ready"), log=log):
        yield Tempo(
            otlp_grpc=f"127.0.0.1:{otlp_grpc}", otlp_http=f"http://127.0.0.1:{otlp_http}", url=url, log=log
        )


def _number_of_spans(trace: dict[str, Any]) -> int:
    groups = trace.get("resourceSpans") or []
    return sum(len(scope["spans"]) for group in groups for scope in group["scopeSpans"])
