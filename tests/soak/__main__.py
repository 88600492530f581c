"""Soak the collector: ``python -m tests.soak --minutes 10``. Ten minutes at night, an hour by hand.

Good RAG traces in every recorded convention, in parts and in any order, late and twice; other traces;
malformed requests; feedback; a judge that is slow, over its limits and down by turns; a back end that goes
away. Memory, disk, file handles, threads and tasks must be flat after a third of the time, and the ledger
must add up at every look and in the end. Each answer that was sent is looked up: what became of it, and
whether its own carrier came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from ragtrace_collector.ledger import Ledger
from ragtrace_collector.store.ledger import read_ledger
from ragtrace_collector.store.sqlite import SqliteFile
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.soak.fates import Fates, FlakySink, differences
from tests.soak.judge import KEY, moody_judge
from tests.soak.traffic import LINGER_S, Traffic

_WARM_UP = 1 / 3
_EXPECTED_EVENTS = {
    *("listening", "judging", "answer_unscored", "judge_failed", "judge_stopped", "judge_back"),
    *("sink_away", "stopping", "stopped"),
}
_MOST_LOST = 0.01
"""An idle connection may be closed just when it is used again; a sender then tries again."""
_LONG_S = 300.0
"""From here on the store has been emptied often enough to say that it is flat."""
_COLUMNS = ("second", "rss_mb", "store_mb", "handles", "threads", "tasks", "seen", "pending", "unaccounted")

Sample = Mapping[str, float]
"""The collector at one moment, by column. None is ever unaccounted for: neither an answer nor a span."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a soak."""

    samples: Sequence[Sample]
    measures: Sequence[Flatness]
    sent: Counter[str]
    ledger: Ledger
    """When the process had ended."""
    carriers: int
    faults: Sequence[str]
    """Everything that should not be so, in words."""


def soak(folder: Path, *, seconds: float, a_second: float, seed: int) -> Report:
    """Run it; the collector's files stay in the folder."""
    os.environ[KEY] = "not-a-key"
    sink, store = FlakySink(), SqliteFile(folder / "store.db")
    fates = Fates(store=store)
    sink.start()
    try:
        with moody_judge(seed) as judge, collector_process(folder, _config(folder, judge, sink)) as collector:
            traffic = Traffic(ports=[(collector.grpc_port, collector.http_port)], random=Random(seed))
            samples = asyncio.run(_load(collector, traffic, fates, sink, seconds, a_second))
            code = collector.stop()
        fates.look()
    finally:
        sink.stop()
    with store.reading() as db:
        ledger = read_ledger(db)
    measures = _measures(samples, seconds) if samples else ()
    faults = (
        *_faults(traffic, samples, measures, ledger, code, collector.log.read_text()),
        *differences(traffic.answers, fates, sink.arrived),
    )
    return Report(
        samples=samples,
        measures=measures,
        sent=traffic.sent,
        ledger=ledger,
        carriers=len(sink.arrived),
        faults=faults,
    )


def _config(folder: Path, judge: str, sink: FlakySink) -> Mapping[str, Any]:
    """Return a configuration in which everything that is kept for a while is kept for seconds."""
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {
            "quiet_period": "500ms",
            "deadline": "3s",
            "linger": f"{LINGER_S:.0f}s",
            "max_open_traces": 2_000,
        },
        "judge": {"use": "openai:rule", "base_url": judge, "api_key_env": KEY, "timeout": "1s"},
        "evaluate": {"retry_delays": ["1s", "3s", "10s"]},
        "export": [{"endpoint": sink.endpoint}],
        "store": {"path": str(folder / "store.db"), "retention": "60s", "max_bytes": "256MiB"},
        "telemetry": {"listen": "127.0.0.1:0"},
        "drain_timeout": "25s",
        "log_format": "json",
    }


async def _load(
    collector: CollectorProcess,
    traffic: Traffic,
    fates: Fates,
    sink: FlakySink,
    seconds: float,
    a_second: float,
) -> list[Sample]:
    samples: list[Sample] = []
    async with asyncio.TaskGroup() as tasks:
        beside = [
            tasks.create_task(sink.come_and_go()),
            tasks.create_task(fates.watch()),
            tasks.create_task(_watch(collector, samples, pause_s=min(10.0, seconds / 60))),
        ]
        await traffic.run(a_second=a_second, seconds=seconds)
        for task in beside:
            task.cancel()
    return samples


async def _watch(collector: CollectorProcess, into: list[Sample], *, pause_s: float) -> None:
    """Take a sample after each pause, until cancelled."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    url = f"http://127.0.0.1:{collector.pages_port}"
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        while True:
            await asyncio.sleep(pause_s)
            page = (await client.get("/metrics")).raise_for_status().text
            into.append({"second": loop.time() - began_s, **_sample(collector, _sums(page))})


def _sample(collector: CollectorProcess, numbers: Mapping[str, float]) -> Sample:
    proc = Path(f"/proc/{collector.process.pid}")
    status = (proc / "status").read_text().split()
    spans = {name: number for name, number in numbers.items() if name.startswith("ragtrace_collector_spans_")}
    received = spans.pop("ragtrace_collector_spans_received_total")
    unaccounted = abs(numbers["ragtrace_answers_seen"] - numbers["ragtrace_answers"])
    return {
        "rss_mb": int(status[status.index("VmRSS:") + 1]) / 1024,
        "store_mb": sum(file.stat().st_size for file in collector.log.parent.glob("store.db*")) / 2**20,
        "handles": len(list((proc / "fd").iterdir())),
        "threads": int(status[status.index("Threads:") + 1]),
        "tasks": numbers["ragtrace_collector_tasks"],
        "seen": numbers["ragtrace_answers_seen"],
        "pending": sum(numbers[f"ragtrace_answers {state}"] for state in ("queued", "leased", "postponed")),
        "unaccounted": unaccounted + abs(received - sum(spans.values())),
    }


def _sums(page: str) -> Mapping[str, float]:
    """Return each metric's sum, and that of each state of the answers."""
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            sums[sample.name] += sample.value  # type: ignore[assignment]
            if sample.name == "ragtrace_answers":
                sums[f"{sample.name} {sample.labels['state']}"] += sample.value  # type: ignore[assignment]
    return sums


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


def _measures(samples: Sequence[Sample], seconds: float) -> Sequence[Flatness]:
    """Return how much each measure grew since the warm-up, and how much it may."""
    long = seconds >= _LONG_S
    bounds = {
        "rss_mb": (0.05, 8) if long else (0.3, 40),
        "handles": (0.1, 8),
        "threads": (0.1, 4),
        "tasks": (0.2, 16),
        **({"store_mb": (0.15, 4)} if long else {}),
    }
    steady = [sample for sample in samples if sample["second"] >= seconds * _WARM_UP]
    return [
        flatness(name, [(each["second"], each[name]) for each in steady], share=share, floor=floor)
        for name, (share, floor) in bounds.items()
    ]


def _faults(
    traffic: Traffic,
    samples: Sequence[Sample],
    measures: Sequence[Flatness],
    ledger: Ledger,
    code: int,
    log: str,
) -> Iterator[str]:
    for answer, number in traffic.unexpected.items():
        yield f"{number} times the collector answered {answer}"
    for each in measures:
        if not each.is_flat:
            yield f"{each.name} grew by {each.growth:.1f}, more than {each.allowed:.1f}"
    for sample in samples:
        if sample["unaccounted"]:
            yield f"{sample['unaccounted']:.0f} unaccounted at second {sample['second']:.0f}"
    if traffic.sent["connections lost"] > _MOST_LOST * sum(traffic.sent.values()):
        yield f"{traffic.sent['connections lost']} connections were lost"
    if not ledger.adds_up:
        yield "the ledger does not add up at the end"
    yield from traffic.differs_from(ledger)
    if code != 0:
        yield f"the collector ended with exit code {code}"
    events = {
        json.loads(line).get("event_name") if line.startswith("{") else line for line in log.splitlines()
    }
    yield from sorted(f"the log says {name}" for name in events - _EXPECTED_EVENTS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=15.0, help="requests or traces a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the store and the log")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = soak(folder, seconds=60 * options.minutes, a_second=options.rate, seed=options.seed)
    _print(report)
    return 1 if report.faults else 0


def _print(report: Report) -> None:
    print(*(f"{name:>11}" for name in _COLUMNS))
    for sample in report.samples[:: max(1, len(report.samples) // 20)]:
        print(*(f"{sample[name]:11.1f}" for name in _COLUMNS))
    print(f"\n{'measure':10} {'median':>10} {'growth':>9} {'allowed':>9}")
    for each in report.measures:
        print(f"{each.name:10} {each.median:10.1f} {each.growth:9.1f} {each.allowed:9.1f}")
    ledger = report.ledger
    print("\nsent:", ", ".join(f"{kind} {number}" for kind, number in sorted(report.sent.items())))
    print("ledger:", ", ".join(f"{name} {number}" for name, number in sorted(ledger.by_name().items())))
    print(f"seen {ledger.seen}, superseded {ledger.superseded}, carriers {report.carriers}\n")
    print("\n".join(report.faults or ["flat, and every answer and carrier is accounted for, one by one"]))


if __name__ == "__main__":
    sys.exit(main())
