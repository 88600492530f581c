"""Soak the collector: ``python -m tests.soak --minutes 10``. Ten minutes at night, an hour by hand.

Good RAG traces in every recorded convention, in parts and in any order, late and twice; other traces;
feedback; a judge that is slow, over its limits and down by turns; a back end that goes
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
Sample = Mapping[str, float]
"""The collector at one moment, by column. None is ever unaccounted for: neither an answer nor a span."""


def soak(folder: Path, *, seconds: float, a_second: float, seed: int) -> Iterator[str]:
    """Run it, print what it measured, and yield what should not be so; the collector's files stay there."""
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
    print("sent:", ", ".join(f"{kind} {number}" for kind, number in sorted(traffic.sent.items())))
    print("ledger:", ", ".join(f"{name} {number}" for name, number in sorted(ledger.by_name().items())))
    print(f"seen {ledger.seen}, superseded {ledger.superseded}, carriers {len(sink.arrived)}")
    yield from _growth(samples, seconds)
    yield from _faults(traffic, samples, ledger, code, collector.log.read_text())
    yield from differences(traffic.answers, fates, sink.arrived)


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


def _growth(samples: Sequence[Sample], seconds: float) -> Iterator[str]:
    """Print how much each measure grew since the warm-up, and yield those that grew by more than they may.

    The trend is that of Theil and Sen: the median of the slopes between all pairs. What goes up and down does
    not disturb it, nor does a single peak. It may grow by a share of its median, or by a floor.
    """
    long = seconds >= _LONG_S
    bounds = {
        "rss_mb": (0.05, 8) if long else (0.3, 40),
        "handles": (0.1, 8),
        "threads": (0.1, 4),
        "tasks": (0.2, 16),
        **({"store_mb": (0.15, 4)} if long else {}),
    }
    steady = [sample for sample in samples if sample["second"] >= seconds * _WARM_UP]
    pairs = [*combinations(steady[:: max(1, len(steady) // 200)], 2)]
    for name, (share, floor) in bounds.items():
        slope = statistics.median((b[name] - a[name]) / (b["second"] - a["second"]) for a, b in pairs)
        growth = slope * (steady[-1]["second"] - steady[0]["second"])
        allowed = max(floor, share * statistics.median(sample[name] for sample in steady))
        print(f"{name:10} grew by {growth:9.1f} of {allowed:9.1f}")
        if growth > allowed:
            yield f"{name} grew by {growth:.1f}, more than {allowed:.1f}"


def _faults(
    traffic: Traffic, samples: Sequence[Sample], ledger: Ledger, code: int, log: str
) -> Iterator[str]:
    for answer, number in traffic.unexpected.items():
        yield f"{number} times the collector answered {answer}"
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
        given = {"seconds": 60 * options.minutes, "a_second": options.rate, "seed": options.seed}
        faults = [*soak(folder, **given)]
    print("\n".join(faults or ["flat, and every answer and carrier is accounted for, one by one"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
