"""PromQL over the declared metrics: every name of a metric and an attribute comes from their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace_collector.operations.metrics import METRICS, Instrument, InstrumentKind
from ragtrace_collector.telemetry.scores import DIMENSIONS, ScoreMetric, ScoreMetricKind

METRIC: Final = "metric"
"""The variable that holds one metric's name, such as faithfulness."""
WINDOW: Final = "$window"
"""The sliding window of a trend: a variable, because how many answers make a point is the reader's choice."""
RANGE: Final = "$__range"
"""The time range that the reader chose."""


_OWN: Final = {metric.name: metric for metric in METRICS}


def label(attribute: str) -> str:
    return attribute.replace(".", "_")


def filters(*more: str) -> str:
    """Return the matchers of all variables of traffic, and more of them."""
    chosen = (f'{label(dimension.attribute)}=~"${dimension.key}"' for dimension in DIMENSIONS)
    return ",".join((*chosen, *more))


def gauge(name: str, *matchers: str) -> str:
    """Return the series of one of the collector's own metrics.

    Raises:
        KeyError: it is not declared.
    """
    return f"{_name_of(_OWN[name])}{{{','.join(matchers)}}}" if matchers else _name_of(_OWN[name])


def _name_of(metric: Instrument) -> str:
    unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
    return label(metric.name) + unit + ("_total" if metric.kind is InstrumentKind.COUNTER else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much a score metric grew in a window, over all series that the variables choose."""

    metric: ScoreMetric
    part: str = ""
    """Of a histogram: ``sum``, ``count`` or ``bucket``."""
    matchers: Sequence[str] = ()
    by: Sequence[str] = ()
    """Attributes that stay apart."""
    window: str = WINDOW

    def __str__(self) -> str:
        kept = f" by ({', '.join(map(label, self.by))})" if self.by else ""
        return f"sum{kept} (increase({self._series}{{{filters(*self.matchers)}}}[{self.window}]))"

    @property
    def _series(self) -> str:
        suffix = "total" if self.metric.kind is ScoreMetricKind.SUM else self.part
        assert suffix, self.metric
        return f"{label(self.metric.name)}_{suffix}"


MODEL_CHANGES: Final = (
    f"(sum(increase({gauge('ragtrace.judge.model_changes')}[$__rate_interval])) or vector(0))"
)
"""How often the judge answered as another model than before; 0 where nothing tells its model."""
