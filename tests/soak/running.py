"""One soak: a real collector process under mixed load, watched, stopped and audited."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ragtrace_collector.ledger import Ledger
from ragtrace_collector.store.ledger import read_ledger
from ragtrace_collector.store.sqlite import SqliteFile
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.soak.fates import Fates, differences
from tests.soak.judge import moody_judge
from tests.soak.sink import FlakySink
from tests.soak.traffic import LINGER_S, Traffic
from tests.soak.watching import Flatness, Sample, Watch, flatness

KEY = "RAGTRACE_SOAK_KEY"
WARM_UP = 1 / 3
_EXPECTED_EVENTS = frozenset(
    {
        "listening",
        "judging",
        "answer_unscored",
        "judge_failed",
        "judge_stopped",
        "judge_back",
        "sink_away",
        "stopping",
        "stopped",
    }
)
_MOST_LOST = 0.01
"""An idle connection may be closed just when it is used again; a sender then tries again."""
_LONG_S = 300.0
"""From here on the store has been emptied often enough to say that it is flat."""


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


def soak(folder: Path, *, seconds: float, a_second: float, seed: int = 1, loses: float = 0.0) -> Report:
    """Run it; the collector's files stay in the folder. ``loses`` is for tests of the soak itself: the share
    of carriers that the back end acknowledges and throws away."""
    os.environ[KEY] = "not-a-key"
    sink = FlakySink(loses=loses)
    fates = Fates(store=SqliteFile(folder / "store.db"))
    sink.start()
    try:
        with (
            moody_judge(seed) as judge,
            collector_process(folder, config_of(folder, judge, sink)) as collector,
        ):
            watch = Watch(
                pid=collector.process.pid, pages_port=collector.pages_port, store=folder / "store.db"
            )
            traffic, samples = asyncio.run(_load(collector, watch, fates, sink, seconds, a_second, seed))
            code = collector.stop()
        fates.look()
    finally:
        sink.stop()
    with SqliteFile(folder / "store.db").reading() as db:
        ledger = read_ledger(db)
    measures = tuple(measures_of(samples, seconds)) if samples else ()
    return Report(
        samples=samples,
        measures=measures,
        sent=traffic.sent,
        ledger=ledger,
        carriers=len(sink.arrived),
        faults=(
            *_faults(traffic, samples, measures, ledger, code, collector.log.read_text()),
            *differences(traffic.answers, fates, sink.arrived),
        ),
    )


def config_of(folder: Path, judge: str, sink: FlakySink) -> Mapping[str, Any]:
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
    watch: Watch,
    fates: Fates,
    sink: FlakySink,
    seconds: float,
    a_second: float,
    seed: int,
) -> tuple[Traffic, list[Sample]]:
    samples: list[Sample] = []
    traffic = Traffic(ports=[(collector.grpc_port, collector.http_port)], random=Random(seed))
    async with asyncio.TaskGroup() as tasks:
        beside = [
            tasks.create_task(sink.come_and_go()),
            tasks.create_task(fates.watch()),
            tasks.create_task(watch.samples(samples, pause_s=min(10.0, seconds / 60))),
        ]
        await traffic.run(a_second=a_second, seconds=seconds)
        for task in beside:
            task.cancel()
    return traffic, samples


def measures_of(samples: Sequence[Sample], seconds: float) -> Sequence[Flatness]:
    """Return how much each measure grew since the warm-up, and how much it may."""
    steady = [sample for sample in samples if sample.second >= seconds * WARM_UP]

    def measure(name: str, *, share: float, floor: float) -> Flatness:
        points = [(sample.second, float(getattr(sample, name))) for sample in steady]
        return flatness(name, points, share=share, floor=floor)

    long = seconds >= _LONG_S
    found = [
        measure("rss_mb", share=0.05 if long else 0.3, floor=8 if long else 40),
        measure("handles", share=0.1, floor=8),
        measure("threads", share=0.1, floor=4),
        measure("tasks", share=0.2, floor=16),
    ]
    return [*found, measure("store_mb", share=0.15, floor=4)] if long else found


def _faults(
    traffic: Traffic,
    samples: Sequence[Sample],
    measures: Sequence[Flatness],
    ledger: Ledger,
    code: int,
    log: str,
) -> Sequence[str]:
    faults = [f"{number} times the collector answered {what}" for what, number in traffic.unexpected.items()]
    faults += [
        f"{each.name} grew by {each.growth:.1f}, more than {each.allowed:.1f}"
        for each in measures
        if not each.is_flat
    ]
    faults += [
        f"{each.unaccounted} unaccounted at second {each.second:.0f}" for each in samples if each.unaccounted
    ]
    if traffic.sent["connections lost"] > _MOST_LOST * sum(traffic.sent.values()):
        faults.append(f"{traffic.sent['connections lost']} connections were lost")
    if not ledger.adds_up:
        faults.append("the ledger does not add up at the end")
    if not 0 <= ledger.seen - traffic.sent["answers"] <= traffic.sent["answers torn apart"]:
        faults.append(f"{traffic.sent['answers']} answers were sent, and {ledger.seen} are accounted for")
    if code != 0:
        faults.append(f"the collector ended with exit code {code}")
    events = [
        json.loads(line).get("event_name") if line.startswith("{") else line for line in log.splitlines()
    ]
    faults += sorted({f"the log says {name}" for name in events if name not in _EXPECTED_EVENTS})
    return faults
