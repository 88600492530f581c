"""A real OpenTelemetry Collector: the Jaeger binary is a distribution of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.backends.process import is_listening, running
from tests.patience import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelCol:
    """The collector's binary, with a folder for its logs."""

    binary: Path
    folder: Path

    def validate(
        self, config: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``validate`` on a configuration; its complaints are in ``stderr``."""
        return subprocess.run(
            [self.binary, "validate", "--config", config],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    @contextmanager
    def run(self, config: Path, *, env: Mapping[str, str], listens_on: Sequence[int]) -> Iterator[Path]:
        """Run the collector until the block ends; yield its log once it listens on all the ports."""
        log = self.folder / f"{config.stem}.log"
        command: list[str | Path] = [self.binary, "--config", config]
        with running(command, env=env, ready=lambda: all(map(is_listening, listens_on)), log=log):
            yield log
