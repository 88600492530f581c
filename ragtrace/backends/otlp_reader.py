"""Read traces from OTLP files: one file, a folder, or standard input."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, ParamSpec, TypeVar

from ragtrace import _standard_input
from ragtrace.backends._otlp_framing import OtlpFrame, has_whole_lines, holds_spans, pieces
from ragtrace.errors import CodecError, InputError, ReadError
from ragtrace.sqlite_file import open_temporary, transaction
from ragtrace.traces.otlp import parse_request, read_spans, trace_ids_in
from ragtrace.traces.trace import Span, Trace

_HEAD_BYTES: Final = 4 << 10
_SCHEMA: Final = """
    CREATE TABLE line (file INTEGER, id TEXT, start INTEGER, length INTEGER, PRIMARY KEY (file, id, start))
    WITHOUT ROWID;
    CREATE INDEX by_start ON line (file, start);
"""
_FIND: Final = "SELECT start, length FROM line WHERE file = ? AND id = ? ORDER BY start"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    file: int
    inode: int
    head: bytes
    """Digest of its first bytes: a file that was written again has others."""
    end: int
    """Where its last whole line ends."""
    size: int
    mtime_ns: int

    def is_of(self, stat: os.stat_result) -> bool:
        """Return whether the file is still the same."""
        return (self.size, self.mtime_ns, self.inode) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)


class FoundLine(NamedTuple):
    """A line with the id, and where it starts in its file."""

    start: int
    text: bytes


class LineIndex:
    """Knows in which lines of files an id is. It scans a file once, and later only what was appended.

    The index is a temporary database, on disk if it is large. Several threads may use it.
    """

    def __init__(self, ids_of: Callable[[bytes], Iterable[str]]) -> None:
        """``ids_of`` returns the ids in a line."""
        self._ids_of = ids_of
        self._db = open_temporary(_SCHEMA)
        self._scanned: dict[Path, _Scanned] = {}
        self._one = threading.Lock()

    def lines(self, path: Path, wanted: str) -> list[FoundLine]:
        """Return the lines with this id, in their order.

        Raises:
            OSError: the file cannot be read, or the disk is full.
        """
        try:
            with self._one, path.open("rb") as file:
                number = self._refreshed(path, file).file
                rows = self._db.execute(_FIND, (number, wanted)).fetchall()
                return [FoundLine(start, _read(file, start, length)) for start, length in rows]
        except sqlite3.Error as exc:
            raise OSError(f"its index cannot be kept: {exc}") from exc

    def close(self) -> None:
        """Delete the index."""
        with self._one:
            self._db.close()

    def _refreshed(self, path: Path, file: BinaryIO) -> _Scanned:
        stat = path.stat()
        head = hashlib.sha256(file.read(_HEAD_BYTES)).digest()
        known = self._scanned.get(path)
        if known and known.is_of(stat):
            return known
        if known is None or not _has_grown(known, stat.st_ino, stat.st_size, file):
            number = known.file if known else len(self._scanned)
            known = _Scanned(file=number, inode=0, head=head, end=0, size=0, mtime_ns=0)
        end = self._scan(known.file, file, known.end)
        self._scanned[path] = _Scanned(
            file=known.file,
            inode=stat.st_ino,
            head=head,
            end=end,
            size=stat.st_size,
            mtime_ns=stat.st_mtime_ns,
        )
        return self._scanned[path]

    def _scan(self, number: int, file: BinaryIO, begin: int) -> int:
        """Note the ids from this place on, and return where the last whole line ends."""
        end = begin
        file.seek(begin)
        with transaction(self._db):
            self._db.execute("DELETE FROM line WHERE file = ? AND start >= ?", (number, begin))
            for start, line in _lines(file, begin):
                rows = [(number, found, start, len(line)) for found in set(self._ids_of(line))]
                self._db.executemany("INSERT INTO line VALUES (?, ?, ?, ?)", rows)
                if line.endswith(b"\n"):
                    end = start + len(line)
        return end


def _has_grown(known: _Scanned, inode: int, size: int, file: BinaryIO) -> bool:
    """Return whether the file is the same with more at its end."""
    if inode != known.inode or size <= known.size:
        return False
    return hashlib.sha256(_read(file, 0, min(_HEAD_BYTES, known.size))).digest() == known.head


def _lines(file: BinaryIO, begin: int) -> Iterator[tuple[int, bytes]]:
    for line in file:
        yield begin, line
        begin += len(line)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


_STANDARD_INPUT: Final = "-"
_BATCH_BYTES: Final = 256 << 10
_TRACE_ID: Final = re.compile(rb'"traceId"\s*:\s*"([0-9A-Fa-f]{32})"')

P = ParamSpec("P")
T = TypeVar("T")
OnFault = Callable[[InputError], None]


class OtlpFileReader:
    """Read traces from files in the forms of the OpenTelemetry Collector, compressed or not.

    ``path`` is a file, a folder (recursively, by file name), or ``-`` for standard input. The spans of a
    trace may be in any place. The reader holds the spans of unfinished traces in memory; a pipe, which can be
    read only once, is held completely.

    ``on_fault`` is called for unreadable pieces, and reading continues. Without it, the first one raises.
    """

    def __init__(self, path: str | Path, *, on_fault: OnFault | None = None) -> None:
        self._path = str(path)
        self._on_fault = on_fault
        self.share_read: float | None = None
        """The share that `traces` has read, from 0 to 1; ``None`` for a pipe, because its size is unknown."""
        self._gets = 0
        self._index: LineIndex | None = None

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the files have none. The second time, it makes an index of lines.

        Raises:
            ReadError: a file cannot be read.
            InputError: a piece with the trace id is not OTLP; names file and place.
        """
        wanted = trace_id.lower()
        self._gets += 1
        if self._gets > 1 and not await asyncio.to_thread(_is_read_once, self._path):
            members = await asyncio.to_thread(self._members, wanted)
            return Trace.of(wanted, members) if members else None
        members = []
        async for batch in self._batches():
            naming = [piece for piece in batch if wanted in _trace_ids(piece)]
            decoded = await asyncio.to_thread(self._decoded, naming)
            members += [span for spans in decoded for span in spans if span.trace_id == wanted]
        return Trace.of(wanted, members) if members else None

    async def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace, in the order of their last spans in the files.

        Data appended during the read is ignored.

        Raises:
            ReadError: a file cannot be read.
            InputError: a piece is not OTLP; names file and place.
        """
        with closing(_LastPieces()) as last:
            length = await self._note_last(last)
            started: dict[str, list[Span]] = {}
            number = 0
            async for batch in self._batches(up_to=length):
                ending = last.ending_in(number, len(batch))
                for spans in await asyncio.to_thread(self._decoded, batch):
                    for span in spans:
                        started.setdefault(span.trace_id, []).append(span)
                    for trace_id in ending.get(number, ()):
                        if trace_id in started:
                            yield Trace.of(trace_id, started.pop(trace_id))
                    number += 1
                self.share_read = number / length if length < sys.maxsize else None
        for trace_id, members in started.items():  # from a pipe, or with ids in JSON escapes
            yield Trace.of(trace_id, members)

    async def aclose(self) -> None:
        """Delete the index of lines; files are closed after each read."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def _members(self, wanted: str) -> list[Span]:
        """Return the spans of a trace: by the index in files of lines, else by reading."""
        if self._index is None:
            self._index = LineIndex(_trace_ids_in_json)
        indexed, others = _parted(self._names())
        found = [
            OtlpFrame(f"{name}, byte {line.start}", "json", line.text.strip())
            for name in indexed
            for line in _lines_in(self._index, name, wanted)
        ]
        for name in others:
            found += [piece for piece in self._pieces_of(name) if wanted in _trace_ids(piece)]
        return [span for spans in self._decoded(found) for span in spans if span.trace_id == wanted]

    async def _note_last(self, last: _LastPieces) -> int:
        """Note the last piece of each trace, and return the number of pieces.

        Scanning for ids only is far cheaper than parsing spans.
        """
        if await asyncio.to_thread(_is_read_once, self._path):
            return sys.maxsize
        number = 0
        async for batch in self._batches(quietly=True):
            await _in_thread(last.note, number, batch)
            number += len(batch)
        return number

    async def _batches(
        self, *, up_to: int = sys.maxsize, quietly: bool = False
    ) -> AsyncIterator[Sequence[OtlpFrame]]:
        """Read a few pieces at a time, so that a caller can stop early."""
        with closing(self._pieces(quietly=quietly)) as source:
            left = up_to
            while left and (batch := await _in_thread(_some, source, left)):
                left -= len(batch)
                yield batch

    def _pieces(self, *, quietly: bool) -> Generator[OtlpFrame]:
        for name in self._names():
            yield from self._pieces_of(name, quietly=quietly)

    def _pieces_of(self, name: str, *, quietly: bool = False) -> Generator[OtlpFrame]:
        try:
            with _opened(name) as file:
                yield from pieces(file, "standard input" if name == _STANDARD_INPUT else name)
        except OSError as exc:
            raise _unreadable(name, exc) from exc
        except InputError as exc:
            self._tell(exc, quietly=quietly)

    def _names(self) -> Sequence[str]:
        path = Path(self._path)
        if not path.is_dir():
            return [self._path]
        return sorted(
            str(each) for each in path.rglob("*") if each.is_file() and not each.name.startswith(".")
        )

    def _decoded(self, batch: Sequence[OtlpFrame]) -> list[tuple[Span, ...]]:
        return [self._spans(piece) for piece in batch]

    def _spans(self, piece: OtlpFrame) -> tuple[Span, ...]:
        if piece.fault:
            self._tell(InputError(f"{piece.where}: {piece.fault}"))
            return ()
        try:
            spans, rejected = read_spans(piece.body, encoding=piece.encoding)
        except CodecError as exc:
            self._tell(InputError(f"{piece.where}: {exc}"))
            return ()
        if rejected:
            self._tell(InputError(f"{piece.where}: {rejected}"))
        return spans

    def _tell(self, fault: InputError, *, quietly: bool = False) -> None:
        if self._on_fault is None:
            raise fault
        if not quietly:
            self._on_fault(fault)


def holds_traces(path: str | Path) -> bool:
    """Return whether a file has traces, by its first document; a table by its name has none.

    Raises:
        InputError: it is damaged; names the file.
        ReadError: it cannot be read.
    """
    if {suffix.lower() for suffix in Path(path).suffixes} & _TABLES:
        return False
    try:
        with Path(path).open("rb") as file:
            return holds_spans(file, str(path))
    except OSError as exc:
        raise _unreadable(str(path), exc) from exc


_TABLES: Final = frozenset({".csv", ".tsv", ".parquet"})


class _LastPieces:
    """The number of each trace's last piece. It is on disk, so that a million traces take no memory."""

    def __init__(self) -> None:
        self._db = open_temporary(
            "CREATE TABLE last (trace_id BLOB PRIMARY KEY, piece INTEGER) WITHOUT ROWID;"
        )
        self._db.execute("BEGIN")
        self._is_indexed = False

    def note(self, first: int, batch: Sequence[OtlpFrame]) -> None:
        """Note the trace ids in a batch of pieces; ``first`` is the number of its first piece."""
        rows = (
            (bytes.fromhex(trace_id), number)
            for number, piece in enumerate(batch, first)
            for trace_id in _trace_ids(piece)
        )
        self._db.executemany("INSERT OR REPLACE INTO last VALUES (?, ?)", rows)

    def ending_in(self, first: int, pieces: int) -> Mapping[int, Sequence[str]]:
        """Return the traces that end in these pieces, by piece number."""
        if not self._is_indexed:
            self._db.execute("CREATE INDEX by_piece ON last (piece)")
            self._is_indexed = True
        ending: dict[int, list[str]] = {}
        for trace_id, piece in self._db.execute(
            "SELECT trace_id, piece FROM last WHERE piece >= ? AND piece < ?", (first, first + pieces)
        ):
            ending.setdefault(piece, []).append(trace_id.hex())
        return ending

    def close(self) -> None:
        """Delete everything."""
        self._db.close()


def _parted(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Part files of JSON lines from others: compressed, of protobuf, or of JSON over several lines."""
    indexed: list[str] = []
    others: list[str] = []
    for name in names:
        try:
            with Path(name).open("rb") as file:
                (indexed if has_whole_lines(file) else others).append(name)
        except OSError as exc:
            raise _unreadable(name, exc) from exc
    return indexed, others


def _lines_in(index: LineIndex, name: str, wanted: str) -> list[FoundLine]:
    try:
        return index.lines(Path(name), wanted)
    except OSError as exc:
        raise _unreadable(name, exc) from exc


def _unreadable(name: str, exc: OSError) -> ReadError:
    return ReadError(f"{name} cannot be read: {exc.strerror or exc}")


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == _STANDARD_INPUT:
        yield _standard_input.open_standard_input()
        return
    with Path(name).open("rb") as file:
        yield file


def _is_read_once(path: str) -> bool:
    return path == _STANDARD_INPUT or not (Path(path).is_file() or Path(path).is_dir())


async def _in_thread(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in a thread. If that is cancelled, it ends first: what it uses is closed next.

    Of standard input no more comes then.
    """
    running = asyncio.ensure_future(asyncio.to_thread(read, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        _standard_input.leave()
        await asyncio.gather(running, return_exceptions=True)  # the cancellation is what counts
        raise


def _some(source: Iterator[OtlpFrame], most: int) -> list[OtlpFrame]:
    batch: list[OtlpFrame] = []
    size = 0
    for piece in islice(source, most):
        batch.append(piece)
        size += len(piece.body)
        if size >= _BATCH_BYTES:
            break
    return batch


def _trace_ids(piece: OtlpFrame) -> dict[str, None]:
    """List the trace ids in a piece; in JSON, this includes ids in links."""
    if piece.encoding == "json":
        return dict.fromkeys(_trace_ids_in_json(piece.body))
    try:
        return dict.fromkeys(trace_ids_in(parse_request(piece.body, encoding="protobuf")))
    except CodecError:
        return {}


def _trace_ids_in_json(line: bytes) -> Iterator[str]:
    return (found.decode().lower() for found in _TRACE_ID.findall(line))
