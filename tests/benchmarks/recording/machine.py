"""Which kind of machine measures, what runs on it, and how busy others keep it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pydantic import ConfigDict

__all__ = ["Machine", "Onlooker", "this_commit", "this_machine", "versions_of"]

ROOT: Final = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of machine: nothing in it names one."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    cpu: str
    cores: int
    system: str


def this_machine() -> Machine:
    """Return the kind of this machine."""
    return Machine(cpu=_cpu_model(), cores=os.cpu_count() or 1, system=platform.system())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def this_commit() -> str:
    """Return the commit of this checkout, with ``+`` if the measured code has changed since."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], check=True, stdout=subprocess.PIPE)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "ragtrace", "collector"], check=True, stdout=subprocess.PIPE
    )
    return commit.stdout.decode().strip() + ("+" if changed.stdout.strip() else "")


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of installed packages."""
    return {package: version(package) for package in packages}


class Onlooker:
    """Watches what others take of the machine while a benchmark runs (Linux)."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._wall_s = _machine_cpu_s(), _own_cpu_s(), time.perf_counter()

    def others(self) -> float:
        """Return the share of the machine's processor time that others took since: 0 to 1.

        A process that this one started counts as its own once it has ended and was waited for.
        """
        busy_s, own_s = _machine_cpu_s() - self._busy_s, _own_cpu_s() - self._own_s
        all_s = (time.perf_counter() - self._wall_s) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy_s - own_s) / all_s)) if all_s else 0.0


def _machine_cpu_s() -> float:
    first, _, _ = Path("/proc/stat").read_text("ascii").partition("\n")
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
