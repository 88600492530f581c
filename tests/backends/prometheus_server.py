"""The real Prometheus as a process, and what it answers."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.backends.process import free_ports, is_listening, running
from tests.patience import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A Prometheus that runs. Its methods block."""

    url: str

    def series(self, expression: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Return the series of an instant query, with their labels."""
        found = self._ask("query", {"query": expression})["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def value(self, expression: str) -> float | None:
        """Return the value of a query with one series; ``None`` without any."""
        found = [number for _, number in self.series(expression) if not math.isnan(number)]
        assert len(found) <= 1, f"{len(found)} series for {expression}"
        return found[0] if found else None

    def over_time(
        self, expression: str, *, start_s: float, end_s: float, step_s: float
    ) -> Sequence[Sequence[float]]:
        query = {"query": expression, "start": start_s, "end": end_s, "step": step_s}
        found = self._ask("query_range", query)["result"]
        return [[float(value) for _, value in series["values"]] for series in found]

    def label_values(self, series: str, label: str) -> Sequence[str]:
        found: Sequence[str] = self._ask(f"label/{label}/values", {"match[]": series})
        return found

    def exemplars(self, expression: str) -> Sequence[Mapping[str, Any]]:
        """Return the exemplars of a query's series, of all times."""
        found = self._ask("query_exemplars", {"query": expression, "start": 0, "end": 4_000_000_000})
        return [exemplar for series in found for exemplar in series["exemplars"]]

    def _ask(self, what: str, parameters: Mapping[str, str | float]) -> Any:
        response = httpx.get(f"{self.url}/api/v1/{what}", params=dict(parameters), timeout=PATIENCE_S)
        assert response.status_code == httpx.codes.OK, response.text
        return response.json()["data"]


@contextmanager
def running_prometheus(
    folder: Path, *, scrapes: Mapping[str, int], rule_files: Sequence[Path] = (), every: str = "200ms"
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a port by job; skip the test without the program."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(file) for file in rule_files],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{of}"]}]}
            for job, of in scrapes.items()
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    command = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    with running(command, env={}, ready=lambda: is_listening(port), log=folder / "prometheus.log"):
        yield Prometheus(url=f"http://127.0.0.1:{port}")
