"""Apache Kafka: the topics that spans are read from, ``receive.kafka``."""

from __future__ import annotations

import logging
import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from ragtrace_collector.config.values import Address, AlternativeForm, Section, one_or_more

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACEHOLDER: Final = "{topic}"
_OWN_OPTIONS: Final = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "transactional.id",
    }
)
"""Options of librdkafka that the collector sets itself: delivery depends on them, or a key here has them."""


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError(
            "write the name of a topic: at most 249 letters, digits, dots, underscores and hyphens"
        )
    return value


def _dead_letter(value: str) -> str:
    _topic(value.replace(_PLACEHOLDER, "topic"))
    return value


Topic = Annotated[str, AfterValidator(_topic)]


Brokers = Annotated[
    tuple[Address, ...], Field(min_length=1), BeforeValidator(one_or_more), AlternativeForm("string")
]


class KafkaConfig(Section):
    """Spans that an OpenTelemetry Collector wrote into topics of Apache Kafka."""

    brokers: Brokers
    topics: Annotated[
        tuple[Topic, ...], Field(min_length=1), BeforeValidator(one_or_more), AlternativeForm("string")
    ] = ("otlp_spans",)
    group: str = Field(default="ragtrace", min_length=1)
    dead_letter: Annotated[str, AfterValidator(_dead_letter)] | None = "{topic}.dead-letter"
    tenant: str | None = Field(default=None, min_length=1)
    options: dict[str, SecretStr] = {}
    """Of librdkafka, by its names: how the brokers are reached and the member is known."""

    def client_settings(self) -> dict[str, Any]:
        """Return what librdkafka needs for a connection. It holds secrets."""
        settings: dict[str, Any] = {
            "bootstrap.servers": ",".join(self.brokers),
            "client.id": "ragtrace",
            # the callbacks say it: librdkafka would write lines of its own, the worst ones at any level
            "log_level": 0,
            "logger": _SILENT,
            "topic.metadata.refresh.interval.ms": _REFRESH_MS,
        }
        return {**settings, **{name: value.get_secret_value() for name, value in self.options.items()}}

    @property
    def sends_open_password(self) -> bool:
        """Whether other machines could read the password on its way."""
        return (
            self._option("security.protocol").upper() == "SASL_PLAINTEXT"
            and (self._option("sasl.mechanism") or self._option("sasl.mechanisms")).upper() == "PLAIN"
            and not all(map(_is_here, self.brokers))
        )

    def _option(self, name: str) -> str:
        value = self.options.get(name)
        return value.get_secret_value() if value else ""

    @field_validator("options")
    @classmethod
    def _leaves_own_options(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        own = sorted(_OWN_OPTIONS & value.keys())
        if own:
            raise ValueError(f"{own[0]!r} is set by the collector: use the other keys of `receive.kafka`")
        return value

    def dead_letter_topic(self, topic: str) -> str | None:
        """Return the topic that gets what cannot be used of this one; ``None`` if none does."""
        return self.dead_letter and self.dead_letter.replace(_PLACEHOLDER, topic)

    @model_validator(mode="after")
    def _reads_no_dead_letters(self) -> KafkaConfig:
        for topic in self.topics:
            if self.dead_letter_topic(topic) in self.topics:
                raise ValueError(
                    f"`dead_letter` of {topic!r} is one of `topics`: dead letters would be read again"
                )
        return self


def _is_here(address: str) -> bool:
    return address.rpartition(":")[0] in {"localhost", "127.0.0.1", "[::1]"}


_REFRESH_MS: Final = 30_000
_SILENT: Final = logging.Logger("ragtrace.librdkafka", logging.CRITICAL + 1)  # noqa: LOG001 -- nobody's child
