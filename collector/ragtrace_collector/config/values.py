"""The kinds of values that a configuration holds, and the sections that others hold."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from ragtrace.budget import Limit
from ragtrace.drift import BUILTIN
from ragtrace.errors import ConfigError
from ragtrace.http import ClientTls
from ragtrace.judge.spec import check_headers
from ragtrace.plugins import named_beside
from ragtrace.text import UNITS_S, duration_of
from ragtrace.traces.extract import AttributePath


def matching(pattern: str, advice: str) -> AfterValidator:
    """Let a text be only what matches; it is not quoted, since it may be a key."""

    def check(value: str | SecretStr) -> str | SecretStr:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if not re.fullmatch(pattern, text, re.DOTALL):
            raise ValueError(advice)
        return value

    return AfterValidator(check)


def _folder(info: ValidationInfo) -> Path | None:
    """Return the folder of the file that is read: relative paths in it begin there."""
    folder: Path | None = (info.context or {}).get("folder")
    return folder


def _path_beside(value: Path, info: ValidationInfo) -> Path:
    folder = _folder(info)
    return value if folder is None else folder / value


def _address_beside(value: str, info: ValidationInfo) -> str:
    folder = _folder(info)
    return value if folder is None else named_beside(value, folder)


def _prompt_beside(value: str, info: ValidationInfo) -> str:
    folder = _folder(info)
    return value if folder is None or "\n" in value else str(folder / value)


def _anchors_beside(value: str, info: ValidationInfo) -> str:
    return value if value == BUILTIN else _prompt_beside(value, info)


NearPath = Annotated[Path, AfterValidator(_path_beside)]
NearAddress = Annotated[str, AfterValidator(_address_beside)]
Prompt = Annotated[str, AfterValidator(_prompt_beside)]
Anchors = Annotated[str, AfterValidator(_anchors_beside)]


def _duration(value: object) -> object:
    duration = duration_of(value) if isinstance(value, str) else None
    if duration is None:
        raise ValueError("write a duration with its unit, such as 500ms, 5s, 2m or 1h")
    return duration


def _longer_than_zero(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("write a duration longer than zero: with none, every request would time out")
    return value


def _address(value: object) -> object:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("write host:port, such as 127.0.0.1:4327")
    return value


def _endpoint(value: str) -> str:
    if ("?" in value or "@" in value) and not value.startswith("otlp-file:"):
        # not quoted: there stand users, passwords and keys
        raise ValueError("write an address without user, password and query: keys belong into `headers`")
    return value


def _sendable(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    try:
        check_headers({name: text.get_secret_value() for name, text in value.items()})
    except ConfigError as exc:
        raise ValueError(str(exc)) from None
    return value


Headers = Annotated[dict[str, SecretStr], AfterValidator(_sendable)]


class AlternativeForm:
    """Says in the schema what a section may be written as besides, such as one text for all of it."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = [{"type": kind} for kind in kinds]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        told = handler(core)
        return {"anyOf": [*self._kinds, *told.get("anyOf", [told])]}


def _written(pattern: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [*examples]})


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    _written(rf"^\s*\d+(\.\d+)?\s*({'|'.join(UNITS_S)})\s*$", "500ms", "5s", "2m", "1h", "7d"),
]
Size = Annotated[
    ByteSize,
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d*\.?\d+\s*\w*", "examples": ["500kB", "64MiB", "2GiB"]},
            ]
        }
    ),
]
Timeout = Annotated[Duration, AfterValidator(_longer_than_zero)]
Address = Annotated[str, BeforeValidator(_address)]
HostName = Annotated[
    str,
    matching(
        r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*",
        "write the name of a host without its port, such as ragtrace.example, or *.example",
    ),
]
EnvName = Annotated[
    str,
    matching(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "write the name of an environment variable, such as OPENAI_API_KEY, not a key",
    ),
]
Endpoint = Annotated[str, AfterValidator(_endpoint)]


UNKNOWN_KEY: Final = "unknown_key"
"""The type of the error, which tells the key and those that there are."""


class Section(BaseModel):
    """A part of the configuration: what it does not know is an error."""

    # What stood in the file is in no error: it may be a key.
    model_config = ConfigDict(
        extra="forbid", frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, value: object) -> object:
        known = list(cls.model_fields)
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                raise PydanticCustomError(UNKNOWN_KEY, "unknown", {"key": str(key), "known": known})
        return value


def one_or_more(value: object) -> object:
    """Let a list of one text be written as the text."""
    return (value,) if isinstance(value, str) else value


def _path(value: str) -> str:
    return AttributePath(value).text


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as exc:
        raise ValueError(f"{value!r} is no regular expression: {exc}") from exc
    return value


Paths = Annotated[
    tuple[Annotated[str, AfterValidator(_path)], ...], BeforeValidator(one_or_more), AlternativeForm("string")
]
Pattern = Annotated[str, AfterValidator(_pattern)]


Files = Annotated[tuple[NearPath, ...], BeforeValidator(one_or_more), AlternativeForm("string")]


def named(key: str) -> Callable[[object], object]:
    """Let a section be written as the one text that says most of it."""
    return lambda value: {key: value} if isinstance(value, str) else value


HttpUrl = Annotated[str, matching(r"https?://[^/\s]+.*", "write a URL such as http://localhost:11434/v1")]
PageUrl = Annotated[
    str,
    matching(
        r"https?://[^/\s@?#]+(?:/[^\s?#]*)?",
        "write where people reach the page, such as https://ragtrace.example.com",
    ),
    AfterValidator(lambda value: value.rstrip("/")),
]
TraceUrl = Annotated[
    str,
    matching(
        r"https?://[^/\s@]+/.*\{trace_id\}.*",
        "write a URL with {trace_id}, such as http://localhost:16686/trace/{trace_id}",
    ),
]
OtlpUrl = Annotated[
    str,
    matching(
        r"(?:http|grpc)s?://[^/\s@]+/?",
        "write an address such as grpc://localhost:4317 or http://localhost:4318",
    ),
]
PostgresUrl = Annotated[
    SecretStr,
    ValidationInfo,
    field_validator,
    matching(
        r"postgres(?:ql)?://.+",
        "write postgresql://USER:PASSWORD@HOST:5432/DATABASE, with %XX for special characters",
    ),
]


def nanoseconds(duration: timedelta) -> int:
    """Return a duration as clocks count."""
    return int(duration.total_seconds() * 1e9)


class TlsConfig(Section):
    """How a connection that goes out is secured, beyond what the system's own certificates do."""

    ca: NearPath | None = None
    cert: NearPath | None = None
    key: NearPath | None = None

    def opened(self) -> ClientTls:
        """Return what clients take."""
        return ClientTls(ca=self.ca, cert=self.cert, key=self.key)

    @model_validator(mode="after")
    def _both_or_none(self) -> TlsConfig:
        if (self.cert is None) is not (self.key is None):
            raise ValueError("`cert` and `key` belong together: name both files, or none")
        return self


class ReceiveTlsConfig(Section):
    """The receivers' certificate, and whose certificates they ask for."""

    cert: NearPath
    key: NearPath
    client_ca: NearPath | None = None


class TokenLimitsConfig(Section):
    """What one token may send a minute."""

    spans: int | None = Field(default=None, gt=0)
    bytes: Size | None = None


class TokenConfig(Section):
    """One bearer token, by its digest: the token itself is stored nowhere."""

    name: str = Field(min_length=1)
    sha256: Annotated[
        str,
        matching(
            r"[0-9a-fA-F]{64}", "write the 64 hex digits of the token's SHA-256, never the token itself"
        ),
        AfterValidator(str.lower),
    ]
    tenant: str | None = Field(default=None, min_length=1)
    may: tuple[Literal["send", "read", "review"], ...] = Field(default=("send",), min_length=1)
    limits: TokenLimitsConfig = TokenLimitsConfig()


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


_AMOUNT: Final = re.compile(r"(\d{1,15}(?:\.\d+)?) *(calls|tokens|usd)", re.IGNORECASE)
_MOST_USD: Final = 1e9


def limit_of(amounts: tuple[str, ...]) -> Limit:
    """Return what amounts such as ``5 USD`` and ``1000 calls`` allow in one window.

    Raises:
        ValueError: one is no amount, or two limit the same.
    """
    found: dict[str, float] = {}
    for each in amounts:
        amount = _AMOUNT.fullmatch(each.strip())
        number, unit = (float(amount[1]), amount[2].lower()) if amount else (0.0, "")
        if not number or (number >= _MOST_USD and unit == "usd") or (unit != "usd" and number % 1):
            raise ValueError("write an amount such as 5 USD, 1000 calls or 200000 tokens, or a list of them")
        if unit in found:
            raise ValueError(f"two amounts of {unit}: write one")
        found[unit] = number
    whole = {unit: int(found[unit]) if unit in found else None for unit in ("calls", "tokens")}
    return Limit.of(calls=whole["calls"], tokens=whole["tokens"], usd=found.get("usd"))


def _readable(amounts: tuple[str, ...]) -> tuple[str, ...]:
    limit_of(amounts)
    return amounts


Amounts = Annotated[
    tuple[str, ...], AfterValidator(_readable), BeforeValidator(one_or_more), AlternativeForm("string")
]


class BudgetPeriodsConfig(Section):
    """Limits by the length of their windows. All hold."""

    minute: Amounts = ()
    day: Amounts = ()
    month: Amounts = ()


class BudgetConfig(Section):
    """What judging may cost, live and in back-fill, and what happens when it is spent."""

    live: BudgetPeriodsConfig = BudgetPeriodsConfig()
    backfill: BudgetPeriodsConfig = BudgetPeriodsConfig()
    at_limit: Literal["stop", "lower_rate"] = "stop"


class DriftConfig(Section):
    """The drift check: off without ``anchors``, since it asks the judge, which costs money."""

    anchors: Anchors | None = None
    """A file of labeled answers, or ``builtin``."""
    budget: Amounts = ()
    """What all checks of a UTC day may spend, apart from ``budget.live``."""
