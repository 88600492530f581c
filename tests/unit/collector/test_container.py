"""The container image: what its recipe promises, read from the recipe."""

from __future__ import annotations

import re
from pathlib import Path

DOCKERFILE = Path(__file__).parents[3] / "collector" / "Dockerfile"


def instructions(name: str) -> list[str]:
    """Return what follows each instruction of this name, on one line."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()[1:]) for line in joined if line.startswith(f"{name} ")]


def test_it_runs_as_a_user_without_rights_by_number() -> None:
    user = instructions("USER")[-1]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a name could not be checked by runAsNonRoot"


def test_only_what_the_locks_name_is_installed() -> None:
    installed = [part for text in instructions("RUN") for part in text.split("&&") if "pip install" in part]
    assert len(installed) == 3
    for part in installed:
        assert "--require-hashes" in part or ("--no-deps" in part and "--no-build-isolation" in part)
