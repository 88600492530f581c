"""Metrics by name: the built-in ones, those of installed plug-ins (entry points ``ragtrace.metrics``), and
what an address names (``./my_metric.py:Politeness`` or ``module:Politeness``).

An entry point is named after its metric, or ``<metric>.<profile>`` where it follows the rules of another
tool, and gives a callable ``(*, threshold: float = …) -> Metric``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragtrace.errors import ConfigError
from ragtrace.metrics.strangers import make_metric
from ragtrace.model import Direction, Part
from ragtrace.plugins import Address, find_plugins, load_address, load_plugin
from ragtrace.ports import Metric

__all__ = ["MetricInfo", "available_metrics", "metric_named"]

GROUP = "ragtrace.metrics"
OWN_PROFILE = "ragtrace"
_BUILT_IN = {"faithfulness": "ragtrace.metrics.faithfulness:Faithfulness"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """What there is to know of a metric before it runs."""

    name: str
    profile: str
    needs: tuple[Part, ...]
    """The parts of a record without which it is skipped."""
    direction: Direction
    threshold: float
    """Where ``pass`` begins by default."""
    description: str
    """One line for people."""


def metric_named(name: str, *, profile: str = OWN_PROFILE, threshold: float | None = None) -> Metric:
    """Make the metric of this name, or at this address.

    Raises:
        ConfigError: there is no such metric, or it is none; the message lists those there are.
    """
    options = {} if threshold is None else {"threshold": threshold}
    if address := Address.parse(name):
        return make_metric(load_address(address), named=name, **options)
    points = find_plugins(GROUP, _BUILT_IN)
    key = name if profile == OWN_PROFILE else f"{name}.{profile}"
    if key not in points:
        there = ", ".join(sorted(points))
        raise ConfigError(f"there is no metric {key!r}: choose from {there}, or name code: ./FILE.py:NAME")
    return make_metric(load_plugin(points[key]), named=key, **options)


def available_metrics() -> tuple[MetricInfo, ...]:
    """List the metrics that can be named, in the order of their names."""
    points = find_plugins(GROUP, _BUILT_IN)
    return tuple(_describe(name, load_plugin(points[name])) for name in sorted(points))


def _describe(name: str, make: Any) -> MetricInfo:
    metric = make_metric(make, named=name)
    return MetricInfo(
        name=metric.name,
        profile=metric.profile,
        needs=tuple(getattr(metric, "needs", ())),
        direction=metric.direction,
        threshold=metric.threshold,
        description=(type(metric).__doc__ or "").strip().partition("\n")[0],
    )
