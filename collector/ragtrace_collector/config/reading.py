"""Read a configuration: YAML, filled in from the environment, checked as a whole before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from ragtrace.errors import ConfigError
from ragtrace.plugins import named_beside
from ragtrace.traces.extract import AttributeMapping
from ragtrace_collector.config.problems import problems
from ragtrace_collector.config.sections import CollectorConfig, ExtractConfig, MetricConfig, ReceiveConfig

__all__ = ["default_config_text", "load_config", "load_mapping", "parse_config"]

_REFERENCE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class _ExtractOnly(BaseModel):
    extract: ExtractConfig


_Model = TypeVar("_Model", bound=BaseModel)


def default_config_text() -> str:
    """Return the commented default configuration that is shipped with the collector."""
    return (files("ragtrace_collector") / "config.yaml").read_text("utf-8")


def load_config(path: Path, *, environ: Mapping[str, str] | None = None) -> CollectorConfig:
    """Read and check a configuration file. Files of code, prompts, prices and calibrations that it names are
    looked for beside it.

    Raises:
        ConfigError: names the file, the key and what to do.
    """
    return parse_config(_text(path), where=str(path), environ=environ, folder=path.parent)


def load_mapping(path: Path, *, environ: Mapping[str, str] | None = None) -> AttributeMapping:
    """Read and check the section ``extract`` of a configuration file; the others need not be there.

    Raises:
        ConfigError: names the file, the key and what to do.
    """
    where = str(path)
    document = _document(_text(path), where=where)
    if "extract" not in document:
        raise ConfigError(
            f"{where}: has no section `extract`: write `extract: {{mapping: {{question: [app.question]}}}}`"
        )
    filled = _filled({"extract": document["extract"]}, where=where, environ=environ)
    return _checked(_ExtractOnly, filled, where=where).extract.mapping.opened()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: cannot be read: {exc}") from exc


def parse_config(
    text: str, *, where: str, environ: Mapping[str, str] | None = None, folder: Path = Path()
) -> CollectorConfig:
    """Check a configuration text; ``${env:NAME}`` and ``${env:NAME:-default}`` are filled in.

    Relative paths of what it names (not of what the collector writes) begin at ``folder``.

    Raises:
        ConfigError: names ``where``, the key and what to do.
    """
    filled = _filled(_document(text, where=where), where=where, environ=environ)
    return _beside(folder, _checked(CollectorConfig, filled, where=where))


def _document(text: str, *, where: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ConfigError(f"{where}: not YAML: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{where}: not a configuration: nested too deep") from exc
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: must hold keys such as `export:`; it holds {_kind(document)}")
    return document


def _filled(document: dict[str, Any], *, where: str, environ: Mapping[str, str] | None) -> Any:
    try:
        return _fill(document, where=where, key="", environ=os.environ if environ is None else environ)
    except RecursionError as exc:
        raise ConfigError(f"{where}: not a configuration: nested too deep") from exc


def _checked(model: type[_Model], filled: Any, *, where: str) -> _Model:
    try:
        return model.model_validate(filled)
    except ValidationError as exc:
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems(exc.errors()))) from exc


def _beside(folder: Path, config: CollectorConfig) -> CollectorConfig:
    """Find what the file names beside the file, wherever the collector is started."""
    judge, second = config.judge, config.judge.second
    found = {
        "use": named_beside(judge.use, folder),
        "second": second and second.model_copy(update={"use": named_beside(second.use, folder)}),
        "embedder": judge.embedder and named_beside(judge.embedder, folder),
        "calibration": judge.calibration and folder / judge.calibration,
        "prices": judge.prices and folder / judge.prices,
    }
    metrics = tuple(_metric_beside(folder, metric) for metric in config.evaluate.metrics)
    return config.model_copy(
        update={
            "receive": _receive_beside(folder, config.receive),
            "judge": judge.model_copy(update=found),
            "evaluate": config.evaluate.model_copy(update={"metrics": metrics}),
        }
    )


def _receive_beside(folder: Path, receive: ReceiveConfig) -> ReceiveConfig:
    tls = receive.tls and receive.tls.model_copy(
        update={
            "cert": folder / receive.tls.cert,
            "key": folder / receive.tls.key,
            "client_ca": receive.tls.client_ca and folder / receive.tls.client_ca,
        }
    )
    tokens_file = receive.tokens_file and folder / receive.tokens_file
    return receive.model_copy(update={"tls": tls, "tokens_file": tokens_file})


def _metric_beside(folder: Path, metric: MetricConfig) -> MetricConfig:
    prompts = {
        name: source if "\n" in source else str(folder / source) for name, source in metric.prompts.items()
    }
    return metric.model_copy(update={"name": named_beside(metric.name, folder), "prompts": prompts})


def _fill(node: Any, *, where: str, key: str, environ: Mapping[str, str]) -> Any:
    """Replace references to environment variables, in values only."""
    if isinstance(node, dict):
        return {
            name: _fill(child, where=where, key=f"{key}.{name}".lstrip("."), environ=environ)
            for name, child in node.items()
        }
    if isinstance(node, list):
        return [
            _fill(child, where=where, key=f"{key}[{position}]", environ=environ)
            for position, child in enumerate(node)
        ]
    if not isinstance(node, str) or "${env:" not in node:
        return node

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in environ:
            return environ[name]
        if default is None:
            raise ConfigError(
                f"{where}: `{key}` needs the environment variable {name}: "
                f"set it, or write ${{env:{name}:-default}}"
            )
        return default

    filled = _REFERENCE.sub(value, node)
    return _typed(filled) if _REFERENCE.fullmatch(node) else filled


def _typed(text: str) -> Any:
    """Give a value that is one reference the type that the same text would have in the file."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:  # a key may begin with any character
        return text


def _kind(document: object) -> str:
    return "nothing" if document is None else f"a {type(document).__name__}"
