"""What one request costs the process that it is sent to, and what it may: by its size, unpacked."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fuzz.bodies import Body

MOST_BYTES: Final = 4 << 20
"""``receive.max_message_bytes`` of the collector under fire."""
_CPU_S: Final = 0.5
_CPU_S_A_MIB: Final = 2.0
"""For one MiB that is read. Measured: 1.2 s at worst, for JSON of empty parts, which is read in a thread."""
_MEMORY_BYTES: Final = 32 << 20
_MEMORY_A_BYTE: Final = 64
"""For each byte that is read. Measured: 51 at worst, for the same."""
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_LAYERS: Final = 3
_TIMES: Final = 3


@dataclass(slots=True, kw_only=True)
class Meter:
    """Measures a process by the kernel's account of it: what else the machine does does not count."""

    pid: int
    worst_cpu_share: float = 0.0
    """Of what a request may take, so far."""
    worst_memory_share: float = 0.0
    peak_bytes: int = 0
    """The most memory that the process had resident."""
    _proc: Path = field(init=False)

    def __post_init__(self) -> None:
        self._proc = Path(f"/proc/{self.pid}")

    def check(self, act: Callable[[], None], size: int) -> None:
        """Assert that an act costs no more than a request of so many bytes, unpacked, may.

        Neighbors on a core can double the CPU time of the same work, and never halve it: what seems to cost
        too much is done again, and the least of a few times is what it costs.
        """
        read = min(size, MOST_BYTES)
        most_cpu_s = _CPU_S + _CPU_S_A_MIB * read / 2**20
        least_cpu_s = math.inf
        for _ in range(_TIMES):
            least_cpu_s = min(least_cpu_s, self._cost_in_memory_bounds(act, read))
            if least_cpu_s <= most_cpu_s:
                break
        self.worst_cpu_share = max(self.worst_cpu_share, _checked("CPU s", least_cpu_s, most_cpu_s))

    def _cost_in_memory_bounds(self, act: Callable[[], None], read: int) -> float:
        (self._proc / "clear_refs").write_text("5")  # the peak begins anew
        cpu_s, memory = self._cpu_s(), self._memory("VmRSS")
        act()
        cpu_s = self._cpu_s() - cpu_s
        peak = self._memory("VmHWM")
        self.peak_bytes = max(self.peak_bytes, peak)
        self.worst_memory_share = max(
            self.worst_memory_share, _checked("bytes", peak - memory, _MEMORY_BYTES + _MEMORY_A_BYTE * read)
        )
        return cpu_s

    def _cpu_s(self) -> float:
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def _memory(self, name: str) -> int:
        status = (self._proc / "status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


def _checked(what: str, taken: float, most: float) -> float:
    assert taken <= most, f"a request took {taken:,.2f} {what}, and may take {most:,.2f}"
    return taken / most


def unpacked_bytes(body: Body) -> int:
    """Return the size of a body when all its layers of gzip are off, or more than is ever read."""
    content, size = body.content, len(body.content)
    for _ in range(_LAYERS):
        if not content.startswith(b"\x1f\x8b"):
            break
        content = _unpacked(content)
        size = max(size, len(content))
    return size


def _unpacked(content: bytes) -> bytes:
    """Take one layer off, as far as it is whole: every member of it."""
    found = bytearray()
    try:
        while content.startswith(b"\x1f\x8b") and len(found) <= MOST_BYTES:
            member = zlib.decompressobj(wbits=31)
            found += member.decompress(content, MOST_BYTES + 1)
            content = member.unused_data
    except zlib.error:
        pass
    return bytes(found)
