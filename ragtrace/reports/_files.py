"""Files of reports. They hold questions and answers: only their owner may read them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ragtrace.errors import ConfigError
from ragtrace.files.durable import sync_folder
from ragtrace.files.private import PendingFile, open_private


class AppendedFile:
    """A file that grows by whole rows: what was written stays, wherever a run ends.

    Rows of earlier runs stay before those of this one; a row that a crash cut is taken back.
    """

    def __init__(self, path: Path, *, head: bytes, starts_with: bytes, is_quoted: bool) -> None:
        """Open it.

        ``head`` is written into an empty file, and ``starts_with`` is what any file of this form starts with;
        ``is_quoted`` says that a row goes on over line breaks between quotation marks.

        Raises:
            ConfigError: it cannot be written, or holds something else.
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
                raise ConfigError(f"{str(path)!r} exists and holds something else: name another file")
            file.seek(0)
            whole = _whole_until(file, is_quoted=is_quoted)
        self._is_empty = whole == 0
        if start:
            os.ftruncate(self._descriptor, whole)

    def append(self, row: bytes) -> None:
        """Write a whole row, or nothing.

        Raises:
            OSError: it cannot be written.
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
        """Make sure that all of it is on disk.

        Raises:
            OSError: it cannot be written.
        """
        try:
            if self._is_empty:
                self.append(b"")
            os.fsync(self._descriptor)
            sync_folder(self.path.parent)
        finally:
            self._close()

    def abandon(self) -> None:
        """Take the file away again if nothing was ever written into it."""
        if not os.fstat(self._descriptor).st_size:
            self.path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        os.close(self._descriptor)


def replaced_file(path: Path) -> PendingFile:
    """Open a file that takes the place of an earlier one once it is whole.

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
    """Return where the last whole row ends."""
    whole = position = marks = 0
    for line in file:
        position += len(line)
        marks += line.count(b'"') if is_quoted else 0
        if line.endswith(b"\n") and marks % 2 == 0:
            whole = position
    return whole
