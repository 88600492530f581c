"""Sums of the valid rows by hour and by day, which are made from the rows again where rows have changed.

A change of rows notes their hour in ``answer_touched``, in its own transaction. `fold` makes the sums of the
noted hours, then those of their days. What is read is the sums of clean days, those of clean hours, and a
GROUP BY over the rows of the others: it is the same, whether anything was folded or not.

A mean from a sample needs sums over traces, whose answers are sampled together (`ragtrace.stats`): of the
weights of its answers, of their weighted scores, and of the products of these two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.answers.index._scope import Condition, in_streams
from ragtrace.answers.port import TrafficScope
from ragtrace.sql import Statements

HOUR_NS: Final = 3_600_000_000_000
DAY: Final = 24
_ROWS: Final = 0
_MOST_NAMES: Final = 1_000
_LAST: Final = 2_562_047
"""The last hour in 64 bits of nanoseconds."""
SUM_TABLES: Final = ("answer_touched", "answer_sum", "answer_cause_sum", "answer_metric_sum")
"""The tables that follow from the rows."""


def _number(condition: str) -> str:
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"


_CONDITIONS: Final = {
    "passed": "answer_row.label = 'pass'",
    "failed": "answer_row.label = 'fail'",
    "error": "answer_row.label = 'error'",
    "skipped": "answer_row.label = 'skipped'",
    "healthy": "precise.label = 'pass' AND faithful.label = 'pass'",
    "generation_problem": "precise.label = 'pass' AND faithful.label = 'fail'",
    "retrieval_noise": "precise.label = 'fail' AND faithful.label = 'pass'",
    "retrieval_failure": "precise.label = 'fail' AND faithful.label = 'fail'",
    "unpriced": "cost_usd IS NULL",
}
_NUMBERS: Final = ", ".join(f"{_number(condition)} AS {name}" for name, condition in _CONDITIONS.items())
_COUNTED: Final = (
    *("supported", "contradicted", "unsupported", "unjudged"),
    *("relevant", "partly_relevant", "irrelevant", "unjudged_chunks"),
)
_MOMENTS: Final = (
    *("weight", "score", "passing", "weight_weight"),
    *("weight_score", "score_score", "weight_passing", "passing_passing"),
)
COLUMNS: Final = {
    "answer_sum": ("answers", *_CONDITIONS, *_COUNTED, "cost_usd"),
    "answer_cause_sum": ("answers",),
    "answer_metric_sum": ("answers", "weighed", "left_out", *_MOMENTS),
}
_NAMES: Final = {"answer_sum": (), "answer_cause_sum": ("blame", "reason"), "answer_metric_sum": ("metric",)}
"""The keys of a table between the hours and the first hour: few, and read one by one."""
_IS_SCORED: Final = "answer_score.score IS NOT NULL AND answer_score.label IN ('pass', 'fail')"
_IS_WEIGHED: Final = f"{_IS_SCORED} AND probability IS NOT NULL"
_WEIGHT: Final = "1.0 / CASE WHEN probability < 0.000001 THEN 0.000001 ELSE probability END"
"""A lower sampling probability counts as this one."""


def _weighted(value: str) -> str:
    return f"sum(CASE WHEN {_IS_WEIGHED} THEN {_WEIGHT} * {value} ELSE 0.0 END)"


_OF_ROWS: Final = {
    "answer_sum": f"""
SELECT {{hour}} AS first_hour, stream, count(*) AS answers,
    {_NUMBERS},
    {", ".join(f"sum({name}) AS {name}" for name in _COUNTED)},
    coalesce(sum(cost_usd), 0.0) AS cost_usd
FROM answer_row
LEFT JOIN answer_score AS precise ON precise.answer = id AND precise.metric = 'chunk_precision'
LEFT JOIN answer_score AS faithful ON faithful.answer = id AND faithful.metric = 'faithfulness'
WHERE is_valid = 1 AND {{rows}} GROUP BY {{hour}}, stream""",
    "answer_cause_sum": """
SELECT {hour} AS first_hour, stream, blame, reason, count(*) AS answers FROM answer_row
WHERE is_valid = 1 AND (blame != '' OR reason != '') AND {rows} GROUP BY {hour}, stream, blame, reason""",
    "answer_metric_sum": f"""
SELECT first_hour, stream, metric, sum(answers) AS answers, sum(weighed) AS weighed,
    sum(left_out) AS left_out, sum(weight) AS weight, sum(score) AS score, sum(passing) AS passing,
    sum(weight * weight) AS weight_weight, sum(weight * score) AS weight_score,
    sum(score * score) AS score_score, sum(weight * passing) AS weight_passing,
    sum(passing * passing) AS passing_passing
FROM (
    SELECT {{hour}} AS first_hour, stream, metric, count(*) AS answers, {_number(_IS_WEIGHED)} AS weighed,
        {_number(f"{_IS_SCORED} AND probability IS NULL")} AS left_out, {_weighted("1.0")} AS weight,
        {_weighted("answer_score.score")} AS score,
        {_weighted("CASE WHEN answer_score.label = 'pass' THEN 1.0 ELSE 0.0 END")} AS passing
    FROM answer_row JOIN answer_score ON answer_score.answer = answer_row.id
    WHERE is_valid = 1 AND {{rows}} GROUP BY {{hour}}, stream, trace_id, metric) AS of_trace
GROUP BY first_hour, stream, metric""",
}


class _Part(NamedTuple):
    """A range of hours, and what its sums are read from."""

    hours: int
    """The sums by this many hours, or the rows themselves."""
    first: int
    end: int
    """Exclusive."""


def touch(db: Statements, times_ns: Iterable[int]) -> None:
    """Note that rows of these times have changed, in the transaction that changes them."""
    touched = sorted({time_ns // HOUR_NS for time_ns in times_ns})
    db.executemany(_TOUCH, [(1, hour) for hour in touched])


_TOUCH: Final = "INSERT INTO answer_touched (hours, first_hour) VALUES (?, ?)"


def fold(db: Statements, *, at_once: int, is_open: bool = False) -> int:
    """Make the sums of touched hours and days anew, inside a transaction of the caller.

    Those that have not ended by the time of the newest row are left as they are, unless ``is_open``: they
    will be touched again.

    Returns:
        How many it made: at most ``at_once``, so that a transaction stays short. Call it again until it is 0.
    """
    newest = db.execute("SELECT time_ns FROM answer_row ORDER BY time_ns DESC LIMIT 1").fetchone()
    until = _LAST + DAY if is_open or newest is None else newest[0] // HOUR_NS
    found = db.execute(
        "SELECT DISTINCT hours, first_hour FROM answer_touched WHERE first_hour + hours <= ?"
        " ORDER BY hours, first_hour LIMIT ?",
        (until, at_once),
    ).fetchall()
    for hours, first in found:
        # first the notes: what is noted from here on is not among the rows that are summed
        db.execute("DELETE FROM answer_touched WHERE hours = ? AND first_hour = ?", (hours, first))
        for table in COLUMNS:
            _clear(db, table, hours, first)
            source = _of_rows(table, _Part(hours, first, first + hours), Condition())
            names = ", ".join(("first_hour", "stream", *_NAMES[table], *COLUMNS[table]))
            db.execute(
                f"INSERT INTO {table} (hours, {names}) SELECT {hours}, {names} FROM ({source.sql}) AS found",
                source.values,
            )
        if hours == 1:
            db.execute(_TOUCH, (DAY, first // DAY * DAY))
    return len(found)


def _clear(db: Statements, table: str, hours: int, first: int) -> None:
    for named in _named(db, table, hours):
        where = Condition("hours = ?", (hours,)).and_(named, Condition("first_hour = ?", (first,)))
        db.execute(f"DELETE FROM {table} WHERE {where.sql}", where.values)


def _named(db: Statements, table: str, hours: int) -> Iterator[Condition]:
    """Yield a condition for each value of a table's names, which its key finds directly."""
    columns = _NAMES[table]
    if not columns:
        yield Condition()
        return
    for place in distinct(db, table, columns, Condition("hours = ?", (hours,))):
        yield Condition(" AND ".join(f"{column} = ?" for column in columns), place)


def distinct(
    db: Statements, table: str, columns: Sequence[str], among: Condition
) -> Iterator[tuple[str, ...]]:
    """Yield the values of the first columns of an index, in order, without going through all rows."""
    place = tuple("" for _ in columns)
    names = ", ".join(columns)
    for _ in range(_MOST_NAMES):
        for last in reversed(range(len(columns))):
            same = [Condition(f"{columns[i]} = ?", (place[i],)) for i in range(last)]
            wanted = among.and_(*same, Condition(f"{columns[last]} > ?", (place[last],)))
            query = f"SELECT {names} FROM {table} WHERE {wanted.sql} ORDER BY {names} LIMIT 1"
            row = db.execute(query, wanted.values).fetchone()
            if row is not None:
                break
        else:
            return
        place = tuple(row)
        yield place


def recount(db: Statements) -> None:
    """Make all sums anew, such as after a damaged file lost some rows, inside a transaction of the caller."""
    for table in SUM_TABLES:
        db.execute(f"DELETE FROM {table}")
    db.execute(
        "INSERT INTO answer_touched (hours, first_hour)"
        f" SELECT DISTINCT 1, time_ns / {HOUR_NS} FROM answer_row"
    )
    while fold(db, at_once=DAY, is_open=True):
        pass


def summed(
    db: Statements,
    table: str,
    scope: TrafficScope,
    *,
    by: str = "",
    columns: Sequence[str] = (),
    metric: str | None = None,
    period_hours: int = 0,
) -> dict[tuple[Any, ...], list[float]]:
    """Return the sums of a scope, widened to whole hours: of some columns, or else of all of the table.

    They are by the values of some keys, such as ``first_hour``, or without any under ``()``. Answers of a
    trace are one cluster within an hour; within a day, where the period is whole days.
    """
    columns = columns or COLUMNS[table]
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in columns)
    totals: dict[tuple[Any, ...], list[float]] = {}
    group = f" GROUP BY {by}" if by else ""
    for source in _sources(db, table, scope, metric, period_hours):
        query = f"SELECT {sums}{', ' if by else ''}{by} FROM ({source.sql}) AS found{group}"
        for found in db.execute(query, source.values):
            amounts, key = found[: len(columns)], found[len(columns) :]
            known = totals.setdefault(key, [0] * len(columns))
            totals[key] = [one + other for one, other in zip(known, amounts, strict=True)]
    return totals


def days_with(db: Statements, counted: Sequence[str], blame: str | None) -> set[int] | None:
    """Return the days, by their first hours, that can have a row with these counts in sums and with a blame.

    ``None`` if nothing is asked.
    """
    queries = [f"SELECT first_hour FROM answer_sum WHERE hours = {DAY} AND {count}" for count in counted]
    if blame:
        queries.append(f"SELECT first_hour FROM answer_cause_sum WHERE hours = {DAY} AND blame = ?")
    if not queries:
        return None
    found = db.execute(" INTERSECT ".join(queries), (blame,) if blame else ())
    touched = db.execute("SELECT DISTINCT first_hour FROM answer_touched").fetchall()
    return {hour for (hour,) in found} | {hour // DAY * DAY for (hour,) in touched}


def occurs(db: Statements, metric: str, scope: TrafficScope) -> bool:
    """Return whether an answer of a scope has a metric."""
    return any(
        db.execute(f"SELECT 1 FROM ({source.sql}) AS found LIMIT 1", source.values).fetchone()
        for source in _sources(db, "answer_metric_sum", scope, metric, DAY)
    )


def _sources(
    db: Statements, table: str, scope: TrafficScope, metric: str | None, period_hours: int
) -> Iterator[Condition]:
    streams = in_streams(scope)
    # not by the index of all scores
    of_rows = Condition() if metric is None else Condition("metric || '' = ?", (metric,))
    columns = ", ".join(("first_hour", "stream", *_NAMES[table], *COLUMNS[table]))
    for part in _parts(db, scope, period_hours):
        if part.hours == _ROWS:
            yield _of_rows(table, part, streams.and_(of_rows))
            continue
        names = _named(db, table, part.hours) if metric is None else [Condition("metric = ?", (metric,))]
        for named in names:
            wanted = Condition("hours = ? AND first_hour >= ? AND first_hour < ?", part).and_(named, streams)
            yield Condition(f"SELECT {columns} FROM {table} WHERE {wanted.sql}", wanted.values)


def _of_rows(table: str, part: _Part, within: Condition) -> Condition:
    """Return a query for the sums of rows: by day for the sums of days, else by hour."""
    times = (part.first * HOUR_NS, part.end * HOUR_NS)
    rows = Condition("time_ns >= ? AND time_ns < ?", times).and_(within)
    hour = f"time_ns / {DAY * HOUR_NS} * {DAY}" if part.hours == DAY else f"time_ns / {HOUR_NS}"
    return Condition(_OF_ROWS[table].format(hour=hour, rows=rows.sql), rows.values)


def _parts(db: Statements, scope: TrafficScope, period_hours: int) -> Iterator[_Part]:
    """Yield parts that cover a scope, from its first to its last hour, both whole."""
    first = 0 if scope.since_ns is None else max(0, scope.since_ns // HOUR_NS)
    end = _LAST if scope.until_ns is None else min(_LAST, -(-scope.until_ns // HOUR_NS))
    touched = db.execute("SELECT DISTINCT hours, first_hour FROM answer_touched").fetchall()
    hours = sorted(place for width, place in touched if width == 1)
    days = sorted({place // DAY * DAY for _, place in touched})
    first_day, end_day = -(-first // DAY) * DAY, end // DAY * DAY
    if period_hours % DAY or first_day >= end_day:
        yield from _split(_Part(1, first, end), hours, _ROWS)
        return
    yield from _split(_Part(1, first, first_day), hours, _ROWS)
    for part in _split(_Part(DAY, first_day, end_day), days, 1):
        yield from [part] if part.hours == DAY else _split(part, hours, _ROWS)
    yield from _split(_Part(1, end_day, end), hours, _ROWS)


def _split(whole: _Part, touched: Sequence[int], instead: int) -> Iterator[_Part]:
    """Yield the parts of a range, and those of its touched places as what is read instead of them."""
    at, width = whole.first, whole.hours
    found: list[_Part] = []
    for place in (place for place in touched if whole.first <= place < whole.end):
        if found and found[-1].end == place:
            found[-1] = found[-1]._replace(end=place + width)
        else:
            found.append(_Part(instead, place, place + width))
    for part in found:
        if at < part.first:
            yield _Part(width, at, part.first)
        yield part
        at = part.end
    if at < whole.end:
        yield _Part(width, at, whole.end)
