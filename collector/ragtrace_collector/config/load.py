"""Read a configuration: YAML, with references resolved, checked as a whole before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from ragtrace.drift import BUILTIN
from ragtrace.errors import ConfigError
from ragtrace.plugins import named_beside
from ragtrace.sampling import SamplingPlan
from ragtrace_collector.config._changes import change
from ragtrace_collector.config._problems import problems
from ragtrace_collector.config._references import MissingValue, References
from ragtrace_collector.config.budget import DriftConfig
from ragtrace_collector.config.sampling import SampleConfig
from ragtrace_collector.config.sections import (
    CollectorConfig,
    MetricConfig,
    ReceiveConfig,
    SecondJudgeConfig,
)

if TYPE_CHECKING:
    import yaml

_QUOTED: Final = re.compile(r"'.*'|\".*\"", re.DOTALL)


class _SampleOnly(BaseModel):
    sample: SampleConfig


_Model = TypeVar("_Model", bound=BaseModel)


def default_config_text() -> str:
    """Return the collector's commented default configuration."""
    return (files("ragtrace_collector") / "config.yaml").read_text("utf-8")


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
    return _checked(_SampleOnly, section, where=where).sample.plan()


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
    config = _checked(CollectorConfig, _filled(document, found), where=where)
    shown = config.model_dump_json() if found.missing else ""  # secrets are masked in it
    for stand_in, missing in found.missing.items():
        if stand_in in shown:
            raise missing
    return _beside(folder, config)


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


def _checked(model: type[_Model], filled: Any, *, where: str) -> _Model:
    try:
        return model.model_validate(filled)
    except ValidationError as exc:
        raise ConfigError("\n".join(f"{where}: {problem}" for problem in problems(exc.errors()))) from None


def _beside(folder: Path, config: CollectorConfig) -> CollectorConfig:
    """Resolve the file's relative paths against its folder, wherever the collector is started."""
    judge = config.judge
    found = {
        "use": named_beside(judge.use, folder),
        "screen": judge.screen and named_beside(judge.screen, folder),
        "second": judge.second and _judge_beside(folder, judge.second),
        "embedder": judge.embedder and named_beside(judge.embedder, folder),
        "calibration": judge.calibration and folder / judge.calibration,
        "card": tuple(folder / card for card in judge.card),
        "prices": judge.prices and folder / judge.prices,
        "tls": _paths_beside(folder, judge.tls),
    }
    metrics = tuple(_metric_beside(folder, metric) for metric in config.evaluate.metrics)
    return config.model_copy(
        update={
            "receive": _receive_beside(folder, config.receive),
            "export": tuple(
                each.model_copy(update={"tls": _paths_beside(folder, each.tls)}) for each in config.export
            ),
            "judge": judge.model_copy(update=found),
            "drift": _drift_beside(folder, config.drift),
            "evaluate": config.evaluate.model_copy(update={"metrics": metrics}),
        }
    )


def _drift_beside(folder: Path, drift: DriftConfig) -> DriftConfig:
    is_file = drift.anchors is not None and drift.anchors != BUILTIN
    return drift.model_copy(update={"anchors": str(folder / str(drift.anchors))}) if is_file else drift


def _receive_beside(folder: Path, receive: ReceiveConfig) -> ReceiveConfig:
    tokens_file = receive.tokens_file and folder / receive.tokens_file
    return receive.model_copy(update={"tls": _paths_beside(folder, receive.tls), "tokens_file": tokens_file})


def _paths_beside(folder: Path, tls: _Model | None) -> _Model | None:
    """Resolve the files of a section that holds only paths."""
    return tls and tls.model_copy(update={name: path and folder / path for name, path in tls})


def _judge_beside(folder: Path, judge: SecondJudgeConfig) -> SecondJudgeConfig:
    return judge.model_copy(update={"use": named_beside(judge.use, folder)})


def _metric_beside(folder: Path, metric: MetricConfig) -> MetricConfig:
    prompts = {
        name: source if "\n" in source else str(folder / source) for name, source in metric.prompts.items()
    }
    return metric.model_copy(update={"name": named_beside(metric.name, folder), "prompts": prompts})


def _fault(error: yaml.YAMLError) -> str:
    """Say where the error is, and quote nothing, because the line may hold a key."""
    mark = getattr(error, "problem_mark", None)
    problem = _QUOTED.sub("…", getattr(error, "problem", None) or "it cannot be read")
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _kind(document: object) -> str:
    return "nothing" if document is None else f"a {type(document).__name__}"
