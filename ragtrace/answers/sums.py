"""Overviews of the index: what rows of a scope add up to, and metrics over time.

A mean from a sample needs sums over traces, whose answers are sampled together (`ragtrace.stats`): of the
weights of its answers, of their weighted scores, and of the products of these two. The answers of a trace in
one period are one cluster: if a trace lasts longer, means are exact, and the interval is a little too short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ragtrace.answers.filters import clean, in_scope
from ragtrace.answers.port import MetricTrend, Quadrant, Release, Sums, TrafficScope, TrendPoint
from ragtrace.answers.summary import first_faithfulness
from ragtrace.model import CLAIM_LABELS, Label
from ragtrace.sql import Db
from ragtrace.stats import Moments, mean_of

_HOUR_NS: Final = 3_600_000_000_000
_DIMENSIONS: Final = ("service", "model", "prompt_version", "tenant", "blame")
_VERSIONS: Final = ("service_version", "prompt_version")
_NEWEST: Final = 20_000
_QUADRANT: Final = {
    "healthy": ("pass", "pass"),
    "generation_problem": ("pass", "fail"),
    "retrieval_noise": ("fail", "pass"),
    "retrieval_failure": ("fail", "fail"),
}
"""Labels of chunk precision and of faithfulness."""


# SQLite takes the tables of a CROSS JOIN in this order: the rows of a scope first, then their scores.


def _number(condition: str) -> str:
    return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"


def sums(db: Db, scope: TrafficScope) -> Sums:
    """Return a scope in numbers."""
    rows = in_scope(scope)
    numbers = [_number(f"label = '{label}'") for label in Label]
    numbers += [f"sum({verdict})" for verdict in CLAIM_LABELS]
    found = db.execute(
        f"SELECT count(*), sum(cost_usd), {_number('cost_usd IS NULL')}, {', '.join(numbers)}"
        f" FROM answer_row WHERE {rows.sql}",
        rows.values,
    ).fetchone()
    answers, cost_usd, unpriced, *counted = (number or 0 for number in found)
    by_name = dict(zip((*Label, *CLAIM_LABELS), map(int, counted), strict=True))
    return Sums(
        answers=int(answers),
        labels={label: by_name[label] for label in Label if by_name[label]},
        verdicts={verdict: by_name[verdict] for verdict in CLAIM_LABELS if by_name[verdict]},
        blames=_most_frequent(db, "blame", scope),
        reasons=_most_frequent(db, "reason", scope),
        cost_usd=float(cost_usd),
        unpriced=int(unpriced),
    )


def _most_frequent(db: Db, column: str, scope: TrafficScope) -> dict[str, int]:
    """Return the texts of a column with their number of rows, the most frequent first, then by name."""
    rows = in_scope(scope)
    found = db.execute(
        f"SELECT {column}, count(*) FROM answer_row WHERE {rows.sql} AND {column} != ''"
        f" GROUP BY {column} ORDER BY count(*) DESC, {column}",
        rows.values,
    )
    return dict(found.fetchall())


def quadrant(db: Db, scope: TrafficScope) -> Quadrant | None:
    """Return the answers by whether chunk precision and faithfulness pass; ``None`` without any."""
    rows = in_scope(scope)
    found = db.execute(
        "SELECT precise.label, faithful.label, count(*) FROM answer_row"
        " CROSS JOIN answer_score AS precise CROSS JOIN answer_score AS faithful"
        " WHERE precise.answer = id AND precise.metric = 'chunk_precision'"
        " AND faithful.answer = id AND faithful.metric = 'faithfulness'"
        f" AND {rows.sql} GROUP BY precise.label, faithful.label",
        rows.values,
    )
    counted = {(precise, faithful): number for precise, faithful, number in found.fetchall()}
    named = {name: counted.get(labels, 0) for name, labels in _QUADRANT.items()}
    return Quadrant(**named) if any(named.values()) else None


_NAMED: Final = (
    "WITH RECURSIVE named (name) AS (SELECT min(metric) FROM answer_score UNION ALL"
    " SELECT (SELECT min(metric) FROM answer_score WHERE metric > name) FROM named WHERE name IS NOT NULL)"
)
"""The names of metrics, without a look at all scores."""


def metrics(db: Db, scope: TrafficScope) -> Sequence[str]:
    """Return the names of the metrics that occur, faithfulness first."""
    rows = in_scope(scope)
    found = db.execute(
        f"{_NAMED} SELECT name FROM named WHERE EXISTS (SELECT 1 FROM answer_row"
        f" CROSS JOIN answer_score WHERE answer = id AND metric = name AND {rows.sql})",
        rows.values,
    )
    return sorted((name for (name,) in found.fetchall()), key=first_faithfulness)


_IS_SCORED: Final = "score IS NOT NULL AND answer_score.label IN ('pass', 'fail')"
_IS_WEIGHED: Final = f"{_IS_SCORED} AND probability IS NOT NULL"
_WEIGHT: Final = "1.0 / CASE WHEN probability < 0.000001 THEN 0.000001 ELSE probability END"
"""A lower sampling probability counts as this one."""
_PASSING: Final = "CASE WHEN answer_score.label = 'pass' THEN 1.0 ELSE 0.0 END"
_OF_TRACE: Final = {
    "answers": "count(*)",
    "weighed": _number(_IS_WEIGHED),
    "left_out": _number(f"{_IS_SCORED} AND probability IS NULL"),
    **{
        name: f"sum(CASE WHEN {_IS_WEIGHED} THEN {_WEIGHT} * {value} ELSE 0.0 END)"
        for name, value in (("weight", "1.0"), ("scores", "score"), ("passing", _PASSING))
    },
}
_MOMENTS: Final = {
    **{name: f"sum({name})" for name in _OF_TRACE},
    "weight_weight": "sum(weight * weight)",
    **{f"weight_{name}": f"sum(weight * {name})" for name in ("scores", "passing")},
    **{f"{name}_{name}": f"sum({name} * {name})" for name in ("scores", "passing")},
}


def _columns(expressions: Mapping[str, str]) -> str:
    return ", ".join(f"{expression} AS {name}" for name, expression in expressions.items())


def trend(db: Db, metric: str, scope: TrafficScope, *, period_ns: int) -> MetricTrend:
    """Return a metric over time."""
    periods = _moments_by(f"time_ns / {period_ns} * {period_ns}", db, metric, scope)
    first_ns = scope.since_ns if scope.since_ns is not None else min(periods, default=0)
    whole: list[float] = [sum(each) for each in zip(*periods.values(), strict=True)]
    return MetricTrend(
        metric=metric,
        lower_is_better=is_lower_better(db, metric),
        whole=_point(first_ns, whole or [0.0] * len(_MOMENTS)),
        points=tuple(_point(start_ns, amounts) for start_ns, amounts in periods.items()),
        period_ns=period_ns,
    )


def compared(
    db: Db, metric: str, dimension: str, scope: TrafficScope, *, limit: int
) -> Mapping[str, TrendPoint]:
    """Return a metric by the values of a dimension, those with most answers first.

    Raises:
        ValueError: there is no such dimension.
    """
    found = _moments_by(_known(dimension), db, metric, scope)
    points = {name: _point(scope.since_ns or 0, amounts) for name, amounts in found.items() if name}
    most_first = sorted(points.items(), key=lambda named: (-named[1].answers, named[0]))
    return dict(most_first[:limit])


def _moments_by(part: str, db: Db, metric: str, scope: TrafficScope) -> dict[Any, list[float]]:
    rows = in_scope(scope)
    found = db.execute(
        f"SELECT part, {', '.join(_MOMENTS.values())} FROM"
        f" (SELECT {part} AS part, {_columns(_OF_TRACE)} FROM answer_row"
        f" CROSS JOIN answer_score WHERE answer = id AND metric = ? AND {rows.sql}"
        " GROUP BY 1, trace_id, tenant) AS of_trace GROUP BY part ORDER BY part",
        (clean(metric), *rows.values),
    )
    return {key: list(map(float, amounts)) for key, *amounts in found.fetchall()}


def _known(dimension: str) -> str:
    if dimension not in _DIMENSIONS:
        raise ValueError(f"there is no dimension {dimension!r}")
    return dimension


def is_lower_better(db: Db, metric: str) -> bool:
    """Return whether a low score of a metric is good."""
    row = db.execute(
        "SELECT is_lower_better FROM answer_score WHERE metric = ? AND score >= 0 LIMIT 1", (clean(metric),)
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
        mean=mean_of(moments("scores"), **records),
        passing=mean_of(moments("passing"), **records),
        answers=int(told["answers"]),
    )


def values(db: Db, dimension: str, scope: TrafficScope, *, limit: int) -> Mapping[str, int]:
    """Return the values of a dimension with their number among the newest answers, the most frequent first.

    Raises:
        ValueError: there is no such dimension.
    """
    rows, dimension = in_scope(scope), _known(dimension)
    found = db.execute(
        f"SELECT {dimension}, count(*) FROM (SELECT {dimension} FROM answer_row WHERE {rows.sql}"
        f" ORDER BY time_ns DESC LIMIT ?) AS newest WHERE {dimension} != ''"
        f" GROUP BY {dimension} ORDER BY count(*) DESC, {dimension} LIMIT ?",
        (*rows.values, _NEWEST, limit),
    )
    return dict(found.fetchall())


def releases(db: Db, scope: TrafficScope) -> list[Release]:
    """Return the releases of a scope, in order of time."""
    rows = in_scope(replace(scope, since_ns=None, until_ns=None))
    names = f"service, {', '.join(_VERSIONS)}"
    found = db.execute(
        f"SELECT {names}, min(time_ns) FROM answer_row WHERE {rows.sql} GROUP BY {names}", rows.values
    )
    first: dict[tuple[str, str], dict[str, int]] = {}
    for service, *versions, time_ns in found.fetchall():
        hour_ns = time_ns // _HOUR_NS * _HOUR_NS
        for dimension, version in zip(_VERSIONS, versions, strict=True):
            seen = first.setdefault((dimension, service), {})
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


def newest_ns(db: Db, scope: TrafficScope) -> int | None:
    """Return the time of the newest answer; ``None`` without any."""
    rows = in_scope(scope)
    query = f"SELECT time_ns FROM answer_row WHERE {rows.sql} ORDER BY time_ns DESC LIMIT 1"
    found = db.execute(query, rows.values).fetchone()
    return None if found is None else found[0]
