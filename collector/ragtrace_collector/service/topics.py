"""The receiver of topics, if the configuration has one: its client is an extra, loaded only then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ragtrace.errors import ConfigError
from ragtrace.extras import install_command
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.receive.intake import Intake
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters
from ragtrace_collector.web.tokens import TokenAuth

if TYPE_CHECKING:
    from ragtrace_collector.receive.kafka import KafkaReceiver


def check_kafka(config: CollectorConfig) -> None:
    """See that what `receive.kafka` says can be used, without a connection.

    Raises:
        ConfigError: the extra is not installed, or its client refuses a setting.
    """
    if config.receive.kafka is None:
        return
    with needs_kafka():
        from ragtrace_collector.receive.kafka_client import check_settings
    check_settings(config.receive.kafka)


def open_kafka(
    config: CollectorConfig,
    *,
    intake: Intake,
    store: Store,
    access: TokenAuth,
    counters: Counters,
    clock: Clock,
) -> KafkaReceiver | None:
    """Build the receiver of a configuration that was checked; it reads nothing yet."""
    kafka = config.receive.kafka
    if kafka is None:
        return None
    from ragtrace_collector.receive.kafka import KafkaReceiver, TopicSender

    return KafkaReceiver(
        config=kafka,
        max_message_bytes=config.receive.max_message_bytes,
        intake=intake,
        store=store,
        sender=lambda: TopicSender(kafka.tenant) if kafka.tenant or access.needs_tokens else None,
        counters=counters,
        clock=clock,
    )


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
