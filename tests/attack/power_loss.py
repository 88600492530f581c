"""A disk whose power fails: what was not synced is gone, or there in part (`power/synced.c`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Disk"]

_SOURCE: Final = Path(__file__).parent / "power" / "synced.c"
_BLOCK_BYTES: Final = 512
"""What a disk writes whole, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A folder that processes write in, with folders in it, and what of it would outlive the power."""

    root: Path
    mirror: Path
    library: Path

    @classmethod
    def mounted(cls, folder: Path) -> Disk:
        """Make one in a folder.

        Raises:
            FileNotFoundError: there is no C compiler.
            CalledProcessError: it does not compile.
        """
        disk = cls(root=folder / "disk", mirror=folder / "mirror", library=folder / "synced.so")
        disk.root.mkdir()
        for kind in ("files", "folders"):
            (disk.mirror / kind).mkdir(parents=True)
        compiler, options = (
            os.environ.get("CC", "cc"),
            ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"],
        )
        command = [compiler, *options, "-o", disk.library, _SOURCE, "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        return disk

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process must have in its environment whose writing is watched."""
        return {
            "LD_PRELOAD": str(self.library),
            "POWER_ROOT": str(self.root),
            "POWER_MIRROR": str(self.mirror),
        }

    def failing_at(self, sync: int) -> Mapping[str, str]:
        """Return the environment of a process that dies before its sync of this number."""
        return {**self.environment, "POWER_FAILS_AT": str(sync)}

    def after_power_loss(self) -> Mapping[str, bytes]:
        """Return what was synced of the folder, by path. No process may run any more."""
        synced = sorted(self._synced(self.root.stat().st_ino))
        return {name: content.read_bytes() for name, content in synced}

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Let the folder hold these files and nothing else."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _synced(self, folder: int) -> Iterator[tuple[str, Path]]:
        """Yield the files under the names that were synced, and what was synced of each."""
        names = self.mirror / "folders" / str(folder)
        for entry in names.iterdir() if names.exists() else ():
            if not entry.is_symlink():
                yield entry.name, entry
                continue
            for name, synced in self._synced(int(os.readlink(entry))):
                yield f"{entry.name}/{name}", synced
