"""Names that outlive a power cut: that of a new file or folder does not by the file's own sync."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, unless they are there. On return their names are on disk.

    Raises:
        OSError: one cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    lowest = missing[-1].parent if missing else folder
    sync_folder(lowest.parent)  # who made it may have ended before this
    for each in reversed(missing):
        each.mkdir(mode=mode if each == folder else 0o777, exist_ok=True)
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk.

    Raises:
        OSError: the disk fails.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # whoever may not read it cannot sync it either
        return
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # some kinds of disks have nothing to sync of folders
            raise
    finally:
        os.close(descriptor)
