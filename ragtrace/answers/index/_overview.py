"""Overviews, from sums.

**What is approximated.** Sums are over whole hours, so a scope reaches from its first to its last hour. The
answers of a trace are one cluster within an hour and a stream, or, where days are summed, within a day and a
stream. A trace that lasts longer, or that has several models or prompt versions, is several clusters: means
are exact in any case, and then the interval is a little too short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ragtrace.answers.index._filter import LABELS, Condition, clean, stream_names, times_of
from ragtrace.answers.index.sums import BLAME, COLUMNS, DAY, HOUR_NS, REASON, names_in, sources, summed
from ragtrace.answers.port import MetricTrend, Quadrant, Release, Sums, TrafficScope, TrendPoint
from ragtrace.answers.summary import first_faithfulness
from ragtrace.model import VerdictLabel
from ragtrace.sql import Statements
from ragtrace.stats import Moments, mean_of

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
