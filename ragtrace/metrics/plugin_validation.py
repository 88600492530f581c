"""Validates plug-in metrics and their results."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any, Final, cast
from warnings import warn

from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.model import Direction, MetricFailure, MetricResult
from ragtrace.ports import Metric

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""A name that can be part of an attribute key."""
_DECLARED: Final = ("needs", "uses", "prompts", "pass_when")
"""What the port declares with a default."""


def make_metric(make: Any, *, named: str, **options: Any) -> Metric:
    """Call a metric's factory; ``named`` is how the user asked for it.

    Raises:
        ConfigError: it does not take the options, fails, or returns something that is not a metric.
    """
    if not callable(make):
        raise ConfigError(f"metric {named!r} is a {type(make).__name__}: name a class or a function")
    try:
        metric = make(**options)  # plug-in code may raise anything
    except RagtraceError:
        raise
    except Exception as exc:
        _check_options(make, named, options)
        raise ConfigError(f"metric {named!r} cannot be made: {exc!r}") from exc
    lack = _lack(metric)
    if lack is None:
        with_declarations(cast(Metric, metric))
        lack = _lack_of_rule(cast(Metric, metric))
    if lack is not None:
        raise ConfigError(f"{named!r} returns no metric: {lack} (see ragtrace.ports.Metric)")
    return cast(Metric, metric)


def with_declarations(metric: Metric) -> Metric:
    """Return the metric. A class without what the port declares gets the port's defaults, and one warning.

    For plug-ins of an earlier release; it goes with the next one.
    """
    made = type(metric)
    if lacking := [name for name in _DECLARED if not hasattr(metric, name)]:
        for name in lacking:
            setattr(made, name, vars(Metric)[name])
        warn(
            f"metric {metric.name!r} ({made.__module__}.{made.__qualname__}) does not declare"
            f" {', '.join(f'`{name}`' for name in lacking)}: inherit ragtrace.ports.Metric, which has"
            " defaults; the next release takes no metric without them",
            DeprecationWarning,
            stacklevel=2,
        )
    return metric


def problem_in(result: object, metric: Metric) -> str | None:
    """Describe the fault of a metric's result; ``None`` if it is valid.

    An invalid score, or a missing one without a reason, must not reach a trace.
    """
    if not isinstance(result, MetricResult | MetricFailure):
        return f"it returned a {type(result).__name__} instead of a MetricResult"
    if (result.metric, result.profile) != (metric.name, metric.profile):
        return f"its result is called {result.metric!r} ({result.profile})"
    if isinstance(result, MetricFailure):
        return None
    try:
        hash((result.verdicts, result.chunk_verdicts))
    except TypeError as exc:
        return f"its verdicts are not frozen values (tuples, not lists): {exc}"
    if result.score is None:
        return None if result.skip_reason else "its result has neither a score nor a `skip_reason`"
    if not math.isfinite(result.score) or not 0 <= result.score <= 1:
        return f"its score is {result.score!r}, outside [0, 1]"
    if result.threshold is None and result.passed is None:
        return "its result says neither where `pass` begins (`threshold`) nor whether it `passed`"
    return "its result has a score and a `skip_reason`" if result.skip_reason else None


def _check_options(make: Any, named: str, options: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(make)
    except ValueError:  # some built-in callables have no signature
        return
    try:
        signature.bind(**options)
    except TypeError as exc:
        takes = ", ".join(f"`{name}`" for name in signature.parameters) or "none"
        raise ConfigError(f"metric {named!r} cannot be made: {exc} (its options: {takes})") from exc


def _lack(metric: object) -> str | None:
    for attribute in ("name", "profile", "version"):
        value = getattr(metric, attribute, None)
        if not isinstance(value, str) or not value:
            return f"a {type(metric).__name__} without `{attribute}`, a text"
    name = getattr(metric, "name", "")
    if not _NAME.fullmatch(name):
        return f"its name {name!r} cannot be part of an attribute key"
    if not isinstance(getattr(metric, "direction", None), Direction):
        return f"{name!r} has no `direction`, a ragtrace.model.Direction"
    return None if inspect.iscoroutinefunction(getattr(metric, "measure", None)) else _without_measure(name)


def _lack_of_rule(metric: Metric) -> str | None:
    threshold: object = getattr(metric, "threshold", None)
    if metric.pass_when is not None or (isinstance(threshold, float | int) and math.isfinite(threshold)):
        return None
    return f"{metric.name!r} has no `threshold`, a number"


def _without_measure(name: str) -> str:
    return f"{name!r} has no `async def measure(record, steps)`"
