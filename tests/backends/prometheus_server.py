"""The real Prometheus as a process, and its HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.backends.process import free_ports, is_listening, running
from tests.patience import PATIENCE_S

__all__ = ["Prometheus", "running_prometheus"]

Found = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A Prometheus that runs. Its methods block: call them in a thread from async tests."""

    url: str

    def instant(self, expression: str) -> Found:
        """Return the series of an expression, as they are now."""
        found: Found = self._get("query", {"query": expression})["result"]
        return found

    def over_time(self, expression: str, *, start_s: float, end_s: float, step_s: float) -> Found:
        """Return the series of an expression, with their values at each step."""
        query = {"query": expression, "start": str(start_s), "end": str(end_s), "step": str(step_s)}
        found: Found = self._get("query_range", query)["result"]
        return found

    def exemplars(self, expression: str, *, start_s: float, end_s: float) -> Found:
        """Return the exemplars of the series that the expression reads."""
        found: Found = self._get(
            "query_exemplars", {"query": expression, "start": str(start_s), "end": str(end_s)}
        )
        return found

    def label_values(self, series: str, label: str) -> list[str]:
        """Return the values of a label in some series."""
        found: list[str] = self._get(f"label/{label}/values", {"match[]": series})
        return found

    def _get(self, path: str, query: Mapping[str, str]) -> Any:
        response = httpx.get(f"{self.url}/api/v1/{path}", params=dict(query), timeout=PATIENCE_S)
        assert response.is_success, f"{query}: {response.text}"
        return response.json()["data"]


@contextmanager
def running_prometheus(
    program: str, folder: Path, config: Mapping[str, Any], *, flags: Sequence[str] = ()
) -> Iterator[Prometheus]:
    """Run a Prometheus with an empty store in the folder, where its log is kept too."""
    (port,) = free_ports(1)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(dict(config)))
    command = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    ]
    with running(command, env={}, ready=lambda: is_listening(port), log=folder / "prometheus.log"):
        yield Prometheus(url=f"http://127.0.0.1:{port}")
