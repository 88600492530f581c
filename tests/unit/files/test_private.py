"""Private files: made for their owner, and never opened if they are there."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from ragtrace.files import make_private
from tests.patience import PATIENCE_S

_MAY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("locked")
"""


def test_a_file_is_made_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "made.db"
    make_private(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(OSError, match="it is a link"):
        make_private(tmp_path / "link.db")
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_file_in_use_keeps_its_locks(tmp_path: Path) -> None:
    """SQLite's locks are this process's: closing any other descriptor of the file would release them."""
    path = tmp_path / "used.db"
    make_private(path)
    with path.open("r+") as used:
        fcntl.lockf(used, fcntl.LOCK_EX)
        make_private(path)
        other = subprocess.run(
            [sys.executable, "-c", _MAY_LOCK, str(path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
    assert other.stdout.strip() == "locked"
