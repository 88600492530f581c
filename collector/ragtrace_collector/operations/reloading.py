"""What of a configuration can change while the collector runs, and how two configurations are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ragtrace_collector.config import CollectorConfig

__all__ = ["changed_keys", "digest_of", "keys_that_need_a_restart"]

_NEEDS_A_RESTART: Final = (
    "receive.grpc",
    "receive.http",
    "receive.max_message_bytes",
    "receive.tls",
    "receive.insecure",
    "assemble.max_open_traces",
    "evaluate.concurrency",
    "attach.mode",
    "export",
    "store",
    "telemetry",
    "log_format",
)
"""What is bound, opened or counted on once."""
_DIGITS: Final = 12


def changed_keys(before: CollectorConfig, after: CollectorConfig) -> tuple[str, ...]:
    """Return the keys whose values differ, as the file writes them: ``sample.ratio``."""
    old, new = dict(_flat(before.model_dump())), dict(_flat(after.model_dump()))
    return tuple(sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)))


def keys_that_need_a_restart(changed: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the changed keys that a running collector cannot follow."""
    return tuple(key for key in changed if any(_is_within(key, fixed) for fixed in _NEEDS_A_RESTART))


def digest_of(config: CollectorConfig) -> str:
    """Return a name for what a configuration says: the same at every replica that has the same one.

    Headers are left out: they hold keys.
    """
    text = config.model_dump_json(exclude={"export": {"__all__": {"headers"}}})
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_within(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")
