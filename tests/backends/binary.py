"""Find the real back ends, which `make backends` builds or downloads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

BACKENDS = Path(__file__).parent


def required_binary(name: str) -> Path:
    """Return the back end's file, or skip the test; fail it where RAGTRACE_REQUIRE_BACKENDS is set."""
    where = subprocess.run(
        [BACKENDS / "build.sh", "--where", name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    reason = f"the real {name} is not there: run `make backends` (needs Go and a network, ten minutes, once)"
    return required(Path(where.stdout.strip()), reason=reason)


def required(file: Path, *, reason: str) -> Path:
    """Return the file, or skip the test; fail it where RAGTRACE_REQUIRE_BACKENDS is set."""
    if file.exists():
        return file
    if os.environ.get("RAGTRACE_REQUIRE_BACKENDS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
