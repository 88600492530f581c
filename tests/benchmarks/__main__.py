"""Measure ratios, compare them with the committed history, and add them to it.

    python -m tests.benchmarks [--check] [--no-record] [--only NAME ...]

A benchmark measures ragtrace beside a named alternative, in turns, and keeps the ratio of each round: times
depend on the machine, ratios much less. ``--check`` records nothing, and exits with 1 if a ratio is worse
than its band (`tests.benchmarks.recording.band`).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ragtrace.errors import InputError
from tests.benchmarks import recording
from tests.benchmarks.recording import (
    Circumstances,
    Comparison,
    Entry,
    Onlooker,
    Place,
    compare,
    entry_of,
    summary,
    table_of,
    this_commit,
    this_machine,
)
from tests.benchmarks.suite import BENCHMARKS, Benchmark


def main(
    arguments: Sequence[str] | None = None,
    *,
    folder: Path = recording.HISTORY,
    benchmarks: Sequence[Benchmark] = BENCHMARKS,
) -> int:
    """Run benchmarks; return the exit code: 1 if a check found a worse ratio, 2 if the input is wrong."""
    options = _options(arguments, [each.name for each in benchmarks])
    try:
        known = recording.read(folder)
    except InputError as exc:
        print(f"Error: {exc}", file=sys.stderr)
        return 2
    chosen = [each for each in benchmarks if each.name in (options.only or {each.name})]
    comparisons: list[Comparison] = []
    for found in _measured(chosen):
        if options.records:
            recording.append(found, folder)  # at once: a run that is interrupted keeps what it has
        compared = [compare(each, known) for each in found]
        if compared:
            print(table_of(compared), end="\n\n", flush=True)
        comparisons += compared
    print(summary(comparisons))
    return int(options.check and any(each.place is Place.WORSE for each in comparisons))


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a ratio is worse than its band")
    parser.add_argument("--no-record", action="store_true", help="leave the history as it is")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    options = parser.parse_args(arguments)
    options.records = not (options.check or options.no_record)
    return options


def _measured(chosen: Sequence[Benchmark]) -> Iterator[list[Entry]]:
    circumstances = Circumstances(
        measured=datetime.now(UTC),
        machine=this_machine(),
        python=platform.python_version(),
        commit=this_commit(),
        load=os.getloadavg()[0],
    )
    for benchmark in chosen:
        print(f"measuring {benchmark.name}", file=sys.stderr, flush=True)
        onlooker = Onlooker()
        found = benchmark.measure()
        others = onlooker.others()
        yield [entry_of(benchmark.name, each, circumstances, others=others) for each in found]


if __name__ == "__main__":
    sys.exit(main())
