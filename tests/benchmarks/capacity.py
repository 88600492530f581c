"""Measure what the capacity model of `ragtrace plan` is made of, and write its coefficients.

    python -m tests.benchmarks.capacity [--rounds 3] [--write]

Each coefficient is measured in every round; the file keeps the median, the lowest and the highest. What
depends on two things is a line through two measurements: spans of two sizes, evaluations of few and of many
requests. ``--write`` replaces what was measured in `ragtrace_collector/capacity/coefficients.toml`. What is
only assumed there stays as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from ragtrace_collector.capacity.coefficients import FILE
from tests.backends.process import eventually
from tests.benchmarks.cluster_members import running_brokers, running_member, sections_of
from tests.benchmarks.ingest.load import Load
from tests.benchmarks.ingest.servers import ragtrace, ragtrace_modes
from tests.benchmarks.measured import Server
from tests.benchmarks.pipeline import (
    WARM_UP,
    Scores,
    at_limit,
    collector,
    configure,
    new_answers,
    running_stub,
    send_all,
)
from tests.benchmarks.ratios.traffic import bytes_in
from tests.benchmarks.recording.machine import Onlooker, this_commit, this_machine, versions_of

SPANS_A_TRACE: Final = 10
AT_ONCE: Final = 8
"""Requests with spans."""
EVALUATIONS: Final = 64
"""At once."""
SIZES: Final = (1, 4)
REQUESTS: Final = 40
ANSWERS: Final = 300
KEPT: Final = {"kept": "ragtrace, 100 % kept", "sampled_out": "ragtrace, 0 % kept"}
BATCHES: Final = (20, 1)
"""Claims in a request: few requests an evaluation, or many."""
WORKERS: Final = (8, 256)
LATENCY_S: Final = 1.0
SOON: Final = {"linger": "1s", "quiet_period": "1s"}

Found = dict[str, list[float]]


class Point(NamedTuple):
    """A measurement at a place on the axis."""

    x: float
    y: float


def main() -> None:
    """Measure, print and, if asked to, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="keep it in the package's file")
    options = parser.parse_args()
    onlooker, found = Onlooker(), measure(options.rounds)
    for name, values in found.items():
        print(f"{name} = {_in_toml(values)}", flush=True)
    if options.write:
        FILE.write_text(rewritten(FILE.read_text(), found, measured_on(onlooker.others())))


def measure(rounds: int) -> Found:
    """Return every measured coefficient, once for each round."""
    found: Found = defaultdict(list)
    with ExitStack() as stack:
        stub = stack.enter_context(running_stub())
        scores = stack.enter_context(Scores.receiving())
        for _ in range(rounds):
            for name, value in _one_round(stub, scores):
                found[name].append(value)
    return found


def _one_round(stub: str, scores: Scores) -> Iterator[tuple[str, float]]:
    spans = dict(_of_spans())
    yield from spans.items()
    yield from _of_evaluations(stub, scores, spans)
    yield from _of_workers(stub, scores)
    yield from _of_rows(stub, scores)
    yield from _of_kafka(stub, scores)


def _of_spans() -> Iterator[tuple[str, float]]:
    """CPU of a span, kept or sampled out: a part for each kilobyte, and the rest."""
    for what, name in KEPT.items():
        protocols, changes = ragtrace_modes("")[name]
        with ragtrace(name, protocols, changes) as servers:
            server = next(each for each in servers if each.protocol == "grpc")
            slope, constant = _line(*_points(server))
        yield f"{what}_span_us", constant
        yield f"{what}_kilobyte_us", slope


def _points(server: Server) -> Sequence[Point]:
    """Return the CPU of a span of few kilobytes, and of one of more."""
    loads = [Load(spans_a_trace=SPANS_A_TRACE, at_once=AT_ONCE, size=size) for size in SIZES]
    _drive(server, loads[0], REQUESTS // 4)
    return [Point(load.bytes_a_span / 1e3, _drive(server, load, REQUESTS)) for load in loads]


def _drive(server: Server, load: Load, requests: int) -> float:
    return asyncio.run(load.drive(server, load.requests(requests))).cpu_us


def _of_evaluations(stub: str, scores: Scores, spans: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """CPU of an evaluation without its spans: a part for each request, and the rest."""
    points = []
    for batch_size in BATCHES:
        changes = {"judge": {"batch_size": batch_size}}
        configure(stub, latency_s=0.0)
        with collector(stub, scores, "append", EVALUATIONS, changes=changes) as server:
            asyncio.run(send_all(server, new_answers(WARM_UP), scores))
            configure(stub, latency_s=0.0, keep=True)
            before, requests = server.at_rest().cpu_s, new_answers(ANSWERS)
            asyncio.run(send_all(server, requests, scores))
            cpu_ms = (server.at_rest().cpu_s - before) / ANSWERS * 1e3
            calls = len(configure(stub, latency_s=0.0)) / ANSWERS
        number, kilobytes = 3, statistics.mean(map(len, requests)) / 1e3
        received_us = number * spans["kept_span_us"] + kilobytes * spans["kept_kilobyte_us"]
        points.append(Point(calls, cpu_ms - received_us / 1e3))
    slope, constant = _line(*points)
    yield "evaluation_ms", constant
    yield "judge_call_ms", slope


def _of_workers(stub: str, scores: Scores) -> Iterator[tuple[str, float]]:
    """Memory of a collector at work, and of each further evaluation at once."""
    points = []
    for workers in WORKERS:
        configure(stub, latency_s=LATENCY_S)
        with collector(stub, scores, "append", workers) as server:
            asyncio.run(send_all(server, new_answers(2 * WORKERS[-1]), scores))
            points.append(Point(workers, server.rss_mb()))
    slope, constant = _line(*points)
    yield "process_megabytes", constant
    yield "evaluation_megabytes", max(0.0, slope)


def _of_rows(stub: str, scores: Scores) -> Iterator[tuple[str, float]]:
    """Disk of a judged answer: its spans while they are kept, and its outcome."""
    configure(stub, latency_s=0.0)
    stored = _stored(stub, scores, {"assemble": {"quiet_period": "1s"}}, forgets=False)
    left = _stored(stub, scores, {"assemble": SOON, "index": {"enabled": False}}, forgets=True)
    yield "stored_byte_bytes", (stored - left) / statistics.mean(map(len, new_answers(1)))
    yield "outcome_bytes", left


def _stored(stub: str, scores: Scores, changes: Mapping[str, Mapping[str, Any]], *, forgets: bool) -> float:
    """Return how many bytes an answer leaves in the store, after its spans are forgotten if they are."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        with collector(stub, scores, "append", EVALUATIONS, store, changes) as server:
            asyncio.run(send_all(server, new_answers(WARM_UP), scores))
            server.at_rest()
            if forgets:
                eventually(lambda: not _spans_in(store), what="the first spans are forgotten", deadline_s=90)
            before = bytes_in(store)
            asyncio.run(send_all(server, new_answers(ANSWERS), scores))
            server.at_rest()
            if forgets:
                eventually(lambda: not _spans_in(store), what="spans are forgotten", deadline_s=90)
            return (bytes_in(store) - before) / ANSWERS


def _spans_in(store: Path) -> int:
    with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as db:
        [(number,)] = db.execute("SELECT count(*) FROM slice").fetchall()
    return int(number)


def _of_kafka(stub: str, scores: Scores) -> Iterator[tuple[str, float]]:
    """CPU of the processes of a cluster: of a span in one that only receives, of all in one that judges."""
    sections = sections_of(stub, scores, at_once=EVALUATIONS)
    with tempfile.TemporaryDirectory() as name, running_brokers(Path(name)) as kafka:
        folder = Path(name)
        with running_member(kafka, folder / "alone", "ingest", sections) as ingest:
            slope, constant = _line(*_points(ingest))
    yield "kafka_span_us", constant
    yield "kafka_kilobyte_us", slope
    configure(stub, latency_s=0.0)
    with tempfile.TemporaryDirectory() as name, running_brokers(Path(name)) as kafka:
        folder = Path(name)
        with (
            running_member(kafka, folder / "evaluate", "evaluate", sections) as owner,
            running_member(kafka, folder / "ingest", "ingest", sections) as ingest,
        ):
            asyncio.run(send_all(ingest, new_answers(WARM_UP), scores))
            before = owner.at_rest().cpu_s
            asyncio.run(send_all(ingest, new_answers(ANSWERS), scores))
            cpu_ms = (owner.at_rest().cpu_s - before) / ANSWERS * 1e3
    _, plain_ms, _ = at_limit(stub, scores, 0.0, ANSWERS, EVALUATIONS)
    yield "kafka_store", cpu_ms / plain_ms


def _line(first: Point, second: Point) -> tuple[float, float]:
    """Return slope and constant of the line through two points."""
    slope = (second.y - first.y) / (second.x - first.x)
    return slope, first.y - slope * first.x


def measured_on(others: float) -> str:
    """Say when, where and on which versions, as lines of TOML."""
    machine, versions = this_machine(), versions_of(["grpcio", "openai"])
    cpu = f"{machine.cpu}, {machine.cores} cores, {machine.system}"
    return "\n".join(
        (
            f'date = "{datetime.now(UTC):%Y-%m-%d}"',
            f'machine = "{cpu}"',
            f'commit = "{this_commit()}"',
            f'versions = "{", ".join(" ".join(each) for each in versions.items())}"',
            f"others = {others:.2f}",
        )
    )


def rewritten(text: str, found: Mapping[str, Sequence[float]], measured: str) -> str:
    """Return the file with other numbers, and with its words as they are."""
    head, _, rest = text.partition("[measured]\n")
    _, mark, tail = rest.partition("\n\n")
    lines = [_rewritten_line(line, found) for line in tail.splitlines()]
    return f"{head}[measured]\n{measured}{mark}" + "\n".join(lines) + "\n"


def _rewritten_line(line: str, found: Mapping[str, Sequence[float]]) -> str:
    name = line.partition(" = ")[0]
    return f"{name} = {_in_toml(found[name])}" if name in found else line


def _in_toml(values: Sequence[float]) -> str:
    low, likely, high = min(values), statistics.median(values), max(values)
    return f"{{low = {low:.4g}, likely = {likely:.4g}, high = {high:.4g}}}"


if __name__ == "__main__":
    main()
