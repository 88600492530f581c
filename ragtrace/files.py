"""Durable and private files, and the folder of ragtrace's state.

Private files are in folders where other users may write: a link that somebody else put there is never
followed (CWE-59), temporary names cannot be guessed, and new files belong to their owner alone, whatever the
umask. An existing file keeps its mode.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

from ragtrace.errors import ConfigError


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its parents, if missing. On return their names are on disk.

    Raises:
        OSError: one cannot be created.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    lowest = missing[-1].parent if missing else folder
    sync_folder(lowest.parent)  # its creator may have stopped before the sync
    for each in reversed(missing):
        each.mkdir(mode=mode if each == folder else 0o777, exist_ok=True)
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk.

    Raises:
        OSError: the disk fails.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # without read permission it cannot be synced
        return
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # some file systems do not sync folders
            raise
    finally:
        os.close(descriptor)


_OWNER_ONLY: Final = 0o600
_LINK: Final = "it is a link, which may point anywhere: name the file it points to"
_ALWAYS: Final = os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: Path, flags: int = os.O_RDWR) -> int:
    """Open or create a file; return its descriptor.

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
    """Create a file if it is missing, for libraries that open files themselves (SQLite).

    A file that is there is not opened: closing it would release every lock of this process on it (POSIX), and
    another process would take a database in use for a closed one.

    Raises:
        OSError: it cannot be created, or is a link.
    """
    try:
        os.close(_made(path, os.O_RDWR))
    except FileExistsError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, _LINK) from None


def refuse_link(path: Path) -> None:
    """Check that a path is not a link, before the run costs money.

    Raises:
        ConfigError: it is a link.
    """
    if path.is_symlink():
        raise ConfigError(f"{str(path)!r} cannot be written: {_LINK}")


class PendingFile:
    """A file that is written next to its final path and moved there once complete.

    A link at the path is replaced like a file; its target stays unchanged.
    """

    def __init__(self, path: Path, *, is_private: bool = True) -> None:
        """Create the temporary file.

        Raises:
            OSError: it cannot be written there.
        """
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        self.path = path
        self.partial = path.with_name(f".{path.name}.{token_hex(8)}.partial")
        """The temporary path."""
        descriptor = _made(self.partial, os.O_RDWR, mode=_mode_of(path, is_private=is_private))
        self.file: BinaryIO = open(descriptor, "wb")  # noqa: SIM115  open while it is written

    def commit(self) -> None:
        """Move it to its final path.

        Raises:
            OSError: it cannot be written.
        """
        with self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
        self.partial.replace(self.path)
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Discard it, and keep the existing file."""
        with suppress(OSError):  # buffered data may not fit on the disk
            self.file.close()
        self.partial.unlink(missing_ok=True)


def replace_file(path: Path, text: str, *, is_private: bool = True) -> None:
    """Write a whole file and replace an existing one.

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
    """Check that a file can be written, before the run costs money.

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
    """Return the mode of the replaced file, else of a new file; ``None`` leaves it to the umask."""
    with suppress(OSError):
        there = path.lstat()
        if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():  # do not trust another user's mode
            return stat.S_IMODE(there.st_mode)
    return _OWNER_ONLY if is_private else None


STORE_NAME: Final = "ragtrace.db"
_OWN_FOLDER: Final = 0o700


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder: ``RAGTRACE_STATE_DIR``, else systemd's ``STATE_DIRECTORY``, else the user's.

    Raises:
        ConfigError: none of them is set, and the user has no home folder.
    """
    if named := environ.get("RAGTRACE_STATE_DIR"):
        return Path(named).expanduser()
    if of_service := environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(of_service)
    of_user = environ.get("XDG_STATE_HOME", "")
    # the XDG specification says to ignore relative paths
    return (Path(of_user) if Path(of_user).is_absolute() else _home() / ".local" / "state") / "ragtrace"


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the default path of a collector's store.

    Raises:
        ConfigError: there is no state folder.
    """
    return state_folder(environ) / STORE_NAME


def make_state_folder(environ: Mapping[str, str] = os.environ) -> None:
    """Create the folder, for its owner alone.

    Raises:
        ConfigError: it cannot be created.
    """
    folder = state_folder(environ)
    try:
        make_folder(folder, mode=_OWN_FOLDER)
    except OSError as exc:
        raise ConfigError(
            f"the state folder {str(folder)!r} cannot be created ({exc.strerror}): set RAGTRACE_STATE_DIR to"
            " another folder, or set `store.path`"
        ) from exc


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as exc:
        raise ConfigError("this user has no home folder: set RAGTRACE_STATE_DIR or `store.path`") from exc
