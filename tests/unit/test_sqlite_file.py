"""The library's own SQLite files: those of earlier versions open, what is not ours is left alone, and why."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ragtrace.backfill.progress import Progress
from ragtrace.errors import ConfigError
from ragtrace.judge.batch import BatchLog
from ragtrace.judge.cache import CacheFile, CacheSettings
from ragtrace.sqlite_file import SqliteFileError, SqliteForm, is_busy, open_private, transaction
from ragtrace.transcripts import Transcripts

_TRANSCRIPTS: Final = """
PRAGMA journal_mode=WAL; PRAGMA application_id=1918986099; PRAGMA user_version=1;
CREATE TABLE prompt (sha256 BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE reply (
    request BLOB NOT NULL, session TEXT NOT NULL, time INTEGER NOT NULL, provider TEXT NOT NULL,
    model TEXT NOT NULL, step TEXT NOT NULL, prompt BLOB NOT NULL, said_ns INTEGER NOT NULL,
    error TEXT NOT NULL, body BLOB NOT NULL, usage BLOB NOT NULL,
    PRIMARY KEY (request, session, time)) WITHOUT ROWID;
CREATE TABLE record (sha256 BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE evaluation (
    number INTEGER PRIMARY KEY, record_id TEXT NOT NULL, evaluator_set TEXT NOT NULL,
    evaluator_version TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
    record BLOB NOT NULL, body BLOB NOT NULL,
    UNIQUE (record_id, evaluator_set, evaluator_version));
INSERT INTO reply VALUES (x'01', 'session', 0, 'p', 'm', 's', x'02', 1, '', x'7b7d', x'7b7d');
"""
_PROGRESS: Final = """
PRAGMA journal_mode=WAL;
CREATE TABLE carrier (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, payload BLOB,
    PRIMARY KEY (trace_id, span_id)) WITHOUT ROWID;
CREATE INDEX carrier_waiting ON carrier (trace_id) WHERE payload IS NOT NULL;
CREATE TABLE run (
    name TEXT PRIMARY KEY, since_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL, reached_ns INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE spent (
    run TEXT PRIMARY KEY, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, usd_nano INTEGER NOT NULL)
    WITHOUT ROWID;
INSERT INTO carrier VALUES ('trace', 'span', x'00');
"""
_BATCHES: Final = """
PRAGMA journal_mode=WAL;
CREATE TABLE batch (
    key TEXT PRIMARY KEY, planned_at_s INTEGER NOT NULL, file_id TEXT, batch_id TEXT,
    has_ended INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE request (
    id TEXT PRIMARY KEY, batch TEXT NOT NULL REFERENCES batch ON DELETE CASCADE, taken_by TEXT) WITHOUT ROWID;
CREATE INDEX request_batch ON request (batch);
INSERT INTO batch VALUES ('key', 9999999999, 'file', 'batch', 0);
INSERT INTO request VALUES ('request', 'key', NULL);
"""
_CACHE: Final = """
PRAGMA page_size = 4096; PRAGMA journal_mode = WAL;
PRAGMA application_id = 1918986100; PRAGMA user_version = 1;
CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX entries_used ON entries (used);
INSERT INTO entries VALUES (x'01', x'02', 1);
"""
"""The schemas as earlier versions wrote them: what they wrote must open."""


def use_transcripts(path: Path) -> object:
    with Transcripts(path) as transcripts:
        reply = transcripts.said(b"\1", session="session", time=0)
    return reply and reply.body


def use_progress(path: Path) -> object:
    with Progress(path) as progress:
        return list(progress.waiting())


def use_batches(path: Path) -> object:
    with closing(BatchLog(path)) as batches:
        planned = batches.batch_of("request")
    return planned and planned.batch_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of file."""

    earlier: str
    """How an earlier version wrote it."""
    held: object
    use: Callable[[Path], object]
    """Opens it and reads what it holds; a ConfigError if it cannot be used."""
    version: int = 1
    """The newest."""


KINDS: Final = {
    "transcripts": Kind(earlier=_TRANSCRIPTS, held=b"{}", use=use_transcripts),
    "progress": Kind(earlier=_PROGRESS, held=[("trace", "span", b"\0")], use=use_progress, version=2),
    "batches": Kind(earlier=_BATCHES, held="batch", use=use_batches),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
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


def content(path: Path) -> bytes:
    return path.read_bytes()


def refusal(kind: Kind, path: Path) -> str:
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="cannot be used: ") as caught:
        kind.use(path)
    assert path.read_bytes() == before
    return str(caught.value)


def test_a_file_that_an_earlier_version_wrote_opens_again_and_again(kind: Kind, path: Path) -> None:
    written(path, kind.earlier)
    assert [kind.use(path) for _ in range(3)] == [kind.held] * 3


def test_a_new_file_is_the_owners_alone_and_is_marked(kind: Kind, path: Path) -> None:
    assert not kind.use(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with by_hand(path) as db:
        ((mark,),) = db.execute("PRAGMA application_id").fetchall()
        ((journal,),) = db.execute("PRAGMA journal_mode").fetchall()
    assert mark.to_bytes(4).startswith(b"rag")
    assert journal == "wal"


def test_a_new_file_is_as_one_of_an_earlier_version_becomes(kind: Kind, path: Path, tmp_path: Path) -> None:
    kind.use(path)
    written(tmp_path / "earlier.db", kind.earlier)
    kind.use(tmp_path / "earlier.db")
    assert tables(path) == tables(tmp_path / "earlier.db")


def tables(path: Path) -> list[tuple[object, ...]]:
    with by_hand(path) as db:
        return db.execute(
            'SELECT m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
            " FROM sqlite_master AS m, pragma_table_info(m.name) AS c ORDER BY 1, 2"
        ).fetchall()


def test_a_link_is_not_followed(kind: Kind, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    target.touch()
    path.parent.mkdir()
    path.symlink_to(target)
    assert "it is a link" in refusal(kind, path)


@pytest.mark.parametrize("version", [0, 1])
def test_the_database_of_another_program_is_left_alone(kind: Kind, path: Path, version: int) -> None:
    written(path, f"CREATE TABLE bookmark (url TEXT); PRAGMA user_version = {version};")
    assert "another program's database: name another path" in refusal(kind, path)


def test_the_file_of_another_kind_is_left_alone(kind: Kind, path: Path) -> None:
    for other in KINDS.values():
        if other is not kind:
            path.unlink(missing_ok=True)
            other.use(path)
            assert "another program's database" in refusal(kind, path)


def test_a_file_of_a_newer_version_is_left_alone(kind: Kind, path: Path) -> None:
    kind.use(path)
    written(path, "PRAGMA user_version = 99;")
    assert f"of version 99, and this one knows {kind.version}: upgrade ragtrace" in refusal(kind, path)


def test_what_is_no_database_is_left_alone(kind: Kind, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("these are notes " * 100)
    assert "file is not a database: name another path" in refusal(kind, path)


def test_a_damaged_file_is_told(kind: Kind, path: Path) -> None:
    written(path, kind.earlier)
    content = bytearray(path.read_bytes())
    content[100:108] = b"\xff" * 8  # the header of the schema's page
    path.write_bytes(content)
    assert "it is damaged: move it away" in refusal(kind, path)


def test_a_file_in_a_folder_that_is_none_is_told(kind: Kind, path: Path) -> None:
    path.parent.touch()
    with pytest.raises(ConfigError, match="cannot be used: "):
        kind.use(path)


def test_a_file_in_use_is_told(path: Path) -> None:
    form = SqliteForm(application_id=1, steps=("CREATE TABLE one (x);",), busy_s=0)
    with by_hand(path) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SqliteFileError, match="another program is using it") as caught:
            open_private(path, form)
        assert is_busy(caught.value)
    open_private(path, form).close()


def test_a_full_disk_is_told(path: Path) -> None:
    form = SqliteForm(application_id=1, steps=("CREATE TABLE one (x);",), pragmas=("max_page_count = 1",))
    with pytest.raises(SqliteFileError, match="its disk is full: make room"):
        open_private(path, form)


def test_a_migration_is_one_transaction_a_step(path: Path) -> None:
    first = "CREATE TABLE one (x); -- not; the end\nINSERT INTO one VALUES (';');"
    open_private(path, SqliteForm(application_id=1, steps=(first,))).close()
    broken = SqliteForm(application_id=1, steps=(first, "CREATE TABLE two (x); CREATE TABLE one (x);"))
    with pytest.raises(SqliteFileError, match="already exists"):
        open_private(path, broken)
    with by_hand(path) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("one",)]
    whole = SqliteForm(
        application_id=1, steps=(first, "CREATE TABLE two (x); INSERT INTO two SELECT x FROM one;")
    )
    for _ in range(2):
        with closing(open_private(path, whole)) as opened:
            assert opened.execute("SELECT x FROM two").fetchall() == [(";",)]


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    form = SqliteForm(application_id=1, steps=("CREATE TABLE one (x UNIQUE);",))
    with closing(open_private(path, form)) as opened:
        with pytest.raises(sqlite3.IntegrityError), transaction(opened):
            opened.executemany("INSERT INTO one VALUES (?)", [(1,), (1,)])
        assert opened.execute("SELECT * FROM one").fetchall() == []


async def cached(path: Path) -> bytes | None:
    cache = CacheFile(CacheSettings(path=path))
    found = await cache.get(b"\1")
    await cache.aclose()
    return found


async def test_a_cache_that_an_earlier_version_wrote_opens(path: Path) -> None:
    written(path, _CACHE)
    assert [await cached(path) for _ in range(2)] == [b"\2", b"\2"]
    with by_hand(path) as db:
        assert db.execute("PRAGMA page_size").fetchone() == (4096,)


async def test_a_cache_of_another_version_begins_anew(path: Path) -> None:
    written(path, f"{_CACHE} PRAGMA user_version = 99;")
    assert await cached(path) is None
    with by_hand(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert db.execute("SELECT * FROM entries").fetchall() == []


@pytest.mark.parametrize("earlier", [_TRANSCRIPTS, _PROGRESS, "CREATE TABLE bookmark (url TEXT);"])
async def test_a_cache_judges_on_without_what_is_not_its_own(
    path: Path, earlier: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(path, earlier)
    before = content(path)
    assert await cached(path) is None
    assert content(path) == before
    assert "it is another program's database" in caplog.text


def test_the_mode_of_a_file_that_is_there_stays(kind: Kind, path: Path) -> None:
    kind.use(path)
    os.chmod(path, 0o640)
    kind.use(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
