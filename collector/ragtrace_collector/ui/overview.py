"""The overview: trends, comparisons, the worst answers, and how the collector is."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import AnswerFilter, MetricTrend, Quadrant, SortBy, Sums, TrafficScope, TrendPoint
from ragtrace.answers.summary import AnswerSummary
from ragtrace.errors import InputError, RagtraceError
from ragtrace.model import Label
from ragtrace.quality import compared
from ragtrace.quality.comparing import ComparedSide, compare, newest_answers
from ragtrace.quality.wording import sentence
from ragtrace.reviews import METRIC, ReviewFile
from ragtrace.stats import WeightedMean
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.ui.review import corrected_metric
from ragtrace_collector.ui.security import scoped
from ragtrace_collector.ui.site import (
    ListQuery,
    Site,
    check_parameters,
    read_query,
    render,
    site_of,
    values_of,
    viewer_of,
)

WIDTH: Final = 1_000
HEIGHT: Final = 200
_LEAST_RANGE: Final = 0.2
_TICK: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """One period of a trend, where it is in the picture."""

    x: float
    y: float
    left: float
    """Where its part of the picture begins."""
    width: float
    start_ns: int
    end_ns: int
    mean: WeightedMean
    answers: int


class Chart:
    """The shapes of a trend: means with their intervals, a line and a band in each stretch without a gap."""

    def __init__(self, trend: MetricTrend, *, since_ns: int, until_ns: int) -> None:
        scored = [(point, point.mean) for point in trend.points if point.mean is not None]
        self.low, self.high = _range_of([mean for _, mean in scored])
        """The scores at the bottom and at the top."""
        self.begin_ns = since_ns - since_ns % trend.period_ns
        self.end_ns = max(until_ns, self.begin_ns + trend.period_ns)
        self.points = [self._placed(point, mean, trend.period_ns) for point, mean in scored]
        stretches = list(_stretches(self.points, trend.period_ns))
        self.lines = [" ".join(f"{each.x:.1f},{each.y:.1f}" for each in part) for part in stretches]
        """The ``points`` of SVG polylines."""
        self.bands = [self._band(part) for part in stretches]
        """The ``points`` of SVG polygons: the intervals."""

    def place(self, at_ns: int) -> float | None:
        """Return where a time is, from left to right; ``None`` outside."""
        is_inside = self.begin_ns <= at_ns <= self.end_ns
        return WIDTH * (at_ns - self.begin_ns) / (self.end_ns - self.begin_ns) if is_inside else None

    @property
    def middle(self) -> float:
        """The score halfway up."""
        return (self.low + self.high) / 2

    def _placed(self, point: TrendPoint, mean: WeightedMean, period_ns: int) -> ChartPoint:
        scale = WIDTH / (self.end_ns - self.begin_ns)
        begin = max(point.start_ns, self.begin_ns)
        end = min(point.start_ns + period_ns, self.end_ns)
        return ChartPoint(
            x=((begin + end) / 2 - self.begin_ns) * scale,
            y=self._height(mean.mean),
            left=(begin - self.begin_ns) * scale,
            width=max(1.0, (end - begin) * scale),
            start_ns=point.start_ns,
            end_ns=point.start_ns + period_ns,
            mean=mean,
            answers=point.answers,
        )

    def _height(self, score: float) -> float:
        return HEIGHT * (1 - (score - self.low) / (self.high - self.low))

    def _band(self, points: Sequence[ChartPoint]) -> str:
        ends = [(point, point.x) for point in points]
        if len(points) == 1:  # as wide as its period, to be seen at all
            (point,) = points
            ends = [(point, point.left), (point, point.left + point.width)]
        over = [(x, self._height(point.mean.high)) for point, x in ends]
        under = [(x, self._height(point.mean.low)) for point, x in reversed(ends)]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in [*over, *under])


def _range_of(means: Sequence[WeightedMean]) -> tuple[float, float]:
    """Return the scores at the bottom and at the top: whole tenths around all intervals."""
    if not means:
        return 0.0, 1.0
    low = max(0.0, math.floor(min(mean.low for mean in means) / _TICK) * _TICK)
    high = min(1.0, math.ceil(max(mean.high for mean in means) / _TICK) * _TICK)
    if high - low < _LEAST_RANGE:
        low = max(0.0, high - _LEAST_RANGE)
        high = low + _LEAST_RANGE
    return round(low, 1), round(high, 1)


def _stretches(points: Sequence[ChartPoint], period_ns: int) -> Iterator[list[ChartPoint]]:
    """Yield runs of periods without a gap: a line across a gap would show what nobody measured."""
    run: list[ChartPoint] = []
    for point in points:
        if run and point.start_ns - run[-1].start_ns > period_ns:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


log = logging.getLogger("ragtrace.collector")

_HOUR_NS: Final = 3_600_000_000_000
_DAY_NS: Final = 24 * _HOUR_NS
_FIELDS: Final = ("since", "until", "service", "model", "prompt_version", "tenant")
_DEFAULT_SINCE: Final = "7d"
_MOST_METRICS: Final = 6
_WORST: Final = 8
_COMPARED: Final = ("prompt_version", "model", "service")
_MOST_COMPARED: Final = 8
_MOST_OF_SIDE: Final = 20_000
_MOST_RELEASES: Final = 12
_WRONG_VERDICTS: Final = ("contradicted", "unsupported")
RANGES: Final[Mapping[str, str]] = {"24h": "24 hours", "7d": "7 days", "30d": "30 days", "90d": "90 days"}


def overview_routes() -> list[Route]:
    """Return the route ``overview``."""
    return [
        Route("/", show_overview, methods=["GET"], name="overview"),
        Route("/compare", show_comparison, methods=["GET"], name="compare"),
    ]


async def show_comparison(request: Request) -> Response:
    """Show two values of a dimension side by side: ``dimension``, ``a`` and ``b`` of the URL's query.

    Raises:
        InputError: there is no such dimension, or no value is named.
        ReadError: the index cannot be read.
    """
    check_parameters(request, *_FIELDS, "dimension", "a", "b")
    site, asked = site_of(request), request.query_params
    now_ns = site.clock.now_ns()
    query = read_query({"since": _DEFAULT_SINCE, **asked}, now_ns=now_ns)
    scope = whole_hours(scoped(request, query.chosen.scope), now_ns=now_ns)
    dimension, names = asked.get("dimension", ""), (asked.get("a", ""), asked.get("b", ""))
    if dimension not in _COMPARED or not all(names):
        raise InputError(f"a comparison needs `a`, `b` and a `dimension` of {', '.join(_COMPARED)}")
    if query.problems:
        raise InputError(" ".join(f"`{name}`: {problem}" for name, problem in query.problems.items()))
    sides = [
        await _side(site.index, name, replace(scope, **{dimension: name}))  # type: ignore[arg-type]
        for name in names
    ]
    return render(
        request,
        "compare.html",
        page="overview",
        query=query,
        scope=scope,
        dimension=dimension,
        found=await asyncio.to_thread(compare, *sides),
        say=compared,
        sentence=sentence,
    )


async def _side(index: AnswerIndex, name: str, scope: TrafficScope) -> ComparedSide:
    answers, has_more = await newest_answers(index, scope, most=_MOST_OF_SIDE)
    said = f"only the newest {_MOST_OF_SIDE:,} answers are compared: choose a shorter time"
    return ComparedSide(name=name, answers=answers, notices=(said,) if has_more else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything that the page shows of the index."""

    sums: Sums
    cards: Sequence[Mapping[str, Any]]
    """Each metric over the range, faithfulness also as people correct it, who reviewed answers at random."""
    more_metrics: Sequence[str]
    quadrant: Quadrant | None
    worst: Sequence[AnswerSummary]

    @property
    def judged(self) -> int:
        """Answers that pass or fail."""
        return self.sums.labels.get(Label.PASS, 0) + self.sums.labels.get(Label.FAIL, 0)

    @property
    def not_judged(self) -> int:
        """Answers that were skipped or failed."""
        return self.sums.answers - self.judged

    @property
    def claims(self) -> int:
        """Claims with a verdict, or without."""
        return sum(self.sums.verdicts.values())

    @property
    def wrong_claims(self) -> int:
        """Claims that are contradicted or unsupported."""
        return sum(number for verdict, number in self.sums.verdicts.items() if verdict in _WRONG_VERDICTS)


async def show_overview(request: Request) -> Response:
    """Show the overview of a scope, which is the URL's query."""
    check_parameters(request, *_FIELDS)
    site = site_of(request)
    typed = {name: value for name in _FIELDS if (value := request.query_params.get(name, "").strip())}
    now_ns = site.clock.now_ns()
    query = read_query({"since": _DEFAULT_SINCE, **typed}, now_ns=now_ns)
    scope = whole_hours(scoped(request, query.chosen.scope), now_ns=now_ns)
    has_problem = bool(query.problems)
    overview = None if has_problem else await read_overview(site.index, scope, reviews=site.reviews)
    everything = TrafficScope(tenant=scope.tenant)
    state = await _state(site, viewer_of(request).tenant)
    return render(
        request,
        "overview.html",
        status_code=400 if has_problem else 200,
        page="overview",
        query=query,
        ranges=RANGES,
        scope=scope,
        list_url=_list_url(request, query, scope),
        overview=overview if overview and overview.sums.answers else None,
        newest_ns=await site.index.newest_ns(everything),
        choices=await values_of(site.index, everything, "service", "model", "prompt_version", "tenant"),
        state=state,
        marks=await _marks(site.index, scope, (state or {}).get("drift") or {}),
        comparisons=await _comparisons(site.index, scope) if overview and overview.cards else (),
    )


def whole_hours(scope: TrafficScope, *, now_ns: int) -> TrafficScope:
    """Widen a scope to whole hours, as the sums have it: the lists that it links to have the same answers."""
    since_ns = scope.since_ns if scope.since_ns is not None else now_ns - 7 * _DAY_NS
    until_ns = min(scope.until_ns if scope.until_ns is not None else now_ns + 1, now_ns + _HOUR_NS)
    return replace(
        scope, since_ns=since_ns // _HOUR_NS * _HOUR_NS, until_ns=-(-until_ns // _HOUR_NS) * _HOUR_NS
    )


async def read_overview(
    index: AnswerIndex, scope: TrafficScope, *, reviews: ReviewFile | None = None
) -> Overview:
    """Read everything that the page shows of a scope.

    Raises:
        ReadError: the index cannot be read.
    """
    sums = await index.sums(scope)
    names = await index.metrics(scope)
    shown = names[:_MOST_METRICS]
    worst = AnswerFilter(scope=scope, metric=shown[0] if shown else None)
    cards = [
        {
            "trend": trend,
            "chart": Chart(trend, since_ns=scope.since_ns or 0, until_ns=scope.until_ns or 0),
            "mean": trend.whole.mean,
            "passing": trend.whole.passing,
            "people": await corrected_metric(index, scope, reviews, trend)
            if reviews is not None and trend.metric == METRIC
            else None,
        }
        for trend in await index.trends(shown, scope, period_ns=period_of(scope))
    ]
    return Overview(
        sums=sums,
        cards=cards,
        more_metrics=names[_MOST_METRICS:],
        quadrant=await index.quadrant(scope),
        worst=(await index.page(worst, sort=SortBy.WORST, limit=_WORST)).answers if shown else (),
    )


async def _comparisons(index: AnswerIndex, scope: TrafficScope) -> Sequence[Mapping[str, object]]:
    """Compare the first metric by prompt version, model and service, where a scope has several."""
    metric = (await index.metrics(scope))[0]
    found = {each: await index.compared(metric, each, scope, limit=_MOST_COMPARED) for each in _COMPARED}
    return [{"dimension": each, "rows": rows} for each, rows in found.items() if len(rows) > 1]


async def _marks(
    index: AnswerIndex, scope: TrafficScope, drift: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """Return the moments that trends mark: releases, the latest of many, and what the drift check found."""
    releases = [
        {"at_ns": found.at_ns, "what": f"{found.service} {found.dimension.replace('_', ' ')} {found.value}"}
        for found in await index.releases(scope)
    ]
    return sorted((*releases[-_MOST_RELEASES:], *drift.get("marks", ())), key=lambda mark: mark["at_ns"])


def period_of(scope: TrafficScope) -> int:
    """Return the length of a trend's periods: an hour for two days, six for ten days, else a day."""
    length_ns = (scope.until_ns or 0) - (scope.since_ns or 0)
    if length_ns <= 2 * _DAY_NS + _HOUR_NS:
        return _HOUR_NS
    return 6 * _HOUR_NS if length_ns <= 10 * _DAY_NS else _DAY_NS


async def _state(site: Site, tenant: str | None) -> Mapping[str, Any] | None:
    """Return the collector's own state; ``{}`` if it cannot be read now, ``None`` without a collector."""
    if site.status is None:
        return None
    try:
        return await site.status(tenant)
    except RagtraceError as exc:
        log.warning(
            "the overview shows no state of the collector: %s", exc, extra=event("overview_without_state")
        )
        return {}


def _list_url(request: Request, query: ListQuery, scope: TrafficScope) -> str:
    """Return the URL of the list of the same answers, to which a page adds conditions."""
    times = {"since": _rfc3339(scope.since_ns or 0), "until": _rfc3339(scope.until_ns or 0)}
    return f"{request.url_for('answers').path}?{query.url(**times)}"


def _rfc3339(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%dT%H:%M}"
