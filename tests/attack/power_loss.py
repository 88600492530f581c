"""A disk whose power fails: what was not synced is gone, or there in part."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
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
    """A folder that processes write in, and what of it would outlive the power."""

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
        disk.mirror.mkdir()
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", disk.library, _SOURCE], check=True
        )
        return disk

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process must have in its environment whose writing is watched."""
        return {
            "LD_PRELOAD": str(self.library),
            "POWER_ROOT": str(self.root),
            "POWER_MIRROR": str(self.mirror),
        }

    def after_power_loss(self, chance: Random, *, luck: float) -> Mapping[str, bytes]:
        """Return what the folder holds when the power is back, by name. No process may run any more.

        ``luck`` is the share of the blocks that reached the disk though nobody had asked for it: 0 and 1 are
        what a test of durability may get wrong, and all between is what disks do.
        """
        names = self.mirror / f"names-{self.root.stat().st_ino}"
        found = {}
        for line in names.read_text().splitlines() if names.exists() else ():
            inode, _, name = line.partition(" ")
            kept = self.mirror / f"data-{inode}"
            synced = kept.read_bytes() if kept.exists() else b""
            found[name] = _in_part(synced, self._now(int(inode)), chance, luck)
        return found

    def restore(self, files: Mapping[str, bytes]) -> None:
        """Let the folder hold these files and nothing else."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        for name, content in files.items():
            (self.root / name).write_bytes(content)

    def _now(self, inode: int) -> bytes:
        """Return what a file holds for programs; nothing if it was deleted since."""
        found = (path for path in self.root.iterdir() if path.stat().st_ino == inode)
        return next((path.read_bytes() for path in found), b"")


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
