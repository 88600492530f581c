"""The files of a store: locked against a second collector, and checked while they are in use.

SQLite goes on writing into a deleted file, and what it commits there is lost when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from ragtrace.errors import ConfigError

_Identity = tuple[int, int]
"""Device and inode."""

_LOG: Final = "-wal"
_INDEX: Final = "-shm"
_LOCKED_BYTE: Final = 1 << 62
"""Beyond the content of any file, and far from the bytes that SQLite itself locks (from 1 GiB on)."""


class StoreLock:
    """Locks a store against a second collector under any name, because both would judge the same answers.

    There are two locks. One is on a file next to the store, which other programs can read. The other is on
    the store's inode: it holds through links, mounts of the same folder, and a deleted lock file. It belongs
    to the open file and not to the process (``F_OFD_SETLK``), so that it does not interact with SQLite's own
    locks. But closing any descriptor of a file releases all of SQLite's locks in this process: so this one is
    closed after SQLite's, and a file that is locked here is not opened again.
    """

    def __init__(self, path: Path) -> None:
        """Take both locks, and create the file if it is missing.

        Raises:
            ConfigError: another collector has it.
            OSError: a file cannot be created or opened.
            ValueError: the path is not a file name.
        """
        real = path.resolve()
        self._beside = _lock_beside(real, path)
        try:
            self._store = os.fdopen(_lock_inode(real, path), "rb")
        except BaseException:
            self._beside.close()
            raise
        self._identity = _identity(self._store.fileno())
        _held.add(self._identity)

    def close(self) -> None:
        """Release the locks. Call it after SQLite has closed the file."""
        if not self._store.closed:
            _held.discard(self._identity)
        self._store.close()
        self._beside.close()


_held: Final[set[_Identity]] = set()
"""The locks of this process."""


def _lock_beside(real: Path, path: Path) -> IO[bytes]:
    lock = real.with_name(f"{real.name}.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        lock.close()
        raise _in_use(path) from exc
    return lock


def _lock_inode(real: Path, path: Path) -> int:
    if real.exists() and _identity(real) in _held:
        raise _in_use(path)
    # It holds content: only its owner may read it. SQLite gives its other files the same mode.
    descriptor = os.open(real, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock_byte(descriptor)
    except OSError as exc:
        os.close(descriptor)
        raise _in_use(path) from exc
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise ConfigError(
            f"`store.path`: {str(path)!r} has a second name (a hard link): SQLite keeps a log for each name, "
            "and what is written under one is not visible under the other: remove the other name; to copy "
            "a store, use SQLite's `VACUUM INTO`"
        )
    return descriptor


def _lock_byte(descriptor: int) -> None:
    of_open_file = getattr(fcntl, "F_OFD_SETLK", None)
    if of_open_file is None:  # only Linux has these; elsewhere the lock belongs to the process
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCKED_BYTE)
        return
    lock = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
    fcntl.fcntl(descriptor, of_open_file, lock)


def _in_use(path: Path) -> ConfigError:
    return ConfigError(
        f"`store.path`: {str(path)!r} is in use by another collector: "
        "stop it, or give this one a path of its own"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFiles:
    """The store, its log and the log's index, as they were when they were opened."""

    store: Path
    """The configured path, so that a link that now leads elsewhere is noticed."""
    opened: Mapping[Path, _Identity]

    @classmethod
    def of(cls, store: Path) -> StoreFiles:
        """Record the files of a store that SQLite has opened.

        Raises:
            OSError: one is missing.
        """
        real = store.resolve()  # SQLite puts its other files here
        paths = (store, *(real.with_name(f"{real.name}{end}") for end in (_LOG, _INDEX)))
        return cls(store=store, opened={path: _identity(path) for path in paths})

    @property
    def log(self) -> Path:
        """The write-ahead log."""
        return next(path for path in self.opened if path.name.endswith(_LOG))

    def trouble(self) -> str:
        """Return a message about files that are not the ones opened; empty if all are."""
        gone = [path for path, identity in self.opened.items() if _identity_or_none(path) != identity]
        if not gone:
            return ""
        if self.store in gone:
            return "its file was moved, deleted or replaced while it was in use"
        names = " and ".join(repr(str(path)) for path in gone)
        return (
            f"{names} was moved, deleted or replaced while it was in use: "
            "stop the collector and start it again"
        )

    def may_be_saved(self) -> bool:
        """Say whether no other program can be writing into the store: its file is there, and no other log.

        Then the content of a deleted log can be written into the store. If there is another log, another
        program may have written through it, and both would overwrite each other.
        """
        if _identity_or_none(self.store) != self.opened[self.store]:
            return False
        others = (path for path, identity in self.opened.items() if _identity_or_none(path) != identity)
        return not any(path.exists() for path in others)


def _identity(file: Path | int) -> _Identity:
    found = os.stat(file)
    return found.st_dev, found.st_ino


def _identity_or_none(path: Path) -> _Identity | None:
    try:
        return _identity(path)
    except OSError:
        return None
