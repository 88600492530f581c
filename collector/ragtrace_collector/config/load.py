"""Read a configuration: YAML, with references resolved, checked as a whole before anything starts."""

from __future__ import annotations

import base64
import difflib
import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ragtrace.errors import ConfigError
from ragtrace.sampling import SamplingPlan
from ragtrace.text import in_words
from ragtrace_collector.config.sections import (
    CollectorConfig,
    SampleConfig,
    store_at,
)
from ragtrace_collector.config.values import UNKNOWN_KEY
from ragtrace_collector.telemetry.logs import event

if TYPE_CHECKING:
    import yaml

log = logging.getLogger("ragtrace.collector")


_QUOTED: Final = re.compile(r"'.*'|\".*\"", re.DOTALL)


class _SampleOnly(BaseModel):
    sample: SampleConfig


_Model = TypeVar("_Model", bound=BaseModel)


def default_config_text() -> str:
    """Return the collector's commented default configuration."""
    return (files("ragtrace_collector") / "config.yaml").read_text("utf-8")


def schema_text() -> str:
    """Return the collector's schema."""
    return (files("ragtrace_collector") / "collector.schema.json").read_text("utf-8")


def load_config(
    path: Path | None,
    *,
    changes: Sequence[tuple[str, object]] = (),
    environ: Mapping[str, str] | None = None,
    needs_secrets: bool = True,
) -> CollectorConfig:
    """Read and check a configuration file. Files of code, prompts, prices and calibrations that it names are
    looked for beside it.

    ``changes`` set keys by their paths, such as ``judge.timeout``, as if the file said so. Without a file,
    verdicts go nowhere but to the store and its page. Who only looks into the store needs no secrets.

    Raises:
        ConfigError: names the file, the key and what to do.
    """
    if path is None:
        document: dict[str, Any] = {"ui": {"listen": "127.0.0.1:4330"}}
        return _parsed(document, where="--set or an option", environ=environ, folder=Path(), changes=changes)
    parse = partial(
        parse_config, _text(path), where=str(path), environ=environ, folder=path.parent, changes=changes
    )
    if needs_secrets:
        return parse()
    try:
        return parse(needs_secrets=False)
    except MissingValue:
        raise
    except ConfigError:  # perhaps of what stands in: what is missing is told first
        return parse()


def load_sampling(path: Path, *, environ: Mapping[str, str] | None = None) -> SamplingPlan:
    """Read and check the section ``sample`` of a configuration file; the others need not be there.

    Raises:
        ConfigError: names the file, the key and what to do.
    """
    where = str(path)
    document = _document(_text(path), where=where)
    if "sample" not in document:
        raise ConfigError(f"{where}: has no section `sample`: write `sample: {{ratio: 0.1}}`")
    found = References(where=where, environ=_given(environ), folder=path.parent)
    section = _filled({"sample": document["sample"]}, found)
    return _checked(_SampleOnly, section, where=where, folder=path.parent).sample.plan()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: cannot be read: {exc}") from exc


def parse_config(
    text: str,
    *,
    where: str,
    environ: Mapping[str, str] | None = None,
    folder: Path = Path(),
    needs_secrets: bool = True,
    changes: Sequence[tuple[str, object]] = (),
) -> CollectorConfig:
    """Check a configuration text, with references to the environment and to files filled in.

    Relative paths of what it names (not of what the collector writes) begin at ``folder``. Without
    ``needs_secrets``, random keys stand in for secrets whose variables and files are not there.

    Raises:
        ConfigError: names ``where``, the key and what to do.
    """
    document = _document(text, where=where)
    return _parsed(
        document, where=where, environ=environ, folder=folder, needs_secrets=needs_secrets, changes=changes
    )


def _parsed(
    document: dict[str, Any],
    *,
    where: str,
    environ: Mapping[str, str] | None,
    folder: Path,
    needs_secrets: bool = True,
    changes: Sequence[tuple[str, object]],
) -> CollectorConfig:
    for key, value in changes:
        change(document, key, value)
    found = References(where=where, environ=_given(environ), folder=folder, needs_secrets=needs_secrets)
    config = _checked(CollectorConfig, _filled(document, found), where=where, folder=folder)
    shown = config.model_dump_json() if found.missing else ""  # secrets are masked in it
    for stand_in, missing in found.missing.items():
        if stand_in in shown:
            raise missing
    return config


def _document(text: str, *, where: str) -> dict[str, Any]:
    import yaml  # the core does without it where there is no file

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ConfigError(f"{where}: not YAML: {_fault(exc)}") from None
    except RecursionError as exc:
        raise ConfigError(f"{where}: not a configuration: nested too deep") from exc
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: must hold keys such as `judge:`; it holds {_kind(document)}")
    return document


def _given(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if environ is None else environ


def _filled(document: dict[str, Any], found: References) -> Any:
    try:
        return found.filled(document)
    except RecursionError as exc:
        raise ConfigError(f"{found.where}: not a configuration: nested too deep") from exc


def _checked(model: type[_Model], filled: Any, *, where: str, folder: Path) -> _Model:
    try:
        return model.model_validate(filled, context={"folder": folder})
    except ValidationError as exc:
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems(exc.errors()))) from None


def _fault(error: yaml.YAMLError) -> str:
    """Say where the error is, and quote nothing, because the line may hold a key."""
    mark = getattr(error, "problem_mark", None)
    problem = _QUOTED.sub("…", getattr(error, "problem", None) or "it cannot be read")
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _kind(document: object) -> str:
    return "nothing" if document is None else f"a {type(document).__name__}"


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


def problems(errors: list[ErrorDetails]) -> list[str]:
    """Return one line for each error of a validation."""
    return list(dict.fromkeys(_problem(error) for error in errors))


def _problem(error: ErrorDetails) -> str:
    location = list(error["loc"])
    key = _dotted(location)
    if error["type"] == UNKNOWN_KEY:
        unknown, known = error["ctx"]["key"], error["ctx"]["known"]
        return f"unknown key `{_dotted([*location, unknown])}`{_suggestion(unknown, known)}"
    if error["type"] == "missing":
        return f"`{key}` is missing"
    message = in_words(error)
    return f"`{key}`: {message}" if key else message


def _dotted(location: list[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).lstrip(".")


def _suggestion(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f": did you mean `{close[0]}`?" if close else f": there is {', '.join(f'`{k}`' for k in known)}"


_SHORT: Final = {"second": "use", "metrics": "name"}
"""What the text says that a section may be written as."""


def change(document: dict[str, Any], key: str, value: object) -> None:
    """Set a key. An item of a list is named by its number, its ``name``, or ``*`` for each.

    Raises:
        ConfigError: the path leads into a value, or to an item that is not there.
    """
    *parents, last = key.split(".")
    if not all((*parents, last)):
        raise ConfigError(f"`{key}` is no key: write SECTION.NAME, such as judge.timeout")
    _set(document, parents, last, value, key)


def _set(node: Any, parents: list[str], last: str, value: object, key: str) -> None:
    if isinstance(node, dict) and not parents:
        node[last] = value
        return
    here = parents[0] if parents else last
    if isinstance(node, dict):
        inner = node.get(here)
        if inner is None:
            inner = [{"name": "faithfulness"}] if here == "metrics" else {}
        if here == "store":
            inner = store_at(inner)
        elif isinstance(inner, str) and here in _SHORT:
            inner = {_SHORT[here]: inner}
        if isinstance(inner, list):
            inner = [{_SHORT[here]: one} if isinstance(one, str) and here in _SHORT else one for one in inner]
        node[here] = inner
        _set(inner, parents[1:], last, value, key)
    elif isinstance(node, list):
        chosen = [number for number, item in enumerate(node) if here in ("*", str(number), _name(item))]
        if not chosen:
            there = ", ".join(f"`{_name(item) or number}`" for number, item in enumerate(node))
            raise ConfigError(f"`{key}`: there is no `{here}`, but {there or 'an empty list'}")
        for number in chosen:
            if parents:
                _set(node[number], parents[1:], last, value, key)
            else:
                node[number] = value
    else:
        raise ConfigError(f"`{key}`: `{here}` is below a value, which has no keys")


def _name(item: object) -> str:
    return str(item.get("name", "")) if isinstance(item, dict) else str(item)
