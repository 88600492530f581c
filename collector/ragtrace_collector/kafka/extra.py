"""Kafka's client is an extra: it is loaded only if the configuration names brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragtrace.errors import ConfigError
from ragtrace.extras import install_command


@contextmanager
def needs_kafka() -> Iterator[None]:
    """Import what uses the client.

    Raises:
        ConfigError: it is not installed; says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("confluent_kafka"):
            raise
        raise ConfigError(f"`receive.kafka` needs the extra `kafka`: {install_command('kafka')}") from None
