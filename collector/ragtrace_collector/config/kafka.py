"""The section ``receive.kafka``: which topics spans are read from, and how the brokers are reached."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from ragtrace_collector.config.security import TlsConfig
from ragtrace_collector.config.values import Address, AlternativeForm, Section, Timeout

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
        "group.instance.id",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "session.timeout.ms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
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


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Topic = Annotated[str, AfterValidator(_topic)]


class SaslConfig(Section):
    """How the collector identifies itself to the brokers."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = Field(min_length=1)
    password: SecretStr = Field(min_length=1)


class KafkaConfig(Section):
    """Spans that an OpenTelemetry Collector wrote into topics of Apache Kafka."""

    brokers: Annotated[
        tuple[Address, ...], Field(min_length=1), BeforeValidator(_one_or_more), AlternativeForm("string")
    ]
    topics: Annotated[
        tuple[Topic, ...], Field(min_length=1), BeforeValidator(_one_or_more), AlternativeForm("string")
    ] = ("otlp_spans",)
    group: str = Field(default="ragtrace", min_length=1)
    group_instance_id: str | None = Field(default=None, min_length=1)
    encoding: Literal["otlp_proto", "otlp_json"] = "otlp_proto"
    start: Literal["earliest", "latest"] = "earliest"
    dead_letter: Annotated[str, AfterValidator(_dead_letter)] | None = "{topic}.dead-letter"
    tenant: str | None = Field(default=None, min_length=1)
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    session_timeout: Timeout = timedelta(seconds=45)
    options: dict[str, SecretStr] = {}

    def dead_letter_topic(self, topic: str) -> str | None:
        """Return the topic that gets what cannot be used of this one; ``None`` if none does."""
        return self.dead_letter and self.dead_letter.replace(_PLACEHOLDER, topic)

    @field_validator("options")
    @classmethod
    def _leaves_own_options(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        own = sorted(_OWN_OPTIONS & value.keys())
        if own:
            raise ValueError(f"{own[0]!r} is set by the collector: use the other keys of `receive.kafka`")
        return value

    @model_validator(mode="after")
    def _reads_no_dead_letters(self) -> KafkaConfig:
        for topic in self.topics:
            if self.dead_letter_topic(topic) in self.topics:
                raise ValueError(
                    f"`dead_letter` of {topic!r} is one of `topics`: dead letters would be read again"
                )
        return self
