"""What is measured of the collector while it works, and when that counts as flat."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

_SPANS = "ragtrace_collector_spans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The collector at one moment."""

    second: float
    rss_mb: float
    store_mb: float
    handles: int
    threads: int
    tasks: int
    seen: int
    pending: int
    unaccounted: int
    """Answers seen that stand nowhere, and spans received that nothing became of: none, ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Takes samples of a process by its pages and by the kernel's account of it."""

    pid: int
    pages_port: int
    store: Path

    async def samples(self, into: list[Sample], *, pause_s: float) -> None:
        """Take a sample after each pause, until cancelled."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.pages_port}", timeout=30) as client:
            while True:
                await asyncio.sleep(pause_s)
                page = (await client.get("/metrics")).raise_for_status().text
                into.append(self._sample(page, second=loop.time() - began_s))

    def _sample(self, page: str, *, second: float) -> Sample:
        numbers = _sums(page)
        status = Path(f"/proc/{self.pid}/status").read_text().split()
        received = numbers[f"{_SPANS}_received_total"]
        became = sum(number for name, number in numbers.items() if name.startswith(f"{_SPANS}_")) - received
        return Sample(
            second=second,
            rss_mb=int(status[status.index("VmRSS:") + 1]) / 1024,
            store_mb=sum(file.stat().st_size for file in self.store.parent.glob(f"{self.store.name}*"))
            / 2**20,
            handles=len(list(Path(f"/proc/{self.pid}/fd").iterdir())),
            threads=int(status[status.index("Threads:") + 1]),
            tasks=int(numbers["ragtrace_collector_tasks"]),
            seen=int(numbers["ragtrace_answers_seen"]),
            pending=int(
                sum(numbers[f"ragtrace_answers {state}"] for state in ("queued", "leased", "postponed"))
            ),
            unaccounted=abs(int(numbers["ragtrace_answers_seen"] - numbers["ragtrace_answers"]))
            + abs(int(received - became)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatness:
    """How much a measure grew over the time it was looked at, by its trend, and how much it may."""

    name: str
    median: float
    growth: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.allowed


def flatness(name: str, points: Sequence[tuple[float, float]], *, share: float, floor: float) -> Flatness:
    """Measure the trend of (second, value) by Theil and Sen: the median of the slopes between all pairs.

    What goes up and down does not disturb it, nor does a single peak. It may grow by ``share`` of its median,
    or by ``floor`` where that is more.
    """
    thinned = points[:: max(1, len(points) // 200)]
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in combinations(thinned, 2)]
    median = statistics.median(value for _, value in points)
    growth = statistics.median(slopes) * (points[-1][0] - points[0][0])
    return Flatness(name=name, median=median, growth=growth, allowed=max(floor, share * median))


def shown(samples: Sequence[Sample], measures: Sequence[Flatness]) -> str:
    """Return two tables for a terminal: some of the samples, and how much each measure grew."""
    rows = [
        f"{each.second:6.0f} {each.rss_mb:8.1f} {each.store_mb:9.1f} {each.handles:8} {each.threads:8}"
        f" {each.tasks:6} {each.seen:8} {each.pending:8}"
        for each in samples[:: max(1, len(samples) // 20)]
    ]
    grown = [
        f"{each.name:10} {each.median:10.1f} {each.growth:9.1f} {each.allowed:9.1f}" for each in measures
    ]
    lines = ["second   rss MB  store MB  handles  threads  tasks     seen  pending", *rows, ""]
    lines += ["measure        median    growth   allowed", *grown]
    return "\n".join(lines)


def _sums(page: str) -> Mapping[str, float]:
    """Return each metric's sum, and that of each state of the answers."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
            if sample.name == "ragtrace_answers":
                key = f"{sample.name} {sample.labels['state']}"
                sums[key] = sums.get(key, 0.0) + sample.value
    return sums
