"""Validates plug-in metrics and their results."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any, Final, cast

from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.model import Direction, MetricFailure, MetricResult
from ragtrace.ports import Metric

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""A name that can be part of an attribute key."""


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
    valid = valid_metric(metric, named=named)
    threshold: object = getattr(metric, "threshold", None)
    if valid.pass_when is None and not (isinstance(threshold, float | int) and math.isfinite(threshold)):
        raise ConfigError(f"{named!r} gives no metric: {valid.name!r} has no `threshold`, a number")
    return valid


def valid_metric(metric: object, *, named: str) -> Metric:
    """Return what is a metric in form.

    Raises:
        ConfigError: it is none; says what it lacks.
    """
    lack = _lack(metric)
    if lack is not None:
        raise ConfigError(f"{named!r} gives no metric: {lack} (see ragtrace.ports.Metric)")
    return cast(Metric, metric)


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


def _lack(metric: Any) -> str | None:
    for attribute in ("name", "profile", "version"):
        value = getattr(metric, attribute, None)
        if not isinstance(value, str) or not value:
            return f"a {type(metric).__name__} without `{attribute}`, a text"
    name = getattr(metric, "name", "")
    if not _NAME.fullmatch(name):
        return f"its name {name!r} cannot be part of an attribute key"
    if not isinstance(getattr(metric, "direction", None), Direction):
        return f"{name!r} has no `direction`, a ragtrace.model.Direction"
    if not inspect.iscoroutinefunction(getattr(metric, "measure", None)):
        return f"{name!r} has no `async def measure(record, steps)`"
    for attribute in ("needs", "uses", "prompts", "pass_when"):
        if not hasattr(metric, attribute):
            return f"{name!r} has no `{attribute}`: inherit the port, which has a default"
    return None
