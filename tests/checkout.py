"""A run of the tests leaves no file in the checkout: if one does, it fails and names the tests that ran."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
_CACHES: Final = ("__pycache__/", ".hypothesis/", ".pytest_cache/", ".ruff_cache/", ".mypy_cache/")


@dataclass(slots=True, kw_only=True, eq=False)  # a plug-in is itself
class CleanCheckout:
    """Compares what is in the checkout when a run ends with what was there when it began."""

    root: Path = ROOT
    before: frozenset[str] = frozenset()
    ran: list[tuple[float, float, str]] = field(default_factory=list)
    """From when to when which test ran."""
    left: list[str] = field(default_factory=list)

    def pytest_sessionstart(self) -> None:
        self.before = self._not_committed()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran.append((report.start, report.stop, report.nodeid))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if something is there that was not."""
        for name in sorted(self._not_committed() - self.before):
            tests = ", ".join(self._meanwhile(name))
            self.left.append(f"{name} came into the checkout; what ran then: {tests}")
        if self.left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.left:
            terminalreporter.write_line(f"FAILED {line}", red=True)

    def _meanwhile(self, name: str) -> Iterator[str]:
        file = self.root / name
        changed_s = file.stat().st_mtime if file.exists() else 0.0
        names = {test for start, stop, test in self.ran if start - 0.1 <= changed_s <= stop + 0.1}
        yield from sorted(names) or ["no test"]

    def _not_committed(self) -> frozenset[str]:
        """Return what git does not know, or ignores, without caches; nothing where there is no git."""
        command = ["git", "status", "--porcelain", "--ignored", "-z"]
        try:
            told = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return frozenset()
        entries = [entry[3:] for entry in told.split("\0") if entry.startswith(("?? ", "!! "))]
        return frozenset(entry for entry in entries if not entry.endswith(_CACHES))
