"""Tests that share what takes long to make run on one worker; the others on whichever is free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.sharing import ROOT, TOGETHER

CONFTEST = """
from tests import sharing

sharing.TOGETHER["test_together.py"] = "it"

def pytest_xdist_make_scheduler(config, log):
    return sharing.BySharing(config, log)
"""
TESTS = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    Path(__file__).with_suffix("." + worker).touch()
    if "apart" in __file__ and number < 2:  # each waits for the other
        while len(list(Path(__file__).parent.glob("test_apart.gw*"))) < 2:
            pass
"""


def test_every_module_that_shares_is_there() -> None:
    assert [name for name in TOGETHER if not (ROOT / name).is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), [("test_together", 1), ("test_apart", 2)])
def test_a_module_that_shares_runs_on_one_worker(tmp_path: Path, name: str, workers: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / f"{name}.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(tmp_path), "-n", "2"]
    run = subprocess.run(
        [*command, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert len(list(tmp_path.glob(f"{name}.gw*"))) == workers
