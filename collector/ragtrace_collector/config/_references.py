"""References in a configuration: ``${env:NAME}``, ``${env:NAME:-default}`` and ``${file:PATH}``."""

from __future__ import annotations

import base64
import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ragtrace.errors import ConfigError
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_REFERENCE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{file:([^}]+)\}")
_MOST_FILE_BYTES: Final = 1 << 20


class MissingValue(ConfigError):
    """An environment variable or a file that the configuration names is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Resolves references to the environment and to files."""

    where: str
    """The configuration file, for messages. They never quote a value."""
    environ: Mapping[str, str]
    folder: Path
    """The folder of relative paths."""
    needs_secrets: bool = True
    """Whether a reference to nothing is an error: else a random key stands in for it."""
    missing: dict[str, MissingValue] = field(default_factory=dict)
    """What each of these keys stands in for."""

    def filled(self, node: Any, *, key: str = "") -> Any:
        """Replace the references in the values of a document.

        Raises:
            ConfigError: an environment variable or a file is missing; names the key.
        """
        if isinstance(node, dict):
            return {name: self.filled(child, key=f"{key}.{name}".lstrip(".")) for name, child in node.items()}
        if isinstance(node, list):
            return [self.filled(child, key=f"{key}[{place}]") for place, child in enumerate(node)]
        if not isinstance(node, str) or "${" not in node:
            return node
        filled = _REFERENCE.sub(lambda match: self._value(match, key), node)
        whole = _REFERENCE.fullmatch(node)
        return _typed(filled) if whole and whole[1] else filled

    def _value(self, match: re.Match[str], key: str) -> str:
        name, default, path = match[1], match[2], match[3]
        if path is not None:
            return self._text_in(self.folder / path, key)
        if name in self.environ:
            return self.environ[name]
        if default is not None:
            return default
        return self._stand_in(
            MissingValue(
                f"{self.where}: `{key}` needs the environment variable {name}: "
                f"set it, or write ${{env:{name}:-default}}"
            )
        )

    def _text_in(self, path: Path, key: str) -> str:
        try:
            with path.open("rb") as file:
                _warn_if_open_to_others(path, os.fstat(file.fileno()))
                text = file.read(_MOST_FILE_BYTES).decode()
        except (OSError, ValueError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
            return self._stand_in(
                MissingValue(f"{self.where}: `{key}`: the file {str(path)!r} cannot be read: {why}")
            )
        return text.removesuffix("\n").removesuffix("\r")

    def _stand_in(self, missing: MissingValue) -> str:
        if self.needs_secrets:
            raise missing
        key = base64.b64encode(secrets.token_bytes(32)).decode().replace("/", "+")  # a path would join two
        self.missing[key] = missing
        return key


def _warn_if_open_to_others(path: Path, found: os.stat_result) -> None:
    # Only for our own file: the mode of a container's secrets cannot be changed.
    if found.st_uid == os.geteuid() and found.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning("%s can be read by other users: chmod 600", path, extra=event("secret_exposed"))


def _typed(text: str) -> Any:
    """Give a value that is a single reference the type that its text would have in the file."""
    try:
        import yaml
    except ModuleNotFoundError:  # options without a file, in the core
        return text
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # a key may begin with any character; 2024-13-01 is no date
        return text
    if isinstance(value, bool | list | dict | None):
        return value
    return value if isinstance(value, int | float) and str(value) == text else text  # a key may be 007 or 1e5
