"""The container image: what its recipe promises, read from the recipe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "collector" / "Dockerfile"


def instructions() -> Sequence[tuple[str, str]]:
    """Return the instructions and what follows each, on one line."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in joined.splitlines() if line.strip()]


def final_stage() -> Sequence[tuple[str, str]]:
    found = instructions()
    last = max(place for place, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def of(name: str, stage: Sequence[tuple[str, str]]) -> list[str]:
    return [text for each, text in stage if each == name]


def test_it_runs_as_a_user_without_rights_by_number() -> None:
    (user,) = of("USER", final_stage())
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a name could not be checked by runAsNonRoot"


def test_only_what_the_locks_name_is_installed() -> None:
    installed = [
        part for text in of("RUN", instructions()) for part in text.split("&&") if "pip install" in part
    ]
    assert len(installed) == 3
    for part in installed:
        assert "--require-hashes" in part or ("--no-deps" in part and "--no-build-isolation" in part)
