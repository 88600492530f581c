"""The questions to Prometheus that the rules of an objective ask."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ragtrace import semconv
from ragtrace_collector.alerts.objectives import BurnRate, GoodBy
from ragtrace_collector.config import SloConfig

_WEIGHTED: Final = "ragtrace_evaluation_score_weighted"
"""Counts each judged answer as the answers of the whole traffic that it represents."""
_RAW: Final = "ragtrace_evaluation_score"
_LABELS: Final = {
    "service": semconv.SERVICE_NAME,
    "model": semconv.REQUEST_MODEL,
    "prompt_version": semconv.PROMPT_VERSION,
    "tenant": semconv.TENANT,
}
_UNITS: Final = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SloQueries:
    """The expressions of one objective."""

    slo: SloConfig
    good_by: GoodBy

    def failing(self, window: timedelta) -> str:
        """Ask which share of the answers of a window failed, of all traffic: no value without answers."""
        every = self._count(_WEIGHTED, window)
        if self.good_by.bound is None:
            failed = self._count(_WEIGHTED, window, f'{_label(semconv.EVALUATION_LABEL)}="fail"')
            return f"(({failed} or 0 * {every}) / ({every} > 0))"
        bound = '=~"0|0.0"' if self.good_by.bound == "0.0" else f'="{self.good_by.bound}"'
        selected = f"{_WEIGHTED}_bucket{{{self._selector()},le{bound}}}[{written(window)}]"
        return f"(sum(increase({selected})) / ({every} > 0))"

    def judged(self, window: timedelta) -> str:
        """Ask how many answers were judged in a window: the denominator that noise depends on."""
        return self._count(_RAW, window)

    def _count(self, name: str, window: timedelta, *more: str) -> str:
        return f"sum(increase({name}_count{{{self._selector(*more)}}}[{written(window)}]))"

    def _selector(self, *more: str) -> str:
        named = {semconv.EVALUATION_NAME: self.slo.metric}
        named |= {_LABELS[key]: value for key, value in self.slo.dimensions.items()}
        return ",".join([*(f"{_label(key)}={_quoted(value)}" for key, value in named.items()), *more])


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNames:
    """How the shares and counts of an objective's windows are written in its alerts."""

    queries: SloQueries
    recorded: bool
    """Whether recording rules hold them; else each alert asks for them itself."""

    def failing(self, window: timedelta) -> str:
        """Return the share of failing answers."""
        return self._recorded("failing", window) if self.recorded else self.queries.failing(window)

    def judged(self, window: timedelta) -> str:
        """Return the number of judged answers."""
        return self._recorded("judged", window) if self.recorded else self.queries.judged(window)

    def burning(self, pair: BurnRate) -> str:
        """Ask whether both windows fail too much: the share of the longer one, or no value.

        The shorter window ends the alert soon after the trouble. Without an answer in it, which is common
        where few are judged, it says nothing, and the longer one alone decides.
        """
        long, short = self.failing(pair.long), self.failing(pair.short)
        return (
            f"({long} > {pair.failing:g})\n"
            f"and ({short} > {pair.failing:g} or {long} unless {short})\n"
            f"and ({self.judged(pair.long)} >= {pair.fewest})"
        )

    def _recorded(self, what: str, window: timedelta) -> str:
        return f'{recorded_name(what, window)}{{slo="{self.queries.slo.name}"}}'


def recorded_name(what: str, window: timedelta) -> str:
    """Return the name of a recording rule, after Prometheus' convention ``level:metric:operation``."""
    operation = "ratio_increase" if what == "failing" else "increase"
    return f"slo:ragtrace_{what}:{operation}{written(window)}"


def written(window: timedelta) -> str:
    """Write a duration as Prometheus does: ``5m``, ``3d``."""
    for unit, length in _UNITS:
        if not window % length:
            return f"{window // length}{unit}"
    return f"{max(1, int(window.total_seconds()))}s"


def _label(key: str) -> str:
    return key.replace(".", "_")


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
