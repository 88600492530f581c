"""The library's own SQLite files: what is not ours is left alone, and why."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from ragtrace.backfill.progress import Progress
from ragtrace.errors import ConfigError
from ragtrace.files import make_private
from ragtrace.judge.batch import BatchLog
from ragtrace.judge.cache import CacheFile
from ragtrace.sql import SqliteFileError, SqliteForm, is_busy, open_private
from ragtrace.transcripts import Transcripts
from tests.patience import PATIENCE_S

_CACHE: Final = """
PRAGMA page_size = 4096; PRAGMA journal_mode = WAL;
PRAGMA application_id = 1918986100; PRAGMA user_version = 1;
CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX entries_used ON entries (used);
INSERT INTO entries VALUES (x'01', x'02', 1);
"""
"""A cache with one entry."""


def use_transcripts(path: Path) -> object:
    with Transcripts(path) as transcripts:
        reply = transcripts.said(b"\1", session="session", time=0)
    return reply and reply.body


def use_progress(path: Path) -> object:
    with Progress(path) as progress:
        return list(progress.waiting())


def use_batches(path: Path) -> object:
    with closing(BatchLog(path)) as batches:
        return batches.batch_of("request")


Use = Callable[[Path], object]
"""Opens a file and reads what it holds; a ConfigError if it cannot be used."""
KINDS: Final[Mapping[str, Use]] = {
    "transcripts": use_transcripts,
    "progress": use_progress,
    "batches": use_batches,
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def use(request: pytest.FixtureRequest) -> Use:
    found: Use = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "own.db"


@contextmanager
def by_hand(path: Path) -> Iterator[sqlite3.Connection]:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


def written(path: Path, script: str) -> None:
    with by_hand(path) as db:
        db.executescript(script)


def refusal(use: Use, path: Path) -> str:
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="cannot be used: ") as caught:
        use(path)
    assert path.read_bytes() == before
    return str(caught.value)


def test_a_new_file_is_the_owners_alone_and_a_mode_that_was_set_stays(use: Use, path: Path) -> None:
    for mode in (0o600, 0o640):
        assert not use(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        os.chmod(path, 0o640)
    with by_hand(path) as db:
        ((mark,),) = db.execute("PRAGMA application_id").fetchall()
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert mark.to_bytes(4).startswith(b"rag")


def test_what_is_no_file_of_this_kind_is_left_alone_and_told(use: Use, path: Path) -> None:
    path.parent.mkdir()
    (path.parent / "target.db").touch()
    path.symlink_to(path.parent / "target.db")
    assert "it is a link" in refusal(use, path)
    path.unlink()
    for version in (0, 1):
        written(path, f"CREATE TABLE IF NOT EXISTS bookmark (url TEXT); PRAGMA user_version = {version};")
        assert "another program's database: name another path" in refusal(use, path)
    for other in KINDS.values():
        if other is not use:
            path.unlink()
            other(path)
            assert "another program's database" in refusal(use, path)
    path.unlink()
    path.write_text("these are notes " * 100)
    assert "file is not a database: name another path" in refusal(use, path)


def test_a_file_of_another_version_and_a_damaged_one_are_left_alone_and_told(use: Use, path: Path) -> None:
    use(path)
    written(path, "PRAGMA user_version = 99;")
    assert "another version of ragtrace wrote it: it has the form 99" in refusal(use, path)
    content = bytearray(path.read_bytes())
    content[100:108] = b"\xff" * 8  # the header of the schema's page
    path.write_bytes(content)
    assert "it is damaged: move it away" in refusal(use, path)


def test_a_file_in_a_folder_that_is_none_is_told(use: Use, path: Path) -> None:
    path.parent.touch()
    with pytest.raises(ConfigError, match="cannot be used: "):
        use(path)


_MAY_LOCK: Final = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("locked")
"""


def test_a_file_in_use_keeps_its_locks(tmp_path: Path) -> None:
    """SQLite's locks are this process's: closing any other descriptor of the file would release them."""
    path = tmp_path / "used.db"
    make_private(path)
    with path.open("r+") as used:
        fcntl.lockf(used, fcntl.LOCK_EX)
        make_private(path)
        command = [sys.executable, "-c", _MAY_LOCK, str(path)]
        other = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert other.stdout.strip() == "locked"


def test_a_file_in_use_is_told(path: Path) -> None:
    form = SqliteForm(application_id=1, schema="CREATE TABLE one (x);", busy_s=0)
    with by_hand(path) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SqliteFileError, match="another program is using it") as caught:
            open_private(path, form)
        assert is_busy(caught.value)
    open_private(path, form).close()


def test_a_full_disk_is_told(path: Path) -> None:
    form = SqliteForm(application_id=1, schema="CREATE TABLE one (x);", pragmas=("max_page_count = 1",))
    with pytest.raises(SqliteFileError, match="its disk is full: make room"):
        open_private(path, form)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def cached(path: Path) -> bytes | None:
    cache = CacheFile(path)
    found = await cache.get(b"\1")
    await cache.aclose()
    return found


async def test_a_cache_of_another_version_begins_anew(path: Path) -> None:
    written(path, f"{_CACHE} PRAGMA user_version = 99;")
    assert await cached(path) is None
    with by_hand(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT * FROM entries").fetchall() == []


async def test_a_cache_judges_on_without_what_is_not_its_own(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    use_progress(path)
    before = content(path)
    assert await cached(path) is None
    assert content(path) == before
    assert "it is another program's database" in caplog.text
