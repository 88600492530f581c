"""Overviews of the index, and the sums by hour and by day that they are made from.

A change of rows notes their hour in ``answer_touched``, in its own transaction. `fold` makes the sums of the
noted hours from the rows again, then those of their days. What is read is the sums of clean days, those of
clean hours, and a GROUP BY over the rows of the others: it is the same, whether anything was folded or not.

A mean from a sample needs sums over traces, whose answers are sampled together (`ragtrace.stats`): of the
weights of its answers, of their weighted scores, and of the products of these two.

**What is approximated.** Sums are over whole hours, so a scope reaches from its first to its last hour. The
answers of a trace are one cluster within an hour and a stream, or, where days are summed, within a day and a
stream. A trace that lasts longer, or that has several models or prompt versions, is several clusters: means
are exact in any case, and then the interval is a little too short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.answers.filters import LABELS, Condition, clean, stream_names, streams_in, times_of
from ragtrace.answers.port import MetricTrend, Quadrant, Release, Sums, TrafficScope, TrendPoint
from ragtrace.answers.summary import first_faithfulness
from ragtrace.model import VerdictLabel
from ragtrace.sql import Statements
from ragtrace.stats import Moments, mean_of

HOUR_NS: Final = 3_600_000_000_000
DAY: Final = 24
_ROWS: Final = 0
_MOST_PARTS: Final = 100
"""Of a query: if more places do not hold, all rows are read."""
_LAST: Final = 2_562_047
"""The last hour in 64 bits of nanoseconds."""
SUM_TABLES: Final = ("answer_touched", "answer_sum", "answer_cause_sum", "answer_metric_sum")
"""The tables that follow from the rows."""


def _number(condition: str) -> str:
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"


_QUADRANT: Final = {
    "healthy": "precise.label = 'pass' AND faithful.label = 'pass'",
    "generation_problem": "precise.label = 'pass' AND faithful.label = 'fail'",
    "retrieval_noise": "precise.label = 'fail' AND faithful.label = 'pass'",
    "retrieval_failure": "precise.label = 'fail' AND faithful.label = 'fail'",
}
_CONDITIONS: Final = {
    "passed": "answer_row.label = 'pass'",
    "failed": "answer_row.label = 'fail'",
    "error": "answer_row.label = 'error'",
    "skipped": "answer_row.label = 'skipped'",
    "unpriced": "cost_usd IS NULL",
    **_QUADRANT,
}
_COUNTED: Final = (
    *("supported", "contradicted", "unsupported", "unjudged"),
    *("relevant", "partly_relevant", "irrelevant", "unjudged_chunks"),
)
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "answer_sum": {
        "answers": "count(*)",
        **{name: _number(condition) for name, condition in _CONDITIONS.items()},
        **{name: f"sum({name})" for name in _COUNTED},
        "cost_usd": "coalesce(sum(cost_usd), 0.0)",
    },
    "answer_cause_sum": {"answers": "count(*)"},
    "answer_metric_sum": {
        **{name: f"sum({name})" for name in ("answers", "weighed", "left_out", "weight", "score", "passing")},
        "weight_weight": "sum(weight * weight)",
        "weight_score": "sum(weight * score)",
        "score_score": "sum(score * score)",
        "weight_passing": "sum(weight * passing)",
        "passing_passing": "sum(passing * passing)",
    },
}
"""The numbers of each table, as they are made from rows."""
_KEYS: Final = {
    "answer_sum": "first_hour, stream",
    "answer_cause_sum": "first_hour, stream, cause",
    "answer_metric_sum": "first_hour, stream, metric",
}
_NAMES: Final = {"answer_cause_sum": "cause", "answer_metric_sum": "metric"}
"""The names that a table's sums are by, which come before the hours in its key."""
_PAIRED: Final = """
LEFT JOIN answer_score AS precise ON precise.answer = id AND precise.metric = 'chunk_precision'
LEFT JOIN answer_score AS faithful ON faithful.answer = id AND faithful.metric = 'faithfulness'"""
_IS_SCORED: Final = "answer_score.score IS NOT NULL AND answer_score.label IN ('pass', 'fail')"
_IS_WEIGHED: Final = f"{_IS_SCORED} AND probability IS NOT NULL"
_WEIGHT: Final = "1.0 / CASE WHEN probability < 0.000001 THEN 0.000001 ELSE probability END"
"""A lower sampling probability counts as this one."""


def _weighted(value: str) -> str:
    return f"sum(CASE WHEN {_IS_WEIGHED} THEN {_WEIGHT} * {value} ELSE 0.0 END)"


_OF_TRACE: Final = f"""(
SELECT {{hour}} AS hour, stream, metric, count(*) AS answers, {_number(_IS_WEIGHED)} AS weighed,
    {_number(f"{_IS_SCORED} AND probability IS NULL")} AS left_out, {_weighted("1.0")} AS weight,
    {_weighted("answer_score.score")} AS score,
    {_weighted("CASE WHEN answer_score.label = 'pass' THEN 1.0 ELSE 0.0 END")} AS passing
FROM answer_row JOIN answer_score ON answer_score.answer = answer_row.id
WHERE {{rows}} GROUP BY {{hour}}, stream, trace_id, metric) AS of_trace"""

BLAME: Final = "blame:"
REASON: Final = "reason:"
"""What a cause begins with."""
_CAUSES: Final = "({}) AS caused".format(
    " UNION ALL ".join(
        f"SELECT time_ns, stream, '{kind}' || {column} AS cause FROM answer_row"
        f" WHERE {{rows}} AND {column} != ''"
        for kind, column in ((BLAME, "blame"), (REASON, "reason"))
    )
)


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


# A writer has a note of its own, and renews it: then no writer waits for another one, and whoever makes the
# sums waits for the rows that are being written.
_TOUCH: Final = (
    "INSERT INTO answer_touched (hours, first_hour) VALUES (?, ?)"
    " ON CONFLICT (hours, first_hour, writer) DO UPDATE SET hours = excluded.hours"
)


def fold(db: Statements, *, at_once: int, is_open: bool = False, skip_locked: str = "") -> int:
    """Make the sums of touched hours and days anew, inside a transaction of the caller.

    Those that have not ended by the time of the newest row are left as they are, unless ``is_open``: they
    will be touched again. Where several processes write, ``skip_locked`` leaves out what another one makes.

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
    return sum(_fold(db, hours, first, skip_locked) for hours, first in found)


def _fold(db: Statements, hours: int, first: int, skip_locked: str) -> bool:
    # Of two processes, one sees a note that the other has locked, and leaves it all to that one.
    place = "FROM answer_touched WHERE hours = ? AND first_hour = ?"
    notes = db.execute(f"SELECT writer {place}{skip_locked}", (hours, first)).fetchall()
    (there,) = db.execute(f"SELECT count(*) {place}", (hours, first)).fetchone()
    if not notes or len(notes) < there:
        return False
    # First the notes: what is noted from here on is not among the rows that are summed.
    db.executemany(f"DELETE {place} AND writer = ?", [(hours, first, writer) for (writer,) in notes])
    for table, columns in COLUMNS.items():
        gone = f"DELETE FROM {table} WHERE hours = ? AND first_hour = ?"
        if table in _NAMES:
            known = db.execute(names_in(table, hours=hours)).fetchall()
            db.executemany(f"{gone} AND {_NAMES[table]} = ?", [(hours, first, name) for (name,) in known])
        else:
            db.execute(gone, (hours, first))
        source = _of_rows(table, columns, _Part(hours, first, first + hours), Condition())
        names = f"{_KEYS[table]}, {', '.join(columns)}"
        db.execute(
            f"INSERT INTO {table} (hours, {names}) SELECT {hours}, * FROM ({source.sql}) AS found",
            source.values,
        )
    if hours == 1:
        db.execute(_TOUCH, (DAY, first // DAY * DAY))
    return True


def names_in(table: str, *, hours: int | None = None) -> str:
    """Return a query of the names of metrics or causes in a table, which does not go through all rows."""
    column = _NAMES.get(table, "metric")
    least = f"SELECT min({column}) FROM {table} WHERE {f'hours = {hours}' if hours else '1 = 1'}"
    return (
        f"WITH RECURSIVE named (name) AS ({least} UNION ALL"
        f" SELECT ({least} AND {column} > name) FROM named WHERE name IS NOT NULL)"
        " SELECT name FROM named WHERE name IS NOT NULL"
    )


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
    columns: Collection[str],
    *,
    by: Sequence[str] = (),
    names: Sequence[str] = (),
    period_hours: int = 0,
) -> dict[tuple[Any, ...], list[float]]:
    """Return the sums of a scope, widened to whole hours, of some columns of a table.

    They are by the values of some columns, such as ``first_hour`` of a period, or without any under ``()``.
    Of the hours that are summed already, only these ``names`` are read, if there are any. Answers of a trace
    are one cluster within an hour; within a day, where the period is whole days.
    """
    group = f" GROUP BY {', '.join(by)}" if by else ""
    chosen = ", ".join((*by, *(f"sum({name}) AS {name}" for name in columns)))
    of_name = Condition(f"IN ({', '.join('?' for _ in names)})", (*names,)) if names else Condition()
    found = sources(db, table, scope, columns, of_name, period_hours)
    parts = (f"SELECT {chosen} FROM ({each.sql}) AS part{group}" for each in found)
    rows = db.execute(
        f"SELECT {chosen} FROM ({' UNION ALL '.join(parts)}) AS found{group}",
        [value for each in found for value in each.values],
    )
    return {tuple(row[: len(by)]): [amount or 0 for amount in row[len(by) :]] for row in rows}


def days_with(db: Statements, counted: Sequence[str], blame: str | None) -> set[int] | None:
    """Return the days, by their first hours, that can have a row with these counts in sums and with a blame.

    ``None`` if nothing is asked.
    """
    queries = [f"SELECT first_hour FROM answer_sum WHERE hours = {DAY} AND {count}" for count in counted]
    if blame:
        queries.append(f"SELECT first_hour FROM answer_cause_sum WHERE hours = {DAY} AND cause = ?")
    if not queries:
        return None
    found = db.execute(" INTERSECT ".join(queries), (f"{BLAME}{blame}",) if blame else ())
    return {hour for (hour,) in found} | {hour // DAY * DAY for _, hour in _touched(db)}


def sources(
    db: Statements,
    table: str,
    scope: TrafficScope,
    columns: Collection[str],
    name: Condition,
    period_hours: int,
) -> list[Condition]:
    """Return queries that together have the sums of a scope by keys.

    What is added to a name keeps an index on it out of use: it would lead to more rows than the times do.
    """
    streams = streams_in(db, scope)
    beside = streams._replace(sql=streams.sql.replace("stream IN", "stream + 0 IN"))
    names = f"{_KEYS[table]}, {', '.join(columns)}"
    found = []
    for part in _parts(db, scope, period_hours):
        if part.hours == _ROWS:
            is_asked = name.sql and table == "answer_metric_sum"
            of_name = Condition(f"metric || '' {name.sql}", name.values) if is_asked else Condition()
            found.append(_of_rows(table, columns, part, streams.and_(of_name)))
        else:
            of_name = Condition(f"{_NAMES[table]} {name.sql}", name.values) if name.sql else Condition()
            hours = Condition("hours = ? AND first_hour >= ? AND first_hour < ?", part)
            wanted = hours.and_(of_name, beside)
            found.append(Condition(f"SELECT {names} FROM {table} WHERE {wanted.sql}", wanted.values))
        # A whole period's sums stay as they are: they come in the order that is grouped by.
        if max(part.hours, 1) < period_hours:
            period = f"first_hour / {period_hours} * {period_hours} AS {names}"
            found[-1] = found[-1]._replace(sql=f"SELECT {period} FROM ({found[-1].sql}) AS narrower")
    return found


def _of_rows(table: str, columns: Collection[str], part: _Part, within: Condition) -> Condition:
    """Return a query for the sums of rows: by day for the sums of days, else by hour."""
    times = (part.first * HOUR_NS, part.end * HOUR_NS)
    rows = Condition("is_valid = 1 AND time_ns >= ? AND time_ns < ?", times).and_(within)
    hour = f"time_ns / {DAY * HOUR_NS} * {DAY}" if part.hours == DAY else f"time_ns / {HOUR_NS}"
    source = f"answer_row{_PAIRED if _QUADRANT.keys() & set(columns) else ''} WHERE {rows.sql}"
    if table == "answer_cause_sum":
        source, rows = _CAUSES.format(rows=rows.sql), rows._replace(values=rows.values * 2)
    elif table == "answer_metric_sum":
        source, hour = _OF_TRACE.format(hour=hour, rows=rows.sql), "hour"
    keys = _KEYS[table].removeprefix("first_hour, ")
    numbers = ", ".join(f"{COLUMNS[table][name]} AS {name}" for name in columns)
    return Condition(
        f"SELECT {hour} AS first_hour, {keys}, {numbers} FROM {source} GROUP BY {hour}, {keys}", rows.values
    )


def _touched(db: Statements) -> list[tuple[int, int]]:
    return db.execute(
        "SELECT DISTINCT hours, first_hour FROM answer_touched ORDER BY hours, first_hour"
    ).fetchall()


def _parts(db: Statements, scope: TrafficScope, period_hours: int) -> Sequence[_Part]:
    """Return parts that cover a scope, from its first to its last hour, both whole."""
    first = 0 if scope.since_ns is None else max(0, scope.since_ns // HOUR_NS)
    end = _LAST if scope.until_ns is None else min(_LAST, -(-scope.until_ns // HOUR_NS))
    touched = _touched(db)
    days = sorted({place // DAY * DAY for _, place in touched})
    places = {1: [place for width, place in touched if width == 1], DAY: days}
    found = list(_cover(first, end, 1 if period_hours % DAY else DAY, places))
    if len(found) > _MOST_PARTS:
        return [_Part(_ROWS, first, end)]
    return found or [_Part(1, first, first)]


def _cover(first: int, end: int, width: int, touched: Mapping[int, Sequence[int]]) -> Iterator[_Part]:
    """Yield the parts of a range: sums by this many hours where they hold, else narrower ones, or rows."""
    if first >= end or width == _ROWS:
        yield from [_Part(width, first, end)] if first < end else []
        return
    begin, stop = -(-first // width) * width, end // width * width
    if begin > stop:
        begin = stop = end
    within = ((place, place + width) for place in touched[width] if begin <= place < stop)
    narrower = 1 if width == DAY else _ROWS
    low = high = first
    for start, finish in [(first, begin), *within, (stop, end)]:
        if start > high:
            yield from _cover(low, high, narrower, touched)
            yield _Part(width, high, start)
            low = start
        high = finish
    yield from _cover(low, high, narrower, touched)


# -- overviews -----------------------------------------------------------------------------------------------
_VERDICTS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
_MOMENTS: Final = tuple(COLUMNS["answer_metric_sum"])
_MOST_NAMES: Final = 1_000
_DIMENSIONS: Final = ("service", "model", "prompt_version", "tenant")
_VERSIONS: Final = ("service_version", "prompt_version")


def sums(db: Statements, scope: TrafficScope) -> Sums:
    names = ("answers", "cost_usd", "unpriced", *LABELS.values(), *_VERDICTS)
    totals, causes = _totals(db, scope, names), _causes(db, scope)
    return Sums(
        answers=int(totals["answers"]),
        labels={label: int(totals[name]) for label, name in LABELS.items() if totals[name]},
        verdicts={verdict: int(totals[verdict.value]) for verdict in _VERDICTS if totals[verdict.value]},
        blames=_most_frequent(causes, BLAME),
        reasons=_most_frequent(causes, REASON),
        cost_usd=totals["cost_usd"],
        unpriced=int(totals["unpriced"]),
    )


def quadrant(db: Statements, scope: TrafficScope) -> Quadrant | None:
    """Return the answers by whether chunk precision and faithfulness pass; ``None`` without any."""
    names = tuple(Quadrant.__dataclass_fields__)
    found = {name: int(number) for name, number in _totals(db, scope, names).items()}
    return Quadrant(**found) if any(found.values()) else None


def _totals(db: Statements, scope: TrafficScope, names: Sequence[str]) -> dict[str, float]:
    return dict(zip(names, summed(db, "answer_sum", scope, names)[()], strict=True))


def _causes(db: Statements, scope: TrafficScope) -> dict[str, int]:
    known = [name for (name,) in db.execute(names_in("answer_cause_sum", hours=1)).fetchall()]
    found = summed(db, "answer_cause_sum", scope, ["answers"], by=["cause"], names=known)
    return {cause: int(number) for (cause,), (number,) in found.items()}


def _most_frequent(causes: Mapping[str, int], kind: str) -> dict[str, int]:
    """Return the causes of a kind, the most frequent first, then by name."""
    found = ((cause.removeprefix(kind), number) for cause, number in causes.items() if cause.startswith(kind))
    return dict(sorted(found, key=lambda each: (-each[1], each[0])))


def metrics(db: Statements, scope: TrafficScope) -> Sequence[str]:
    """Return the names of the metrics that occur, faithfulness first."""
    parts = sources(db, "answer_metric_sum", scope, ["answers"], Condition("= name"), DAY)
    occurs = " OR ".join(f"EXISTS ({part.sql})" for part in parts)
    found = db.execute(
        f"{names_in('answer_score')} AND ({occurs}) LIMIT {_MOST_NAMES}",
        [value for part in parts for value in part.values],
    )
    return sorted((name for (name,) in found), key=first_faithfulness)


def trends(
    db: Statements, metrics: Sequence[str], scope: TrafficScope, *, period_ns: int
) -> list[MetricTrend]:
    """Return metrics over time.

    Raises:
        ValueError: the period is not a multiple of an hour.
    """
    period, rest = divmod(period_ns, HOUR_NS)
    if rest or period < 1:
        raise ValueError(f"a period of {period_ns} ns is no multiple of an hour")
    names = [clean(metric) for metric in metrics]
    by = ["metric", "first_hour"]
    found = summed(db, "answer_metric_sum", scope, _MOMENTS, by=by, names=names, period_hours=period)
    shown = []
    for metric, name in zip(metrics, names, strict=True):
        periods = {start: amounts for (of, start), amounts in sorted(found.items()) if of == name}
        first_ns = scope.since_ns if scope.since_ns is not None else min(periods, default=0) * HOUR_NS
        whole: list[float] = [sum(each) for each in zip(*periods.values(), strict=True)]
        shown.append(
            MetricTrend(
                metric=metric,
                lower_is_better=is_lower_better(db, name),
                whole=_point(first_ns, whole or [0.0] * len(_MOMENTS)),
                points=tuple(_point(start * HOUR_NS, amounts) for start, amounts in periods.items()),
                period_ns=period_ns,
            )
        )
    return shown


def is_lower_better(db: Statements, metric: str) -> bool:
    row = db.execute(
        "SELECT is_lower_better FROM answer_score WHERE metric = ? AND label IN ('pass', 'fail')"
        " AND score >= 0 LIMIT 1",
        (clean(metric),),
    ).fetchone()
    return bool(row and row[0])


def _point(start_ns: int, found: Sequence[float]) -> TrendPoint:
    told = dict(zip(_MOMENTS, found, strict=True))

    def moments(name: str) -> Moments:
        return Moments(
            told["weight"],
            told[name],
            told["weight_weight"],
            told[f"weight_{name}"],
            told[f"{name}_{name}"],
        )

    records = {"records": int(told["weighed"]), "left_out": int(told["left_out"])}
    return TrendPoint(
        start_ns=start_ns,
        mean=mean_of(moments("score"), **records),
        passing=mean_of(moments("passing"), **records),
        answers=int(told["answers"]),
    )


def values(db: Statements, dimension: str, scope: TrafficScope, *, limit: int) -> Mapping[str, int]:
    """Return the values of a dimension with their number of answers, the most frequent first.

    Raises:
        ValueError: there is no such dimension.
    """
    if dimension == "blame":
        return dict(list(_most_frequent(_causes(db, scope), BLAME).items())[:limit])
    if dimension not in _DIMENSIONS:
        raise ValueError(f"there is no dimension {dimension!r}")
    names = dict(db.execute(f"SELECT id, {dimension} FROM answer_stream").fetchall())
    totals = Counter[str]()
    for (stream,), (answers,) in summed(db, "answer_sum", scope, ["answers"], by=["stream"]).items():
        totals[names[stream]] += int(answers)
    return dict(sorted(totals.items(), key=lambda each: (-each[1], each[0]))[:limit])


def releases(db: Statements, scope: TrafficScope) -> list[Release]:
    names = stream_names(scope)
    rows = db.execute(
        f"SELECT service, {', '.join(_VERSIONS)}, (SELECT time_ns FROM answer_row"
        " WHERE stream = answer_stream.id AND is_valid = 1 ORDER BY time_ns LIMIT 1)"
        f" FROM answer_stream{' WHERE ' if names.sql else ''}{names.sql}",
        names.values,
    )
    first: dict[tuple[str, str], dict[str, int]] = {}
    for service, *versions, time_ns in rows.fetchall():
        for dimension, version in zip(_VERSIONS, versions, strict=True):
            if time_ns is not None:
                seen = first.setdefault((dimension, service), {})
                hour_ns = time_ns // HOUR_NS * HOUR_NS
                seen[version] = min(hour_ns, seen.get(version, hour_ns))
    since_ns, until_ns = scope.since_ns or 0, scope.until_ns if scope.until_ns is not None else 2**63
    return sorted(
        (
            Release(at_ns=at_ns, service=service, dimension=dimension, value=version)
            for (dimension, service), seen in first.items()
            for version, at_ns in seen.items()
            if version and at_ns > min(seen.values()) and since_ns <= at_ns < until_ns
        ),
        key=lambda release: (release.at_ns, release.service, release.dimension),
    )


def newest_ns(db: Statements, scope: TrafficScope) -> int | None:
    times = times_of(scope)
    newest = (
        f"SELECT time_ns FROM answer_row WHERE is_valid = 1 AND {times.sql}{{}} ORDER BY time_ns DESC LIMIT 1"
    )
    names = stream_names(scope)
    if not names.sql:
        row = db.execute(newest.format(""), times.values).fetchone()
    else:
        of_stream = newest.format(" AND stream = answer_stream.id")
        row = db.execute(
            f"SELECT max(({of_stream})) FROM answer_stream WHERE {names.sql}", (*times.values, *names.values)
        ).fetchone()
    return None if row is None else row[0]
