"""Run a mutant's test on a copy of the checkout: with the mutant in it, and without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.mutants.catalogue import DoesNotApply, Mutant
from tests.sharing import ROOT

_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "*.db*", "dist", "build"
)
_RUN_S: Final = 600.0


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    UNTESTED = "no test ran"
    """It could not be collected or set up."""
    NOT_SHOWN = "fails without it, too"
    DOES_NOT_APPLY = "does not apply"


def fate_of(mutant: Mutant, folder: Path, *, root: Path = ROOT) -> tuple[Fate, str]:
    """Return what became of a mutant, and why; the folder is not there yet."""
    shutil.copytree(root, folder, symlinks=True, ignore=_LEFT_OUT)
    changed = folder / mutant.file
    try:
        mutated = mutant.applied_to(folder)
    except DoesNotApply as exc:
        return Fate.DOES_NOT_APPLY, str(exc)
    unharmed = changed.read_text("utf-8")
    changed.write_text(mutated, "utf-8")
    fate, said = _run(folder, mutant.test)
    if fate is Fate.KILLED:
        changed.write_text(unharmed, "utf-8")
        without, said_without = _run(folder, mutant.test)
        if without is not Fate.SURVIVED:
            return Fate.NOT_SHOWN, said_without
    return fate, said


def _run(root: Path, test: str) -> tuple[Fate, str]:
    report = root.with_suffix(".xml")
    report.unlink(missing_ok=True)
    said = _said_by(
        [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            test,
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ],
        root,
    )
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    if suite is None or suite.get("tests") == "0" or suite.get("errors") != "0":
        return Fate.UNTESTED, said
    return (Fate.KILLED if suite.get("failures") != "0" else Fate.SURVIVED), said


def _said_by(command: Sequence[str], root: Path) -> str:
    # What comes first on the path of a test, and of every process that it starts, is this copy.
    # As in CI, laws draw the same examples each time: who kills a mutant is no matter of luck.
    first = os.pathsep.join(map(str, (root, root / "collector")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        command,
        cwd=root,
        env={**kept, "PYTHONPATH": first, "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # what its tests started ends with it
    )
    try:
        said, _ = process.communicate(timeout=_RUN_S)
    except subprocess.TimeoutExpired:
        said = f"it took more than {_RUN_S:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return said[-2_000:]
