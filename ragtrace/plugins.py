"""Plug-ins: things found by name through the entry points of installed packages.

What comes with ragtrace is listed in the same form, so that a checkout which was never installed has it too;
a plug-in cannot take its names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ragtrace.errors import ConfigError

__all__ = ["find_plugins", "load_plugin"]


def find_plugins(group: str, built_in: Mapping[str, str]) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name; nothing is imported."""
    ours = {name: EntryPoint(name, target, group) for name, target in built_in.items()}
    return {**_installed(group), **ours}


def load_plugin(point: EntryPoint) -> Any:
    """Import what an entry point names.

    Raises:
        ConfigError: it cannot be imported; the message names the plug-in and its package.
    """
    try:
        return point.load()  # a stranger's import may raise anything
    except Exception as exc:
        package = point.dist.name if point.dist else "ragtrace-otel"
        raise ConfigError(
            f"plug-in {point.name!r} of `{point.group}` (package {package!r}) cannot be loaded: {exc!r}"
        ) from exc


@cache
def _installed(group: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}  # reads files: once a process
