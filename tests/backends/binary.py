"""Find the real back ends, which `make backends` builds or downloads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

__all__ = ["BACKENDS", "required_binary"]

BACKENDS = Path(__file__).parent


def required_binary(name: str) -> Path:
    """Return the back end's file, or skip the test; fail it where RAGTRACE_REQUIRE_BACKENDS is set."""
    where = subprocess.run(
        [BACKENDS / "build.sh", "--where", name], stdout=subprocess.PIPE, text=True, check=True, timeout=30
    )
    binary = Path(where.stdout.strip())
    if binary.exists():
        return binary
    reason = f"the real {name} is not there: run `make backends` (needs Go and a network, ten minutes, once)"
    if os.environ.get("RAGTRACE_REQUIRE_BACKENDS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
