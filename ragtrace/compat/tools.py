"""Other tools' metrics by name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import cast

from ragtrace.compat.tool import ToolMetric
from ragtrace.errors import ConfigError
from ragtrace.scoring import canonical

PROFILES = ("ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")
"""The profiles besides ragtrace's own."""

_MODULES = ("ragas", "ragas_legacy", "deepeval", "promptfoo", "rag_evals")


def tool_named(metric: str, profile: str) -> ToolMetric:
    """Return another tool's metric by ragtrace's name or the tool's.

    Raises:
        ConfigError: no such metric or tool; the message lists the available ones.
    """
    if profile not in PROFILES:
        raise ConfigError(f"there is no profile {profile!r}: choose from {', '.join(PROFILES)}")
    there = {tool.metric: tool for tool in tool_metrics() if tool.profile == profile}
    name = metric if metric in there else canonical(metric)
    if name not in there:
        raise ConfigError(f"{profile} has no metric {metric!r}: choose from {', '.join(sorted(there))}")
    return there[name]


@cache
def tool_metrics() -> tuple[ToolMetric, ...]:
    """Return all metrics of all tools."""
    return tuple(_metrics())


def _metrics() -> Iterator[ToolMetric]:
    for name in _MODULES:
        module = import_module(f"ragtrace.compat.{name}")
        yield from cast(tuple[ToolMetric, ...], module.METRICS)
