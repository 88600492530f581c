"""Addresses of places that have answers, and the readers behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ragtrace.answers.rows import is_report
from ragtrace.backends import open_reader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, InputError
from ragtrace.http import without_secrets
from ragtrace.http.retry import Sleep
from ragtrace.ports import TraceReader

BACK_ENDS: Final = ("jaeger", "tempo", "phoenix", "langfuse")
_ACCEPTED: Final = (
    "give jaeger:http://host:16686, tempo:http://host:3200, phoenix:http://host:6006, langfuse:https://host,"
    " otlp-file:PATH for a file or folder of OTLP, or file:PATH for one or for a report.jsonl"
)
_HEAD_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAddress:
    """A place that has answers."""

    kind: str
    """``jaeger``, ``tempo``, ``phoenix``, ``langfuse``, ``otlp-file`` or ``report``."""
    rest: str = field(repr=False)
    """URL or path; a URL may hold a login."""

    @property
    def name(self) -> str:
        """Kind and address, without secrets."""
        return f"{'file' if self.kind == 'report' else self.kind}:{without_secrets(self.rest)}"

    def reader(
        self,
        *,
        access: ConnectionSettings | None = None,
        on_fault: Callable[[InputError], None] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> TraceReader:
        """Open the reader of its traces.

        Raises:
            ConfigError: the address has another form.
        """
        return open_reader(f"{self.kind}:{self.rest}", access=access, on_fault=on_fault, sleep=sleep)


def parse_address(address: str) -> AnswerAddress:
    """Read an address; a path without a kind is a file.

    Raises:
        ConfigError: it is not an address, there is no such file, or the file can be read only once.
    """
    kind, _, rest = address.partition(":")
    if kind in BACK_ENDS and rest:
        return AnswerAddress(kind=kind, rest=rest)
    if kind in ("file", "otlp-file") and rest:
        return _of_file(rest, is_otlp=kind == "otlp-file")
    if "://" not in address and Path(address).exists():
        return _of_file(address, is_otlp=False)
    raise ConfigError(f"{without_secrets(address)!r} is not an address to read answers from: {_ACCEPTED}")


def _of_file(name: str, *, is_otlp: bool) -> AnswerAddress:
    path = Path(name)
    if not (path.is_file() or path.is_dir()):
        why = "it would be read several times" if path.exists() or name == "-" else "there is no such file"
        raise ConfigError(f"{name!r} cannot be opened for answers: {why}: give a file or a folder")
    if is_otlp or path.is_dir() or not is_report(_first_line(path)):
        return AnswerAddress(kind="otlp-file", rest=name)
    return AnswerAddress(kind="report", rest=name)


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).lstrip().partition(b"\n")[0]
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror or exc}") from exc
