"""The collector's configuration: one YAML file, checked as a whole before anything starts."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from ragtrace.errors import ConfigError
from ragtrace.plugins import named_beside
from ragtrace.traces.extract import AttributeMapping, AttributePath

__all__ = [
    "AlwaysConfig",
    "AssembleConfig",
    "AttachConfig",
    "CacheConfig",
    "CollectorConfig",
    "EvaluateConfig",
    "ExportConfig",
    "ExtractConfig",
    "JudgeConfig",
    "MappingConfig",
    "MetricConfig",
    "ReceiveConfig",
    "SampleConfig",
    "SecondJudgeConfig",
    "StoreConfig",
    "default_config_text",
    "load_config",
    "load_mapping",
    "parse_config",
]

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S: Final = 3650 * 86400.0
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_REFERENCE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _duration(value: object) -> object:
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a duration with its unit, such as 500ms, 5s, 2m or 1h")
    seconds = float(match[1]) * _UNIT_S[match[2]]
    if seconds > _LONGEST_S:
        raise ValueError("write a duration of at most 3650d")
    return timedelta(seconds=seconds)


def _longer_than_zero(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("write a duration longer than zero: with none, every request would time out")
    return value


def _address(value: object) -> object:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("write host:port, such as 127.0.0.1:4327")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Timeout = Annotated[Duration, AfterValidator(_longer_than_zero)]
Address = Annotated[str, BeforeValidator(_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class ReceiveConfig(_Section):
    """Where OTLP comes in."""

    grpc: Address | None = "127.0.0.1:4327"
    http: Address | None = "127.0.0.1:4328"
    max_message_bytes: ByteSize = Field(default=ByteSize(16 << 20), gt=0)

    @model_validator(mode="after")
    def _one_receiver(self) -> ReceiveConfig:
        if self.grpc is None and self.http is None:
            raise ValueError("`grpc` and `http` are both null: nothing could come in")
        return self


class AssembleConfig(_Section):
    """How long spans of a trace are waited for."""

    quiet_period: Duration = timedelta(seconds=5)
    deadline: Duration = timedelta(seconds=60)
    linger: Duration = timedelta(minutes=10)
    max_open_traces: int = Field(default=50_000, gt=0)
    max_spans_per_trace: int = Field(default=5_000, gt=0)


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _path(value: str) -> str:
    return AttributePath(value).text


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as exc:
        raise ValueError(f"{value!r} is no regular expression: {exc}") from exc
    return value


Paths = Annotated[tuple[Annotated[str, AfterValidator(_path)], ...], BeforeValidator(_listed)]


class MappingConfig(_Section):
    """Where an application's own attributes hold the parts of a RAG call."""

    question: Paths = ()
    answer: Paths = ()
    context: Paths = ()
    reference: Paths = ()
    session: Paths = ()
    tools: Annotated[str, AfterValidator(_pattern)] | None = None

    def opened(self) -> AttributeMapping:
        """Return what the extractor takes."""
        return AttributeMapping(
            question=tuple(map(AttributePath, self.question)),
            answer=tuple(map(AttributePath, self.answer)),
            context=tuple(map(AttributePath, self.context)),
            reference=tuple(map(AttributePath, self.reference)),
            session=tuple(map(AttributePath, self.session)),
            tools=re.compile(self.tools, re.IGNORECASE) if self.tools else None,
        )


class ExtractConfig(_Section):
    """How RAG calls are read from spans."""

    mapping: MappingConfig = MappingConfig()


class AlwaysConfig(_Section):
    """A rule that keeps every trace with a span that matches all of it."""

    service: str | None = None
    attributes: dict[str, str | bool | int | float] = {}

    @field_validator("attributes", mode="before")
    @classmethod
    def _are_single_values(cls, value: object) -> object:
        # checked here, because pydantic would tell of each of the four types by itself
        if isinstance(value, dict) and any(isinstance(each, dict | list | None) for each in value.values()):
            raise ValueError("compare with a text, a number, true or false")
        return value

    @model_validator(mode="after")
    def _says_something(self) -> AlwaysConfig:
        if self.service is None and not self.attributes:
            raise ValueError("name a `service`, `attributes` or both; to keep everything, set `ratio: 1.0`")
        return self


class SampleConfig(_Section):
    """Which traces are judged."""

    ratio: float = Field(default=1.0, ge=0, le=1)
    always: tuple[AlwaysConfig, ...] = ()


def _named(key: str) -> Callable[[object], object]:
    """Let a section be written as the one text that says most of it."""
    return lambda value: {key: value} if isinstance(value, str) else value


def _http_url(value: str | None) -> str | None:
    if value is not None and not re.match(r"https?://[^/\s]+", value):
        raise ValueError("write a URL such as http://localhost:11434/v1")
    return value


HttpUrl = Annotated[str, AfterValidator(_http_url)]


class SecondJudgeConfig(_Section):
    """Who is asked where the judge got a planted claim wrong. What is not set is as of the judge."""

    use: str
    base_url: HttpUrl | None = None
    api_key_env: str | None = None
    timeout: Timeout | None = None


class CacheConfig(_Section):
    """Where replies are kept: content, on disk."""

    path: Path
    max_bytes: ByteSize = Field(default=ByteSize(256 << 20), gt=0)


class JudgeConfig(_Section):
    """Who judges, and how it is asked."""

    use: str = "lexical"
    base_url: HttpUrl | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout: Timeout = timedelta(seconds=60)
    max_concurrency: int = Field(default=8, gt=0)
    second: Annotated[SecondJudgeConfig, BeforeValidator(_named("use"))] | None = None
    embedder: str | None = None
    verify: Literal["auto", "json", "logprobs"] = "auto"
    calibration: Path | None = None
    second_look: bool = False
    sentinel_rate: float = Field(default=1.0, ge=0, le=1)
    cache: Annotated[CacheConfig, BeforeValidator(_named("path"))] | None = None
    prices: Path | None = None


class MetricConfig(_Section):
    """One metric, where it passes, and what else it takes."""

    name: str
    profile: str = "ragtrace"
    peer_prompts: bool = False
    """Ask as the tool of the profile asks, instead of scoring our own verdicts by its rules."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    prompts: dict[str, str] = {}
    """By the name of the prompt that each replaces; a text of several lines, or a path."""
    weights: dict[str, float] = {}
    options: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _has_one_asker(self) -> MetricConfig:
        if self.peer_prompts and self.profile == "ragtrace":
            raise ValueError("`peer_prompts` needs a `profile`, such as deepeval-4: whose prompts?")
        if self.peer_prompts and (self.prompts or self.weights):
            raise ValueError(
                "`prompts` and `weights` are of our own metrics: leave them out with `peer_prompts`"
            )
        return self


class EvaluateConfig(_Section):
    """What is measured, and what happens when the judge fails."""

    metrics: tuple[Annotated[MetricConfig, BeforeValidator(_named("name"))], ...] = Field(
        default=(MetricConfig(name="faithfulness"),), min_length=1
    )
    concurrency: int = Field(default=8, gt=0)
    retry_delays: tuple[Duration, ...] = tuple(
        timedelta(seconds=seconds) for seconds in (10, 60, 600, 3600, 14_400)
    )

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, value: tuple[MetricConfig, ...]) -> tuple[MetricConfig, ...]:
        names = [(metric.name, metric.profile) for metric in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice[0]!r} is named twice: both would write the same attributes")
        return value


class AttachConfig(_Section):
    """What the carrier span looks like."""

    carrier_time: Literal["auto", "target", "now"] = "auto"
    tempo_slack: Duration = timedelta(seconds=120)
    max_claims: int = Field(default=30, ge=1, le=90)
    content: bool = True
    mark_failed_as_error: bool = False


class ExportConfig(_Section):
    """One back end that gets the carriers, and with ``forward`` the originals too."""

    endpoint: str
    headers: dict[str, str] = {}
    forward: bool = False
    timeout: Timeout = timedelta(seconds=10)

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, value: dict[str, str]) -> dict[str, str]:
        for number, (name, text) in enumerate(value.items(), 1):
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                # neither is quoted: headers hold keys
                raise ValueError(f"header {number} cannot be sent: write printable ASCII, on one line")
        return value


class StoreConfig(_Section):
    """The file that survives a crash."""

    path: Path = Path("ragtrace.db")
    max_bytes: ByteSize = Field(default=ByteSize(2 << 30), gt=0)


class CollectorConfig(_Section):
    """Everything the collector can be told. All have defaults but ``export``."""

    receive: ReceiveConfig = ReceiveConfig()
    assemble: AssembleConfig = AssembleConfig()
    extract: ExtractConfig = ExtractConfig()
    sample: SampleConfig = SampleConfig()
    judge: JudgeConfig = JudgeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    attach: AttachConfig = AttachConfig()
    export: tuple[ExportConfig, ...] = Field(min_length=1)
    store: StoreConfig = StoreConfig()
    drain_timeout: Duration = timedelta(seconds=20)
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _distinct_endpoints(self) -> CollectorConfig:
        endpoints = [each.endpoint for each in self.export]
        if len(set(endpoints)) != len(endpoints):
            raise ValueError("`export` names an endpoint twice: each would get every carrier twice")
        own = {address for address in (self.receive.grpc, self.receive.http) if address}
        for endpoint in endpoints:
            if any(_same_address(endpoint, address) for address in own):
                raise ValueError(f"`export` endpoint {endpoint!r} is this collector's own receiver: a loop")
        return self


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
        problems = "\n".join(f"{where}: {_problem(error)}" for error in _root_causes(exc.errors()))
        raise ConfigError(problems) from exc


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
            "judge": judge.model_copy(update=found),
            "evaluate": config.evaluate.model_copy(update={"metrics": metrics}),
        }
    )


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


def _root_causes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out that a list is too short where the fault is that one of its items is wrong."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short"
        or not any(place != error["loc"] and place[: len(error["loc"])] == error["loc"] for place in places)
    ]


def _problem(error: ErrorDetails) -> str:
    location = [part for part in error["loc"] if part != "model"]
    key = _dotted(location)
    if error["type"] == "extra_forbidden":
        return f"unknown key `{key}`{_suggestion(location)}"
    if error["type"] == "missing":
        return f"`{key}` is missing{': ' + _HINTS[key] if key in _HINTS else ''}"
    message = error["msg"].removeprefix("Value error, ")
    return f"`{key}`: {message}" if key else message


_HINTS: Final = {
    "export": "name at least one back end, such as `export: [{endpoint: 'http://localhost:4317'}]`",
}


def _dotted(location: list[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).lstrip(".")


def _suggestion(location: list[int | str]) -> str:
    known = list(_known_keys(location[:-1]))
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    if close:
        return f": did you mean `{close[0]}`?"
    return f": there is {', '.join(f'`{name}`' for name in known)}" if known else ""


def _known_keys(location: list[int | str]) -> Iterator[str]:
    section: type[BaseModel] | None = CollectorConfig
    for part in location:
        if isinstance(part, int) or section is None:
            continue
        field = section.model_fields.get(part)
        section = _section_in(field.annotation) if field else None
    if section is not None:
        yield from section.model_fields


def _section_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation]
    for each in candidates:  # it grows: sections stand in tuples, unions and annotations
        candidates.extend(getattr(each, "__args__", ()))
        candidates.extend([each.__origin__] if hasattr(each, "__metadata__") else [])
    sections = (each for each in candidates if isinstance(each, type) and issubclass(each, _Section))
    return cast("type[BaseModel] | None", next(sections, None))


def _same_address(endpoint: str, address: str) -> bool:
    host, _, port = address.rpartition(":")
    found = re.search(r"^(?:[a-z-]+://)?([^/:\s]+):(\d+)", endpoint)
    if found is None or port == "0":
        return False
    loopback = {"localhost", "127.0.0.1", "0.0.0.0"}
    return found[2] == port and (found[1] == host or {found[1], host} <= loopback)


def _kind(document: object) -> str:
    return "nothing" if document is None else f"a {type(document).__name__}"
