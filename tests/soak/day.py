"""A day in an hour: ``python -m tests.soak.day`` sends a collector what 50 calls a second are in 24 hours.

4.3 million RAG calls of three spans, 2 kB each, by gRPC and HTTP, of which one in a hundred is judged. What
is kept for a while is kept for a 24th of a usual time. Once a third of the time has passed, memory, disk,
handles, threads and tasks must be flat, and the collector's processor time a call must not grow. It is
divided by the time of a fixed piece of work at the same moment, as machines do not always run at one speed;
its slope is told with a 95 % interval, from blocks of neighboring minutes drawn again and again. In the end
every call must be accounted for, and every judged answer must have its carrier.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from ragtrace.traces.otlp import encode
from ragtrace_collector.ledger import Ledger
from ragtrace_collector.store.ledger import read_ledger
from ragtrace_collector.store.sqlite import SqliteFile
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.acceptance.replies import ANSWER
from tests.benchmarks.measured import Server
from tests.rag_spans import rag_trace, trace_id_of
from tests.soak.judge import moody_judge
from tests.soak.running import KEY, WARM_UP, config_of, measures_of
from tests.soak.sink import FlakySink
from tests.soak.traffic import Wire, open_wire
from tests.soak.watching import Flatness, Sample, Watch, shown

__all__ = ["Day", "Growth", "day", "growth"]

CALLS_A_DAY = 24 * 3600 * 50
_CALLS_A_REQUEST = 10
_AT_ONCE = 32
_RATIO = 0.01
_RETENTION_S = 10 * 60.0
"""Four hours of the day."""
_WINDOWS = 120
_BLOCK = 4
"""Windows that are drawn together: neighbors are alike, by checkpoints and by what else the machine does."""
_DRAWS = 1_000
_MOST_GROWTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a cost grew over the time it was looked at, as a share of its median, with a 95 % interval."""

    median: float
    share: float
    low: float
    high: float

    @property
    def is_constant(self) -> bool:
        """Whether the interval leaves room for no growth beyond what is allowed."""
        return self.low <= _MOST_GROWTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What came of it."""

    calls: int
    seconds: float
    samples: Sequence[Sample]
    measures: Sequence[Flatness]
    cost: Growth
    """Processor time of the collector a call, in thousandths of the fixed piece of work."""
    costs: Sequence[tuple[float, float]]
    """The same by second, from the beginning."""
    ledger: Ledger
    carriers: int
    faults: Sequence[str]


@dataclass(slots=True)
class _Windows:
    """Processor time and calls at moments."""

    points: list[tuple[float, float, int, float]] = field(default_factory=list)
    """Second, processor seconds so far, calls acknowledged so far, seconds of the fixed piece of work."""

    def costs(self) -> Sequence[tuple[float, float]]:
        """Return what a call took between two moments, in thousandths of the fixed piece of work."""
        return [
            ((s + t) / 2, (cpu - before) / (calls - known) / (work + work_before) * 2e3)
            for (s, before, known, work_before), (t, cpu, calls, work) in pairwise(self.points)
            if calls > known
        ]


def growth(points: Sequence[tuple[float, float]], *, seed: int = 1) -> Growth:
    """Measure the trend of (second, cost) by least squares, and its interval by a moving-block bootstrap.

    Residuals are drawn in blocks, as neighbors are alike (Kuensch 1989).
    """
    median = statistics.median(cost for _, cost in points)
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    residuals = [cost - intercept - slope * second for second, cost in points]
    span_s, random = points[-1][0] - points[0][0], Random(seed)

    def drawn() -> float:
        found: list[float] = []
        while len(found) < len(points):
            start = random.randrange(max(1, len(residuals) - _BLOCK + 1))
            found += residuals[start : start + _BLOCK]
        costs = [intercept + slope * second + left for (second, _), left in zip(points, found, strict=False)]
        return statistics.linear_regression([second for second, _ in points], costs).slope

    slopes = sorted(drawn() for _ in range(_DRAWS))
    low, high = slopes[int(0.025 * _DRAWS)], slopes[int(0.975 * _DRAWS)]
    return Growth(
        median=median, share=slope * span_s / median, low=low * span_s / median, high=high * span_s / median
    )


@dataclass(slots=True, kw_only=True)
class _Sender:
    """Sends calls at a steady rate, and counts what was acknowledged."""

    wire: Wire
    random: Random
    template: bytes
    calls: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    async def run(self, *, a_second: float, seconds: float) -> None:
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)
        until_s, due_s = loop.time() + seconds, loop.time()
        async with asyncio.TaskGroup() as tasks:
            while loop.time() < until_s:
                await places.acquire()
                tasks.create_task(self._one(places))
                due_s += _CALLS_A_REQUEST / a_second
                await asyncio.sleep(max(0.0, due_s - loop.time()))

    async def _one(self, places: asyncio.Semaphore) -> None:
        try:
            send: Callable[[bytes], Any] = self.random.choice([self.wire.by_grpc, self.wire.by_http])
            body = self._request()
            while (answer := await send(body)) not in ("OK", "200"):
                self.refused[answer] = self.refused.get(answer, 0) + 1
                await asyncio.sleep(0.5)
            self.calls += _CALLS_A_REQUEST
        finally:
            places.release()

    def _request(self) -> bytes:
        """Return calls that were never sent before, each with texts of its own."""
        request = self.template
        for number in range(_CALLS_A_REQUEST):
            request = request.replace(bytes.fromhex(trace_id_of(number)), secrets.token_bytes(16))
            request = request.replace(_marker(number), secrets.token_hex(8).encode())
        return request


def _marker(number: int) -> bytes:
    return f"marker-{number:09d}".encode()


def _template() -> bytes:
    spans = []
    for number in range(_CALLS_A_REQUEST):
        chunks = [f"{_marker(number).decode()} {ANSWER} {'y' * 500}" for _ in range(5)]
        spans += rag_trace(number, answer=ANSWER, chunks=chunks)
    return encode(spans)


def day(folder: Path, *, seconds: float, a_second: float, seed: int = 1) -> Day:
    """Run it; the collector's files stay in the folder."""
    os.environ[KEY] = "not-a-key"
    sink = FlakySink()
    sink.start()
    try:
        with (
            moody_judge(seed) as judge,
            collector_process(folder, _config(folder, judge, sink, seconds)) as collector,
        ):
            sender, samples, windows = asyncio.run(_load(collector, folder, seconds, a_second, seed))
            code = collector.stop()
    finally:
        sink.stop()
    with SqliteFile(folder / "store.db").reading() as db:
        ledger = read_ledger(db)
    measures = measures_of(samples, seconds)
    costs = windows.costs()
    cost = growth([point for point in costs if point[0] >= seconds * WARM_UP])
    return Day(
        calls=sender.calls,
        seconds=seconds,
        samples=samples,
        measures=measures,
        cost=cost,
        costs=costs,
        ledger=ledger,
        carriers=len(sink.arrived),
        faults=[*_faults(sender, samples, measures, cost, ledger, len(sink.arrived), code)],
    )


def _config(folder: Path, judge: str, sink: FlakySink, seconds: float) -> Mapping[str, Any]:
    base, retention_s = config_of(folder, judge, sink), min(_RETENTION_S, seconds / 6)
    return {
        **base,
        "sample": {"ratio": _RATIO},
        "assemble": {"quiet_period": "2s", "deadline": "10s", "max_open_traces": 4_000},
        "store": {**base["store"], "retention": f"{retention_s:.0f}s", "max_bytes": "1GiB"},
    }


async def _load(
    collector: CollectorProcess, folder: Path, seconds: float, a_second: float, seed: int
) -> tuple[_Sender, list[Sample], _Windows]:
    samples: list[Sample] = []
    windows = _Windows()
    watch = Watch(pid=collector.process.pid, pages_port=collector.pages_port, store=folder / "store.db")
    wired = open_wire(collector.grpc_port, collector.http_port)
    async with wired as wire, asyncio.TaskGroup() as tasks:
        sender = _Sender(wire=wire, random=Random(seed), template=_template())
        beside = [
            tasks.create_task(watch.samples(samples, pause_s=min(10.0, seconds / 60))),
            tasks.create_task(_measure(collector.process.pid, sender, windows, seconds / _WINDOWS)),
        ]
        await sender.run(a_second=a_second, seconds=seconds)
        for task in beside:
            task.cancel()
    return sender, samples, windows


async def _measure(pid: int, sender: _Sender, into: _Windows, pause_s: float) -> None:
    server, began_s = Server(name="collector", pid=pid, protocol="grpc", port=0), time.monotonic()
    while True:
        at = time.monotonic() - began_s, server.cpu_s(), sender.calls
        into.points.append((*at, _fixed_work_s()))
        await asyncio.sleep(pause_s)


def _fixed_work_s() -> float:
    """Return the processor time of always the same work: the least of several, as others disturb it."""
    return min(_one_fixed_work_s() for _ in range(_TRIES))


def _one_fixed_work_s() -> float:
    before_s = time.thread_time()
    for number in range(_PIECES):
        hashlib.sha256(json.dumps({str(key): [number] * 5 for key in range(40)}).encode()).digest()
    return time.thread_time() - before_s


_TRIES, _PIECES = 5, 100


def _faults(
    sender: _Sender,
    samples: Sequence[Sample],
    measures: Sequence[Flatness],
    cost: Growth,
    ledger: Ledger,
    carriers: int,
    code: int,
) -> Sequence[str]:
    judged = ledger.by_name()["judged"]
    faults = [
        f"{each.name} grew by {each.growth:.1f}, more than {each.allowed:.1f}"
        for each in measures
        if not each.is_flat
    ]
    faults += [
        f"{each.unaccounted} unaccounted at second {each.second:.0f}" for each in samples if each.unaccounted
    ]
    if not cost.is_constant:
        faults.append(f"a call takes {cost.share:.1%} more in the end, at least {cost.low:.1%}")
    if not ledger.adds_up:
        faults.append("the ledger does not add up at the end")
    if abs(ledger.seen - _RATIO * sender.calls) > 6 * (_RATIO * sender.calls) ** 0.5:
        faults.append(f"{ledger.seen} answers were seen, of {sender.calls} calls at {_RATIO:.0%}")
    if carriers < judged:
        faults.append(f"{judged} answers were judged, and {carriers} carriers came")
    if code != 0:
        faults.append(f"the collector ended with exit code {code}")
    return faults


def main() -> int:
    """Run a day and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.day", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, help="calls a second; by default a day's in the time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the store and the log")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    with nullcontext(str(options.keep)) if options.keep else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        rate = options.rate or CALLS_A_DAY / seconds
        found = day(Path(folder), seconds=seconds, a_second=rate, seed=options.seed)
    _print(found)
    return 1 if found.faults else 0


def _print(found: Day) -> None:
    print(shown(found.samples, found.measures))
    cost, sixth = found.cost, max(1, len(found.costs) // 6)
    sixths = [found.costs[at : at + sixth] for at in range(0, len(found.costs), sixth)]
    medians = ", ".join(f"{statistics.median(each for _, each in part):.1f}" for part in sixths)
    print(
        f"\nprocessor time a call, in thousandths of a fixed piece of work: {cost.median:.1f}; from the first"
        f" third to the end {cost.share:+.1%} [{cost.low:+.1%}, {cost.high:+.1%}]; by sixths {medians}"
    )
    print(f"{found.calls:,} calls in {found.seconds:.0f} s ({found.calls / found.seconds:,.0f} a second)")
    names = ", ".join(f"{name} {number}" for name, number in sorted(found.ledger.by_name().items()))
    print(f"ledger: seen {found.ledger.seen}; {names}; carriers {found.carriers}")
    print("\n" + "\n".join(found.faults or ["flat, constant, and all accounted for"]))


if __name__ == "__main__":
    sys.exit(main())
