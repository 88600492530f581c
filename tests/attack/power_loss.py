"""A disk whose power fails: what was not synced is gone, or there in part (`power/synced.c`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
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

    def after_power_loss(self, chance: Random, *, luck: float) -> Mapping[str, bytes]:
        """Return what the folder holds when the power is back, by path. No process may run any more.

        ``luck`` is the share of the blocks that reached the disk though nobody had asked for it: 0 and 1 are
        what a test of durability may get wrong, and all between is what disks do.
        """
        return {
            name: _in_part(synced.read_bytes(), self._now(name, synced), chance, luck)
            for name, synced in sorted(self._synced(self.root.stat().st_ino))
        }

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

    def _now(self, name: str, synced: Path) -> bytes:
        """Return what a file holds for programs; nothing if another has its name since."""
        live = self.root / name
        kept = self.mirror / "files" / str(live.stat().st_ino) if live.is_file() else None
        return live.read_bytes() if kept and kept.exists() and kept.samefile(synced) else b""


def _in_part(synced: bytes, now: bytes, chance: Random, luck: float) -> bytes:
    if not now:
        return synced
    size = len(now) if chance.random() < luck else min(len(synced), len(now))
    found = bytearray(size)
    for start in range(0, size, _BLOCK_BYTES):
        end = min(size, start + _BLOCK_BYTES)
        source = now if chance.random() < luck else synced
        block = source[start:end]
        found[start : start + len(block)] = block
    return bytes(found)
