"""Which settings can change while the collector runs, and a digest that identifies a configuration."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig

_NEEDS_A_RESTART: Final = (
    "receive.grpc",
    "receive.http",
    "receive.max_message_bytes",
    "receive.tls",
    "receive.insecure",
    "receive.kafka",
    "attach.mode",
    "attach.hold_timeout",
    "export",
    "store",
    "telemetry",
    "ui",
    "drain_timeout",
    "log_format",
)
"""Settings that are used once, at the start."""
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloads:
    """The request to reload, and how to reload."""

    asked: asyncio.Event
    read: Callable[[], CollectorConfig]
    """Raises ConfigError."""


def changed_keys(before: CollectorConfig, after: CollectorConfig) -> tuple[str, ...]:
    """Return the keys whose values differ, written as in the file: ``sample.ratio``."""
    old, new = dict(_flat(before.model_dump())), dict(_flat(after.model_dump()))
    return tuple(sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)))


def refuse_what_needs_a_restart(before: CollectorConfig, after: CollectorConfig) -> None:
    """Check that a running collector can apply the change.

    Raises:
        ConfigError: a key changed that needs a restart; the message names it.
    """
    changed = changed_keys(before, after)
    fixed = [key for key in changed if any(_is_within(key, each) for each in _NEEDS_A_RESTART)]
    if fixed:
        raise ConfigError(f"{', '.join(f'`{key}`' for key in fixed)} changed, which needs a restart")


def digest_of(config: CollectorConfig) -> str:
    """Return a digest of a configuration with its secrets masked: equal configurations have equal digests."""
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:_DIGITS]


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_within(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")
