"""Reports as a page: one self-contained HTML file, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ragtrace.answers.shown import SKIP_MEANINGS, shown_answer
from ragtrace.model import Direction
from ragtrace.outcomes import JudgedAnswer, Status
from ragtrace.reports._files import replaced_file
from ragtrace.reports._histogram import Histogram, draw
from ragtrace.reports._totals import HistogramBin, MetricTotals, Totals
from ragtrace.reports._worst import WorstAnswers
from ragtrace.reports.report import RunEnd, RunInfo
from ragtrace.reports.tally import MetricTally
from ragtrace.reports.templates import open_template
from ragtrace.stats import WeightedMean

if TYPE_CHECKING:
    from jinja2 import Template


WORST: Final = 50


class PageReport:
    """Counts, keeps the worst answers, and writes the page at the end."""

    def __init__(self, path: Path, about: RunInfo, *, worst: int = WORST) -> None:
        self.path = path
        self._about = about
        self._totals = Totals()
        self._worst = WorstAnswers(worst)
        self._file = replaced_file(path)

    def add(self, answer: JudgedAnswer) -> None:
        """Count an answer."""
        self._totals.add(answer)
        self._worst.add(answer)

    def close(self, ending: RunEnd) -> None:
        """Write the page."""
        page = _template().render(
            about=self._about,
            ending=ending,
            totals=self._totals,
            metrics=[_shown_metric(metric) for metric in self._totals.metrics.values()],
            worst=[
                (rank, _trace_url(self._about.trace_url, answer), shown_answer(answer))
                for rank, answer in enumerate(self._worst, start=1)
            ],
            meanings=SKIP_MEANINGS,
            Status=Status,
        )
        self._file.file.write(page.encode("utf-8", "replace"))
        self._file.commit()

    def abandon(self) -> None:
        """Keep the earlier file."""
        self._file.abandon()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownMetric:
    """A metric's numbers and histogram."""

    tally: MetricTally
    threshold: float | None
    pass_when: str | None
    mean: WeightedMean | None
    passing: WeightedMean | None
    bins: tuple[HistogramBin, ...]
    picture: Histogram
    lower_is_better: bool


def _shown_metric(metric: MetricTotals) -> _ShownMetric:
    mean, direction = metric.mean.estimate(), metric.tally.direction
    return _ShownMetric(
        tally=metric.tally,
        threshold=metric.threshold,
        pass_when=metric.pass_when,
        mean=mean,
        passing=metric.passing.estimate(),
        bins=metric.bins,
        picture=draw(metric.bins, mean, threshold=metric.threshold),
        lower_is_better=direction is Direction.LOWER_IS_BETTER,
    )


def _trace_url(template: str | None, answer: JudgedAnswer) -> str | None:
    target = answer.record.target
    if template is None or target is None:
        return None
    url = template.replace("{trace_id}", quote(target.trace_id, safe=""))
    return url.replace("{span_id}", quote(target.span_id, safe=""))


@cache
def _template() -> Template:
    return open_template(
        "reports/page.html",
        count="{:,}".format,
        money=_money,
        moment=_moment,
        percent=_percent,
        score="{:.2f}".format,
        words=_words,
    )


def _money(dollars: float) -> str:
    return f"${dollars:.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _percent(share: float) -> str:
    return f"{100 * share:.{1 if 0 < share < 0.1 else 0}f}\N{NO-BREAK SPACE}%"


def _words(name: str) -> str:
    return name.replace("_", " ")
