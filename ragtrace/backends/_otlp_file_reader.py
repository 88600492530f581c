"""Read traces from OTLP files: one file, a folder, or standard input."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from ragtrace.backends._otlp_framing import OtlpFrame, pieces
from ragtrace.errors import CodecError, InputError, ReadError
from ragtrace.sqlite_file import open_temporary
from ragtrace.traces.otlp import decode_body, parse_request, trace_ids_in
from ragtrace.traces.trace import Span, Trace

_STANDARD_INPUT: Final = "-"
_BATCH_BYTES: Final = 256 << 10
_TRACE_ID: Final = re.compile(rb'"traceId"\s*:\s*"([0-9A-Fa-f]{32})"')

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

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the files have none.

        Raises:
            ReadError: a file cannot be read.
            InputError: a piece with the trace id is not OTLP; names file and place.
        """
        wanted = trace_id.lower()
        members: list[Span] = []
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
        """Do nothing: files are closed after each read."""

    async def _note_last(self, last: _LastPieces) -> int:
        """Note the last piece of each trace, and return the number of pieces.

        Scanning for ids only is far cheaper than parsing spans.
        """
        if await asyncio.to_thread(_is_read_once, self._path):
            return sys.maxsize
        number = 0
        async for batch in self._batches(quietly=True):
            await asyncio.to_thread(last.note, number, batch)
            number += len(batch)
        return number

    async def _batches(
        self, *, up_to: int = sys.maxsize, quietly: bool = False
    ) -> AsyncIterator[Sequence[OtlpFrame]]:
        """Read a few pieces at a time, so that a caller can stop early."""
        with closing(self._pieces(quietly=quietly)) as source:
            left = up_to
            while left and (batch := await asyncio.to_thread(_some, source, left)):
                left -= len(batch)
                yield batch

    def _pieces(self, *, quietly: bool) -> Generator[OtlpFrame]:
        for name in self._names():
            try:
                with _opened(name) as file:
                    yield from pieces(file, "standard input" if name == _STANDARD_INPUT else name)
            except OSError as exc:
                raise ReadError(f"{name} cannot be read: {exc.strerror or exc}") from exc
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
        try:
            return decode_body(piece.body, encoding=piece.encoding)
        except CodecError as exc:
            self._tell(InputError(f"{piece.where}: {exc}"))
            return ()

    def _tell(self, fault: InputError, *, quietly: bool = False) -> None:
        if self._on_fault is None:
            raise fault
        if not quietly:
            self._on_fault(fault)


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


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == _STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file


def _is_read_once(path: str) -> bool:
    return path == _STANDARD_INPUT or not (Path(path).is_file() or Path(path).is_dir())


def _some(source: Iterator[OtlpFrame], most: int) -> list[OtlpFrame]:
    """Take enough pieces for one call in the thread."""
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
        return dict.fromkeys(found.decode().lower() for found in _TRACE_ID.findall(piece.body))
    try:
        return dict.fromkeys(trace_ids_in(parse_request(piece.body, encoding="protobuf")))
    except CodecError:
        return {}
