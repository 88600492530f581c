"""A run of tests that leaves a file in the checkout fails, and names the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE_S
from tests.sharing import TOGETHER

CONFTEST = """
from pathlib import Path
from tests.checkout import CleanCheckout

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CleanCheckout(root=Path(__file__).parent))
"""
TESTS = """
import time
from pathlib import Path

def test_that_leaves_a_file():
    Path(__file__).with_name("left.db").touch()
    time.sleep(0.5)

def test_that_leaves_none():
    time.sleep(0.5)
"""


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    (folder / ".gitignore").write_text("*.db\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True, timeout=PATIENCE_S)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), *options, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
def test_a_file_that_a_test_leaves_fails_the_run_by_the_tests_name(tmp_path: Path) -> None:
    run = run_tests(tmp_path, "-n", "1")
    (told,) = [line for line in run.stdout.splitlines() if "came into the checkout" in line]
    assert told == (
        "FAILED left.db came into the checkout; what ran then: test_it.py::test_that_leaves_a_file"
    )
    assert run.returncode == 1


def test_every_module_that_shares_is_there() -> None:
    assert [name for name in TOGETHER if not (ROOT / name).is_file()] == []
