"""Run tests against copies of the checkout, each with one mutant in it."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutants.mutant import DoesNotApply, Mutant
from tests.sharing import ROOT

__all__ = ["Fate", "Row", "Yard"]

_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "*.db*", "dist", "build"
)
_PATIENCE: Final = Mutant(
    promise="",
    breaks="patience: what never comes is not waited for as long as in the suite",
    file="tests/patience.py",
    old="PATIENCE_S: Final = 300",
    new="PATIENCE_S: Final = 60",
    tests=(),
)
_RUN_S: Final = 600.0
_RAN_OUT: Final = re.compile(r"(\w+\.)*(TimeoutError|TimeoutExpired|ReadTimeout)\b|Failed: Timeout ")
"""What a failure begins with that only says that something did not come."""


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    HUNG = "only hung"
    """No test failed but by its patience, which a busy machine also brings about."""
    UNTESTED = "no test ran"
    """The tests could not be collected or set up, or the mutant was not what they imported."""
    NOT_SHOWN = "fails without it, too"
    DOES_NOT_APPLY = "does not apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mutant, and what became of it."""

    mutant: Mutant
    fate: Fate
    killed_by: str = ""
    """The first test that failed."""
    took_s: float = 0.0
    told: str = ""
    """Why, where it was not killed; else what the test said."""


class Yard:
    """Copies of a checkout, in one folder, as many as mutants are run at once."""

    def __init__(self, folder: Path, *, root: Path = ROOT, at_once: int) -> None:
        self._at_once = at_once
        self._copies: queue.SimpleQueue[_Copy] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[str]] = set()
        for number in range(at_once):
            self._copies.put(_Copy.of(root, folder / str(number)))

    def rows(self, mutants: Sequence[Mutant]) -> Iterator[Row]:
        """Run each mutant's tests; yield what became of it, in order.

        What killed one must pass without it: that is tried in the end, and the rows that fail it come again.
        """
        killed: list[Row] = []
        with ThreadPoolExecutor(self._at_once) as pool:
            try:
                for row in pool.map(self._one, mutants):
                    killed += [row] * (row.fate is Fate.KILLED)
                    yield row
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()
        yield from self._not_shown(killed)

    def _one(self, mutant: Mutant) -> Row:
        began_s = time.monotonic()
        with self._a_copy() as copy:
            try:
                with copy.changed(mutant):
                    row = _row(mutant, copy, self._run(copy, mutant.tests))
            except DoesNotApply as exc:
                row = Row(mutant=mutant, fate=Fate.DOES_NOT_APPLY, told=str(exc))
        return replace(row, took_s=time.monotonic() - began_s)

    def _not_shown(self, killed: Sequence[Row]) -> Iterator[Row]:
        tests = sorted({row.killed_by for row in killed})
        if not tests:
            return
        with self._a_copy() as copy:
            account = self._run(copy, tests, to_the_end=True)
        failed = {each["test"]: each["message"] for each in account.failures} if account.ran else None
        for row in killed:
            if failed is None or row.killed_by in failed:
                told = account.said if failed is None else failed[row.killed_by]
                yield replace(row, fate=Fate.NOT_SHOWN, told=told)

    def _run(self, copy: _Copy, tests: Iterable[str], *, to_the_end: bool = False) -> _Account:
        told_in = copy.root.with_suffix(".json")
        told_in.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", *tests, "-q", "--no-header", "-p", "no:cacheprovider"]
        command += ["-p", "first_failure", f"--first-failure={told_in}", f"--timeout={_RUN_S / 2:.0f}"]
        process = subprocess.Popen(
            command if to_the_end else [*command, "-x"],
            cwd=copy.root,
            env=copy.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # what its tests started ends with it
        )
        self._running.add(process)
        try:
            said, _ = process.communicate(timeout=_RUN_S)
        except subprocess.TimeoutExpired:
            _end(process)
            said, _ = process.communicate()
        finally:
            _end(process)
            self._running.discard(process)
        return _Account.read(told_in, said)

    def _stop(self) -> None:
        for process in list(self._running):
            _end(process)

    @contextmanager
    def _a_copy(self) -> Iterator[_Copy]:
        copy = self._copies.get()
        try:
            yield copy
        finally:
            self._copies.put(copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    root: Path

    @classmethod
    def of(cls, root: Path, to: Path) -> _Copy:
        shutil.copytree(root, to, symlinks=True, ignore=_LEFT_OUT)
        copy = cls(root=to)
        copy._write(_PATIENCE.file, _PATIENCE.applied_to(copy._text(_PATIENCE.file)))
        return copy

    @property
    def environment(self) -> Mapping[str, str]:
        """What comes first on the path of a test, and of every process that it starts, is this copy."""
        plugin = Path(__file__).parent / "plugin"
        first = os.pathsep.join(map(str, (self.root, self.root / "collector", plugin)))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        # As in CI, laws draw the same examples each time: who kills a mutant is no matter of luck.
        return {**kept, "PYTHONPATH": first, "CI": "1"}

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Hold the mutant inside the block."""
        before = self._text(mutant.file)
        self._write(mutant.file, mutant.applied_to(before))
        try:
            yield
        finally:
            self._write(mutant.file, before)

    def _text(self, file: str) -> str:
        return (self.root / file).read_text("utf-8")

    def _write(self, file: str, text: str) -> None:
        path = self.root / file
        path.write_text(text, "utf-8")
        # Python takes a file of the same size and second for the one that it compiled
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    """What a run of tests said."""

    said: str
    ran: int = 0
    tested: tuple[str, ...] = ()
    """The packages that were imported."""
    failures: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def read(cls, file: Path, said: str) -> _Account:
        if not file.exists():
            return cls(said=said)
        told = json.loads(file.read_text())
        return cls(said=said, ran=told["ran"], tested=tuple(told["tested"]), failures=tuple(told["failures"]))


def _row(mutant: Mutant, copy: _Copy, account: _Account) -> Row:
    if not account.ran or not all(Path(each).is_relative_to(copy.root) for each in account.tested):
        return Row(mutant=mutant, fate=Fate.UNTESTED, told=account.said[-2_000:])
    if not account.failures:
        return Row(mutant=mutant, fate=Fate.SURVIVED, told=", ".join(mutant.tests))
    first = account.failures[0]
    fate = _fate(mutant, first)
    return Row(mutant=mutant, fate=fate, killed_by=first["test"], told=first["message"])


def _fate(mutant: Mutant, failure: Mapping[str, str]) -> Fate:
    if failure["when"] != "call":
        return Fate.UNTESTED
    return Fate.HUNG if _RAN_OUT.match(failure["message"]) and not mutant.hangs else Fate.KILLED


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
