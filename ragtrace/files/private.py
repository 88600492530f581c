"""Files that hold what others may not read, in folders where others may write.

A link that somebody planted is never followed (CWE-59), a name that is made beside a file cannot be guessed,
and what is made is its owner's alone, whatever the umask. A file that is there keeps its mode.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

from ragtrace.errors import ConfigError
from ragtrace.files.durable import sync_folder

_OWNER_ONLY: Final = 0o600
_LINK: Final = "it is a link, which may lead anywhere: name the file that it leads to"
_ALWAYS: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: Path, flags: int = os.O_RDWR) -> int:
    """Open a file, or make it; return its descriptor.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    try:
        return _made(path, flags)
    except FileExistsError:
        pass
    try:
        return os.open(path, flags | _ALWAYS)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, _LINK) from exc
        raise


def make_private(path: Path) -> None:
    """Make a file if it is not there, for what opens files by itself (SQLite).

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    os.close(open_private(path))


def refuse_link(path: Path) -> None:
    """Find out whether a link stands where a file is to be opened, before anything is paid for.

    Raises:
        ConfigError: it does.
    """
    if path.is_symlink():
        raise ConfigError(f"{str(path)!r} cannot be written: {_LINK}")


class PendingFile:
    """A file that is written beside its place, and takes it once it is whole.

    A link in the place is replaced as any file is: what it led to stays as it is.
    """

    def __init__(self, path: Path, *, is_private: bool = True) -> None:
        """Make it.

        Raises:
            OSError: nothing can be written there.
        """
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        self.path = path
        self.beside = path.with_name(f".{path.name}.{token_hex(8)}.partial")
        """Where it is meanwhile."""
        descriptor = _made(self.beside, os.O_RDWR, mode=_mode_of(path, is_private=is_private))
        self.file: BinaryIO = open(descriptor, "wb")  # noqa: SIM115  open as long as it is written

    def commit(self, *, replaces: bool = True) -> None:
        """Put it into its place; with ``replaces`` false, only if there is nothing.

        Raises:
            FileExistsError: there is something.
            OSError: it cannot be written.
        """
        with self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
        if replaces:
            self.beside.replace(self.path)
        else:
            _put(self.beside, self.path)
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Leave what stands in its place."""
        with suppress(OSError):  # what was held back may not fit
            self.file.close()
        self.beside.unlink(missing_ok=True)


def replace_file(path: Path, text: str, *, is_private: bool = True) -> None:
    """Write a whole file, in place of what is there.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        pending = PendingFile(path, is_private=is_private)
        try:
            pending.file.write(text.encode("utf-8", "replace"))
            pending.commit()
        finally:
            pending.abandon()
    except OSError as exc:
        raise ConfigError(f"{str(path)!r} cannot be written: {exc.strerror}") from exc


def check_replaceable(path: Path) -> None:
    """Find out whether a file can be put there, before anything is paid for what is to stand in it.

    Raises:
        ConfigError: it cannot.
    """
    try:
        PendingFile(path).abandon()
    except OSError as exc:
        raise ConfigError(f"{str(path)!r} cannot be written: {exc.strerror}") from exc


def _made(path: Path, flags: int, *, mode: int | None = _OWNER_ONLY) -> int:
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | _ALWAYS, _OWNER_ONLY if mode else 0o666)
    if mode is not None:
        os.fchmod(descriptor, mode)  # the umask may have taken the owner's own rights away
    return descriptor


def _mode_of(path: Path, *, is_private: bool) -> int | None:
    """Return the mode of the file that is to be replaced, else that of a new one; ``None`` is the umask's."""
    with suppress(OSError):
        there = path.lstat()
        if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():  # another's mode says what he likes
            return stat.S_IMODE(there.st_mode)
    return _OWNER_ONLY if is_private else None


def _put(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)  # fails if there is something, and follows no link
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "there is a file already") from None
        beside.rename(path)
    else:
        beside.unlink()
