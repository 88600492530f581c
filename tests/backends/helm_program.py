"""A real Helm: it renders charts, and needs no cluster for that."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.patience import PATIENCE_S

_KUBERNETES: Final = "1.32.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """Helm's binary."""

    binary: Path

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run it; what it complains about is in ``stderr``."""
        return subprocess.run(
            [self.binary, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def template(self, chart: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Render a chart as the release ``ragtrace``."""
        return self.run("template", "ragtrace", chart, "--kube-version", _KUBERNETES, *arguments)

    def manifests(self, chart: Path, *arguments: str) -> list[dict[str, Any]]:
        done = self.template(chart, *arguments)
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.safe_load_all(done.stdout) if each]
