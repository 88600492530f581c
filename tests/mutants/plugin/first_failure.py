"""A plug-in of pytest: writes down which test failed first, how, and whose code was tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Ask where to."""
    parser.addoption("--first-failure", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Watch this run."""
    config.pluginmanager.register(_FirstFailure(config.getoption("--first-failure")))


class _FirstFailure:
    def __init__(self, told_in: Path) -> None:
        self._told_in = told_in
        self._failures: list[dict[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._failures.append(
                {
                    "test": report.nodeid,
                    "when": report.when,
                    "message": crash.message if crash else report.longreprtext,
                }
            )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        import ragtrace
        import ragtrace_collector

        tested = [module.__file__ for module in (ragtrace, ragtrace_collector)]
        told = {"ran": session.testscollected, "tested": tested, "failures": self._failures}
        self._told_in.write_text(json.dumps(told))
