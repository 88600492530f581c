"""Sync directory entries: syncing a new file alone does not make its name durable."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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
