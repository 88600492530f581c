"""The kinds of values that a configuration holds, and what is said where one is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    WithJsonSchema,
)
from pydantic_core import CoreSchema

from ragtrace.durations import UNITS_S, duration_of
from ragtrace.errors import ConfigError
from ragtrace.judge.spec import check_headers
from ragtrace.traces.extract import AttributePath

_HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        # not quoted: it may be the key itself
        raise ValueError("write the name of an environment variable, such as OPENAI_API_KEY, not a key")
    return value


def _host_name(value: str) -> str:
    if not _HOST_NAME.fullmatch(value):
        raise ValueError("write the name of a host without its port, such as ragtrace.example, or *.example")
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
HostName = Annotated[str, AfterValidator(_host_name)]
EnvName = Annotated[str, AfterValidator(_variable)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]


class Section(BaseModel):
    """A part of the configuration: what it does not know is an error."""

    # What stood in the file is in no error: it may be a key.
    model_config = ConfigDict(
        extra="forbid", frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True
    )


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


Files = Annotated[tuple[Path, ...], BeforeValidator(one_or_more), AlternativeForm("string")]


def named(key: str) -> Callable[[object], object]:
    """Let a section be written as the one text that says most of it."""
    return lambda value: {key: value} if isinstance(value, str) else value


def _http_url(value: str | None) -> str | None:
    if value is not None and not re.match(r"https?://[^/\s]+", value):
        raise ValueError("write a URL such as http://localhost:11434/v1")
    return value


HttpUrl = Annotated[str, AfterValidator(_http_url)]


def _page_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s@?#]+(?:/[^\s?#]*)?", value):
        raise ValueError("write where people reach the page, such as https://ragtrace.example.com")
    return value.rstrip("/")


PageUrl = Annotated[str, AfterValidator(_page_url)]


def _trace_url(value: str) -> str:
    if not re.match(r"https?://[^/\s@]+/", value) or "{trace_id}" not in value:
        raise ValueError("write a URL with {trace_id}, such as http://localhost:16686/trace/{trace_id}")
    return value


TraceUrl = Annotated[str, AfterValidator(_trace_url)]


def _otlp_url(value: str) -> str:
    if not re.fullmatch(r"(?:http|grpc)s?://[^/\s@]+/?", value):
        raise ValueError("write an address such as grpc://localhost:4317 or http://localhost:4318")
    return value


OtlpUrl = Annotated[str, AfterValidator(_otlp_url)]


def _postgres_url(value: SecretStr) -> SecretStr:
    if not re.match(r"postgres(?:ql)?://.", value.get_secret_value()):
        # not quoted: it may hold a password
        raise ValueError(
            "write postgresql://USER:PASSWORD@HOST:5432/DATABASE, with %XX for special characters"
        )
    return value


PostgresUrl = Annotated[SecretStr, AfterValidator(_postgres_url)]


def nanoseconds(duration: timedelta) -> int:
    """Return a duration as clocks count."""
    return int(duration.total_seconds() * 1e9)
