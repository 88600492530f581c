"""Files of reports. They contain questions and answers, so only their owner can read them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ragtrace.errors import ConfigError
from ragtrace.files.durable import sync_folder
from ragtrace.files.private import PendingFile, open_private


class AppendedFile:
    """A file that grows by complete rows, which stay even if the run is interrupted.

    Rows of earlier runs stay in front. A row that a crash truncated is removed.
    """

    def __init__(self, path: Path, *, head: bytes, starts_with: bytes, is_quoted: bool) -> None:
        """Open it.

        ``head`` is written into an empty file; every file of this format begins with ``starts_with``.
        ``is_quoted``: a row may contain line breaks between quotation marks.

        Raises:
            ConfigError: it cannot be written, or has other content.
        """
        self.path = path
        self._head = head
        try:
            self._descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
        except OSError as exc:
            raise _unwritable(path, exc) from exc
        with open(self._descriptor, "rb", closefd=False) as file:
            start = file.read(len(starts_with))
            if not starts_with.startswith(start):
                self._close()
                raise ConfigError(f"{str(path)!r} exists and is no such report: name another file")
            file.seek(0)
            whole = _whole_until(file, is_quoted=is_quoted)
        self._is_empty = whole == 0
        if start:
            os.ftruncate(self._descriptor, whole)

    def append(self, row: bytes) -> None:
        """Write a complete row, or nothing.

        Raises:
            OSError: the file cannot be written.
        """
        before = os.fstat(self._descriptor).st_size
        rest = memoryview(self._head + row if self._is_empty else row)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise
        self._is_empty = False

    def commit(self) -> None:
        """Flush the file to disk.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            if self._is_empty:
                self.append(b"")
            os.fsync(self._descriptor)
            sync_folder(self.path.parent)
        finally:
            self._close()

    def abandon(self) -> None:
        """Delete the file if nothing was written."""
        if not os.fstat(self._descriptor).st_size:
            self.path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        os.close(self._descriptor)


def replaced_file(path: Path) -> PendingFile:
    """Open a file that replaces an earlier one when it is complete.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        return PendingFile(path)
    except OSError as exc:
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> ConfigError:
    return ConfigError(f"the report {str(path)!r} cannot be written: {exc.strerror or exc}")


def _whole_until(file: BinaryIO, *, is_quoted: bool) -> int:
    """Return the end of the last complete row."""
    whole = position = marks = 0
    for line in file:
        position += len(line)
        marks += line.count(b'"') if is_quoted else 0
        if line.endswith(b"\n") and marks % 2 == 0:
            whole = position
    return whole
