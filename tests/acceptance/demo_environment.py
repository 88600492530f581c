"""The environment that `make demo` makes, of what is installed here: the packages of its lock alone."""

from __future__ import annotations

import re
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tests.wheel import link

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "locks/demo.txt"


def locked(lock: Path = LOCK) -> dict[str, str]:
    """Return the versions in a lock by package, with those for other platforms."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text("utf-8"), re.MULTILINE))


def make_demo_environment(folder: Path) -> Path:
    """Link the locked packages and the project into an environment, and return its Python."""
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for package in ["ragtrace-otel", *locked()]:
        try:
            link(distribution(package), site)
        except PackageNotFoundError:
            continue  # for another platform: what the demo lacks, it says itself
    return folder / "bin" / "python"
