"""Overviews, from the sums alone.

**What is approximated.** Sums are over whole hours, so a scope reaches from its first to its last hour. The
answers of a trace are one cluster within an hour and a stream, or, where days are summed, within a day and a
stream. A trace that lasts longer, or that has several models or prompt versions, is several clusters: means
are exact in any case, and then the interval is a little too short.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ragtrace.answers.index._rows import DOLLARS, HOUR_NS
from ragtrace.answers.index._scope import SumRange, listed, ranges_in, streams_in
from ragtrace.answers.index._sums import DAY, LIMB, METRIC_SUMS, SUMS, UNIT
from ragtrace.answers.index._words import Kind, find_word, streams, words
from ragtrace.answers.port import MetricTrend, Quadrant, Release, Sums, TrafficScope, TrendPoint
from ragtrace.answers.summary import first_faithfulness
from ragtrace.model import Label, VerdictLabel
from ragtrace.stats import Moments, mean_of

VERDICTS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
_LABELS: Final = {Label.PASS: "passed", Label.FAIL: "failed", Label.ERROR: "error", Label.SKIPPED: "skipped"}


def answers_in(db: sqlite3.Connection, scope: TrafficScope) -> int:
    """Return the number of answers in a scope."""
    return _totals(db, scope)["answers"]


def sums(db: sqlite3.Connection, scope: TrafficScope) -> Sums:
    """Return a scope in numbers."""
    totals = _totals(db, scope)
    return Sums(
        answers=totals["answers"],
        labels={label: totals[name] for label, name in _LABELS.items() if totals[name]},
        verdicts={verdict: totals[verdict.value] for verdict in VERDICTS if totals[verdict.value]},
        blames=_by_word(db, scope, Kind.BLAME),
        reasons=_by_word(db, scope, Kind.REASON),
        cost_usd=totals["cost"] / DOLLARS,
        unpriced=totals["unpriced"],
    )


def quadrant(db: sqlite3.Connection, scope: TrafficScope) -> Quadrant | None:
    """Return the answers by whether chunk precision and faithfulness pass; ``None`` without any."""
    totals = _totals(db, scope)
    found = Quadrant(
        healthy=totals["healthy"],
        generation_problem=totals["generation_problem"],
        retrieval_noise=totals["retrieval_noise"],
        retrieval_failure=totals["retrieval_failure"],
    )
    parts = (found.healthy, found.generation_problem, found.retrieval_noise, found.retrieval_failure)
    return found if any(parts) else None


def metrics(db: sqlite3.Connection, scope: TrafficScope) -> Sequence[str]:
    """Return the names of the metrics that occur, faithfulness first."""
    streams = streams_in(db, scope)
    named = db.execute("SELECT id, text FROM answer_word WHERE kind = ?", (Kind.METRIC,)).fetchall()
    found = [name for number, name in named if _occurs(db, number, scope, streams)]
    return sorted(found, key=first_faithfulness)


def _occurs(db: sqlite3.Connection, metric: int, scope: TrafficScope, streams: list[int] | None) -> bool:
    condition, values = listed(streams)
    return any(
        db.execute(
            "SELECT 1 FROM answer_metric_sums WHERE hours = ? AND metric = ? AND first_hour >= ?"
            f" AND first_hour < ? AND {condition} LIMIT 1",
            (part.hours, metric, part.first, part.end, *values),
        ).fetchone()
        for part in ranges_in(scope)
    )


def trend(db: sqlite3.Connection, metric: str, scope: TrafficScope, *, period_ns: int) -> MetricTrend:
    """Return a metric over time.

    Raises:
        ValueError: the period is not a multiple of an hour.
    """
    period = period_hours(period_ns)
    number = find_word(db, Kind.METRIC, metric)
    streams = streams_in(db, scope)
    whole: Counter[str] = Counter()
    periods: dict[int, Counter[str]] = {}  # by the hour since 1970 at which each begins
    if number:
        for part in ranges_in(scope, period_hours=period):
            for start, amounts in _periods(db, number, part, streams, period):
                periods.setdefault(start, Counter()).update(amounts)
        for part in ranges_in(scope) if period % DAY else ():
            for _, amounts in _periods(db, number, part, streams, 0):
                whole.update(amounts)
        for amounts in () if period % DAY else periods.values():  # the same sums, read once
            whole.update(amounts)
    start_ns = scope.since_ns if scope.since_ns is not None else min(periods, default=0) * HOUR_NS
    return MetricTrend(
        metric=metric,
        lower_is_better=is_lower_better(db, number),
        whole=_point(start_ns, whole),
        points=tuple(_point(start * HOUR_NS, periods[start]) for start in sorted(periods)),
        period_ns=period_ns,
    )


def period_hours(period_ns: int) -> int:
    """Return a period in hours.

    Raises:
        ValueError: it is not a multiple of an hour.
    """
    period, rest = divmod(period_ns, HOUR_NS)
    if rest or period < 1:
        raise ValueError(f"a period of {period_ns} ns is no multiple of an hour")
    return period


def is_lower_better(db: sqlite3.Connection, metric: int | None) -> bool:
    """Return whether less of a metric is better, by the number of its name."""
    row = db.execute("SELECT is_lower_better FROM answer_word WHERE id = ?", (metric,)).fetchone()
    return bool(row and row[0])


def _periods(
    db: sqlite3.Connection, metric: int, part: SumRange, streams: list[int] | None, period: int
) -> Iterator[tuple[int, Counter[str]]]:
    """Yield the sums of each period by the hour it begins at; a period of 0 is the whole range."""
    start = f"first_hour - first_hour % {period}" if period else "0"
    if period == part.hours:
        start = "first_hour"  # in the order of the table, so that nothing is sorted
    columns = ", ".join(f"sum({name})" for name in METRIC_SUMS)
    condition, values = listed(streams)
    found = db.execute(
        f"SELECT {start} AS start, {columns} FROM answer_metric_sums"
        f" WHERE hours = ? AND metric = ? AND first_hour >= ? AND first_hour < ? AND {condition}"
        " GROUP BY start",
        (part.hours, metric, part.first, part.end, *values),
    )
    for begins, *amounts in found:
        yield begins, Counter(dict(zip(METRIC_SUMS, amounts, strict=True)))


def _point(start_ns: int, found: Counter[str]) -> TrendPoint:
    def product(name: str) -> float:
        return (found[name] * LIMB + found[f"{name}_low"]) / UNIT

    weight, square = found["weight"] / UNIT, product("weight_weight")
    scores = Moments(weight, found["score"] / UNIT, square, product("weight_score"), product("score_score"))
    passes = Moments(weight, found["pass"] / UNIT, square, product("weight_pass"), product("pass_pass"))
    records = {"records": found["weighed"], "left_out": found["left_out"]}
    return TrendPoint(
        start_ns=start_ns,
        mean=mean_of(scores, **records),
        passing=mean_of(passes, **records),
        answers=found["answers"],
    )


def values(db: sqlite3.Connection, dimension: str, scope: TrafficScope, *, limit: int) -> Mapping[str, int]:
    """Return the values of a dimension with their number of answers, the most frequent first.

    Raises:
        ValueError: there is no such dimension.
    """
    check_dimension(dimension)
    is_blame = dimension == "blame"
    found = _by_word(db, scope, Kind.BLAME) if is_blame else _by_stream(db, scope, dimension)
    return most_frequent(found, limit)


def check_dimension(dimension: str) -> None:
    """See that there is such a dimension.

    Raises:
        ValueError: there is none.
    """
    if dimension not in ("service", "model", "prompt_version", "tenant", "blame"):
        raise ValueError(f"there is no dimension {dimension!r}")


def most_frequent(found: Mapping[str, int], limit: int) -> Mapping[str, int]:
    """Return the values with the largest numbers, the largest first, then by name."""
    ordered = sorted(found.items(), key=lambda value: (-value[1], value[0]))
    return dict(ordered[:limit])


def releases(db: sqlite3.Connection, scope: TrafficScope) -> list[Release]:
    """Return the releases of a scope, in order of time."""
    condition, values = listed(streams_in(db, scope))
    query = f"SELECT stream, min(first_hour) FROM answer_sums WHERE hours = 1 AND {condition} GROUP BY stream"
    hours = db.execute(query, values)
    names, known = words(db), streams(db)
    first: dict[tuple[str, int], dict[int, int]] = {}
    for number, hour in hours.fetchall():
        stream = known[number]
        for dimension in ("service_version", "prompt_version"):
            seen = first.setdefault((dimension, stream.service), {})
            version = getattr(stream, dimension)
            seen[version] = min(hour, seen.get(version, hour))
    return sorted(
        (
            Release(at_ns=hour * HOUR_NS, service=names[service], dimension=dimension, value=names[version])
            for (dimension, service), seen in first.items()
            for version, hour in seen.items()
            if version and hour > min(seen.values())
            if _or(scope.since_ns, 0) <= hour * HOUR_NS < _or(scope.until_ns, 2**63)
        ),
        key=lambda release: (release.at_ns, release.service, release.dimension),
    )


def newest_ns(db: sqlite3.Connection, scope: TrafficScope) -> int | None:
    """Return the time of the newest answer in a scope."""
    streams = streams_in(db, scope)
    times = "time_ns >= ? AND time_ns < ? AND is_valid = 1 ORDER BY time_ns DESC LIMIT 1"
    within = (_or(scope.since_ns, -(2**63)), _or(scope.until_ns, 2**63 - 1))
    if streams is None:
        found = [db.execute(f"SELECT time_ns FROM answer_row WHERE {times}", within).fetchone()]
    else:
        query = f"SELECT time_ns FROM answer_row WHERE stream = ? AND {times}"
        found = [db.execute(query, (stream, *within)).fetchone() for stream in streams]
    return max((row[0] for row in found if row is not None), default=None)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _totals(db: sqlite3.Connection, scope: TrafficScope) -> Counter[str]:
    columns = ", ".join(f"sum({name})" for name in SUMS)
    condition, values = listed(streams_in(db, scope))
    totals: Counter[str] = Counter()
    for part in ranges_in(scope):
        found = db.execute(
            f"SELECT {columns} FROM answer_sums"
            f" WHERE hours = ? AND first_hour >= ? AND first_hour < ? AND {condition}",
            (*part, *values),
        ).fetchone()
        totals.update({name: amount or 0 for name, amount in zip(SUMS, found, strict=True)})
    return totals


def _by_word(db: sqlite3.Connection, scope: TrafficScope, kind: Kind) -> dict[str, int]:
    condition, values = listed(streams_in(db, scope))
    counts: Counter[str] = Counter()
    for number, text in db.execute("SELECT id, text FROM answer_word WHERE kind = ?", (kind,)).fetchall():
        for part in ranges_in(scope):
            (found,) = db.execute(
                "SELECT sum(answers) FROM answer_word_sums WHERE hours = ? AND word = ?"
                f" AND first_hour >= ? AND first_hour < ? AND {condition}",
                (part.hours, number, part.first, part.end, *values),
            ).fetchone()
            counts[text] += found or 0
    return {text: number for text, number in counts.most_common() if number}


def _by_stream(db: sqlite3.Connection, scope: TrafficScope, column: str) -> dict[str, int]:
    condition, values = listed(streams_in(db, scope))
    names, counts = words(db), Counter[str]()
    numbers = dict(db.execute(f"SELECT id, {column} FROM answer_stream"))
    for part in ranges_in(scope):
        found = db.execute(
            "SELECT stream, sum(answers) FROM answer_sums WHERE hours = ? AND first_hour >= ?"
            f" AND first_hour < ? AND {condition} GROUP BY stream",
            (*part, *values),
        )
        for stream, answers in found:
            counts[names.get(numbers.get(stream, 0), "")] += answers
    return {name: number for name, number in counts.items() if number}
