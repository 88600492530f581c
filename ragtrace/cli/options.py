"""How a command's options are declared, and those that several commands share.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class SearchOptions:
        service: str | None = option("--service", metavar="NAME", help="Traces of this service.")

    @command()
    @takes(search=("What to read", SearchOptions))
    def find(search: SearchOptions) -> None: ...

A field may hold another such dataclass (`group`). A command shows the options of each section together.
Judges, metrics and back ends are loaded only to be used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ragtrace.text import UNITS_S, duration_of

if TYPE_CHECKING:
    from ragtrace.backends.http_api import ConnectionSettings
    from ragtrace.pipeline import EvaluatorSpec
    from ragtrace_collector.config import CollectorConfig


Callback: TypeAlias = Callable[..., Any]

_OPTION: Final = "option"
_GROUP: Final = "group"


class SettingOption(click.Option):
    """An option that fills a field of a settings dataclass."""

    def __init__(self, *args: Any, section: str, selects: bool, configures: bool, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section
        """The title it is listed under in ``--help``."""
        self.selects = selects
        """Whether it says which answers are judged: reports name it."""
        self.configures = configures
        """Whether a configuration says the same."""


class SettingsCommand(click.Command):
    """A command whose ``--help`` lists the options of each section together."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, then the options that belong to none."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sorted(sections.items(), key=lambda section: section[0] == "Options"):
            with formatter.section(title):
                formatter.write_dl(records)


def command() -> Callable[[Callback], click.Command]:
    """Make a function a command."""
    return click.command(cls=SettingsCommand)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    names: tuple[str, ...]
    parse: Callable[[Any], Any] | None
    attributes: Mapping[str, Any]


def option(
    *names: str,
    default: Any = None,
    parse: Callable[[Any], Any] | None = None,
    selects: bool = False,
    configures: bool = False,
    secret: bool = False,
    **attributes: Any,
) -> Any:
    """Declare a field that an option fills; ``attributes`` are click's.

    ``parse`` turns what was typed into the value; its ValueError becomes an error that names the option.
    """
    if attributes.get("is_flag") and default is None:
        default = False
    if attributes.get("multiple") and default is None:
        default = ()
    if not attributes.get("required"):  # click takes any default for an answer
        attributes["default"] = default
    attributes |= {"selects": selects, "configures": configures}
    declared = _Option(names=names, parse=parse, attributes=attributes)
    if parse is not None and default is not None:  # only the command line has the form that is parsed
        return field(metadata={_OPTION: declared}, repr=not secret)
    return field(default=default, metadata={_OPTION: declared}, repr=not secret)


def group(kind: type) -> Any:
    """Declare a field that holds another settings dataclass."""
    return field(metadata={_GROUP: kind})


def takes(**sections: tuple[str, type] | type) -> Callable[[Callback], Callback]:
    """Add the options of settings dataclasses to a command, which gets the dataclasses by these names.

    A title is that of their section in ``--help``.
    """
    wanted = {name: each if isinstance(each, tuple) else ("Options", each) for name, each in sections.items()}

    def add_options(callback: Callback) -> Callback:
        @wraps(callback)
        def with_settings(**values: Any) -> Any:
            built = {name: _build(kind, name, values) for name, (_, kind) in wanted.items()}
            return callback(**built, **values)

        decorated: Callback = with_settings
        options = [each for name, (title, kind) in wanted.items() for each in _options(kind, name, title)]
        for add in reversed(options):
            decorated = add(decorated)
        return decorated

    return add_options


def given_selection(context: click.Context) -> Iterator[tuple[str, Any]]:
    """Yield the options that were given to choose answers, as they are written, with their values."""
    for parameter in _given(context):
        if parameter.selects:
            yield parameter.opts[0], context.params[parameter.name or ""]


def given_beside_configuration(context: click.Context) -> tuple[str, ...]:
    """Return the options that were given and whose settings a configuration has, as they are written."""
    return tuple(parameter.opts[0] for parameter in _given(context) if parameter.configures)


def _given(context: click.Context) -> Iterator[SettingOption]:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if isinstance(parameter, SettingOption) and source is click.core.ParameterSource.COMMANDLINE:
            yield parameter


def _options(kind: type, path: str, title: str) -> Iterator[Callable[[Callback], Callback]]:
    for each in fields(kind):
        name = f"{path}_{each.name}"
        if _GROUP in each.metadata:
            yield from _options(each.metadata[_GROUP], name, title)
        elif _OPTION in each.metadata:
            declared: _Option = each.metadata[_OPTION]
            parse = _parsing(declared.parse) if declared.parse else None
            attributes = {"cls": SettingOption, "section": title, "callback": parse, **declared.attributes}
            yield click.option(*declared.names, name, **attributes)


def _parsing(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from exc

    return callback


def _build(kind: type, path: str, values: dict[str, Any]) -> Any:
    """Make the dataclass of what was parsed, which it takes out of ``values``."""
    built: dict[str, Any] = {}
    for each in fields(kind):
        name = f"{path}_{each.name}"
        if _GROUP in each.metadata:
            built[each.name] = _build(each.metadata[_GROUP], name, values)
        elif _OPTION in each.metadata:
            built[each.name] = values.pop(name)
    try:
        return kind(**built)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


_UNITS_S: Final = {**UNITS_S, "w": 7 * 86_400.0}


def duration(text: str) -> timedelta:
    """Read a duration.

    Raises:
        ValueError: it is none.
    """
    found = duration_of(text, _UNITS_S)
    if found is None:
        raise ValueError("write a duration with its unit, such as 90s, 15m, 2h, 7d or 4w")
    return found


class Moment:
    """A moment: so long before now, or a date, in UTC if it names no zone."""

    def __init__(self, text: str) -> None:
        """Read it.

        Raises:
            ValueError: it is neither a duration nor a date.
        """
        self._text = text.strip()
        self._ago = duration_of(self._text, _UNITS_S)
        try:
            date = None if self._ago is not None else datetime.fromisoformat(self._text)
        except ValueError:
            raise ValueError(
                "write how long ago (2h, 7d) or a date (2026-11-20, 2026-11-20T18:00Z)"
            ) from None
        self._date = date.replace(tzinfo=UTC) if date and date.tzinfo is None else date

    def __str__(self) -> str:
        return self._text

    def at(self, now_ns: int) -> int:
        """Return nanoseconds since 1970."""
        if self._ago is not None:
            return now_ns - int(self._ago.total_seconds() * 1e9)
        assert self._date is not None
        return int(self._date.timestamp() * 1e6) * 1_000


OWN_PROFILE: Final = "ragtrace"
TOOLS: Final = ("ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")
"""Other tools whose rules and prompts there are: `ragtrace.scoring.PROFILES`."""
REPORT_SUFFIXES: Final = (".html", ".jsonl", ".csv", ".parquet")
"""As `ragtrace.reports.SUFFIXES`."""

FILE: Final = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


def named(*suffixes: str) -> Callable[[Any], Any]:
    """Return what takes one or several files whose names end with one of these, and refuses others."""

    def checked(given: Path | tuple[Path, ...]) -> Path | tuple[Path, ...]:
        for path in given if isinstance(given, tuple) else (given,):
            if path.suffix.lower() not in suffixes:
                raise ValueError(f"{path.name!r} must end with {', '.join(suffixes[:-1])} or {suffixes[-1]}")
        return tuple(dict.fromkeys(given)) if isinstance(given, tuple) else given

    return checked


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOption:
    """``--json``."""

    wanted: bool = option("--json", is_flag=True, help="Print JSON lines to stdout.")


def pairs(texts: tuple[str, ...], what: str) -> list[tuple[str, str]]:
    """Split ``KEY=VALUE``.

    Raises:
        ValueError: a text is no such pair: write ``what``.
    """
    split = [text.partition("=") for text in texts]
    if any(not mark or not key for key, mark, _ in split):
        raise ValueError(f"write {what}")
    return [(key, value) for key, _, value in split]


def changes_of(texts: tuple[str, ...]) -> tuple[tuple[str, object], ...]:
    """Read ``KEY=VALUE`` texts; a value is JSON, else text.

    Raises:
        UsageError: one has no key.
    """
    found = pairs(texts, "KEY=VALUE, such as judge.timeout=5m")
    return tuple((key, _json_or_text(value)) for key, value in found)


def _json_or_text(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    # 007 and 1e5 may be keys or names
    return value if not isinstance(value, int | float) or json.dumps(value) == text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOptions:
    """Settings as the collector's configuration has them: in a file, or one by one."""

    path: Path | None = option(
        "--config",
        type=EXISTING_FILE,
        metavar="FILE",
        help="A collector's configuration.",
    )
    changes: tuple[tuple[str, object], ...] = option(
        "--set",
        multiple=True,
        metavar="KEY=VALUE",
        parse=changes_of,
        secret=True,
        help="Set a key of the configuration (`ragtrace collector --print-config` lists them):"
        " judge.timeout=5m. VALUE is JSON or text; '${env:NAME}' hides a secret. Repeatable.",
    )

    def read(
        self,
        options: Mapping[str, object] | None = None,
        *,
        only: Collection[str] = (),
        needs_secrets: bool = True,
    ) -> CollectorConfig:
        """Return the configuration with what ``options`` and then ``--set`` change.

        Args:
            options: Values by the paths of their keys, of other options than these.
            only: The sections that the command reads, by default all: others cannot be set.
            needs_secrets: Whether a variable that holds a secret must be there.

        Raises:
            ConfigError: a key or a value is wrong.
            UsageError: an option says what the file says, or a key is of no use here.
        """
        for key, _ in self.changes:
            section = re.split(r"\.", key)[0]
            if only and section in _SECTIONS and section not in only:
                raise click.UsageError(f"--set {key}: this command reads {', '.join(only)}, not {section}")
        if self.path is not None and (given := given_beside_configuration(click.get_current_context())):
            raise click.UsageError(
                f"--config names the whole evaluator: leave out {', '.join(dict.fromkeys(given))}, or"
                " change a key of it with --set"
            )
        from ragtrace_collector.config import load_config

        changes = (*(options or {}).items(), *self.changes) if self.path is None else self.changes
        return load_config(self.path, changes=changes, needs_secrets=needs_secrets)


_SECTIONS: Final = (
    *("receive", "assemble", "extract", "sample", "judge", "evaluate", "budget", "drift", "attach", "export"),
    *("store", "index", "telemetry", "ui", "sessions"),
)
"""The keys of `ragtrace_collector.config.CollectorConfig` that hold others."""


def _headers(texts: tuple[str, ...]) -> Mapping[str, str]:
    found = pairs(texts, "NAME=VALUE, such as X-Scope-OrgID=team-a")
    return {name: _VARIABLE.sub(_of_environment, value) for name, value in found}


_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def _of_environment(found: re.Match[str]) -> str:
    if not os.environ.get(found[1]):
        raise ValueError(f"the environment variable {found[1]} is not set")
    return os.environ[found[1]]


# -- options that several commands have, each declared once --------------------------------------------------
def concurrency_option() -> Any:
    """Declare ``--concurrency``."""
    return option(
        "--concurrency",
        type=click.IntRange(min=1, max=256),
        default=8,
        show_default=True,
        metavar="N",
        help="Judge N answers at once.",
    )


def from_headers_option() -> Any:
    """Declare ``--from-header``."""
    return option(
        "--from-header",
        multiple=True,
        metavar="NAME=VALUE",
        parse=_headers,
        secret=True,
        help="Header of requests to --from: X-Scope-OrgID=TENANT, 'Authorization=Bearer ${env:TOKEN}'."
        " Repeatable.",
    )


def to_headers_option() -> Any:
    """Declare ``--to-header``."""
    return option(
        "--to-header",
        multiple=True,
        metavar="NAME=VALUE",
        parse=_headers,
        secret=True,
        help="The same for requests to --to. Repeatable.",
    )


def criteria_option() -> Any:
    """Declare ``--criterion``, of which `criteria_metrics` makes metrics."""
    return option(
        "--criterion",
        multiple=True,
        metavar="TEXT",
        configures=True,
        help='Also judge whether the answer meets this, yes or no: "The answer names the next step".'
        " NAME=TEXT names it. Repeatable.",
    )


def criteria_metrics(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return criteria as `evaluate.metrics` of a configuration has them.

    Raises:
        ConfigError: one is empty or too long, or makes no name.
    """
    from ragtrace.metrics.answers import checked_criterion, criterion_named

    named = map(criterion_named, texts)
    return [{"name": name, "criterion": checked_criterion(text, name)} for name, text in named]


def profile_option() -> Any:
    """Declare ``--profile``."""
    return option(
        "--profile",
        type=click.Choice((OWN_PROFILE, *TOOLS)),
        metavar="TOOL",
        configures=True,
        envvar="RAGTRACE_PROFILE",
        show_envvar=True,
        help=f"The tool whose rules turn verdicts into scores: {', '.join((OWN_PROFILE, *TOOLS))}.",
    )


def metrics_shown_option() -> Any:
    """Declare ``--metric``."""
    return option(
        "--metric", multiple=True, metavar="NAME", help="This metric only. Repeatable. [default: all]"
    )


DEFAULT_SINCE: Final = "7d"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOptions:
    """Where judged answers are, and which of them."""

    source: str | None = option(
        "--from",
        metavar="SOURCE",
        help="store:PATH or store:postgresql://… for a collector's store, even while it runs; jaeger:URL,"
        " tempo:URL, phoenix:URL or langfuse:URL; file:PATH for OTLP or a report.jsonl. [default: the store"
        " of --config, or the default store]",
    )
    headers: Mapping[str, str] = from_headers_option()
    config: ConfigOptions = group(ConfigOptions)
    since: Moment | None = option(
        "--since",
        metavar="TIME",
        parse=Moment,
        help=f"From when: 24h, 7d or a date. [default: {DEFAULT_SINCE}; files: all]",
    )
    service: str | None = option("--service", metavar="NAME", help="This service only.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions(PlaceOptions):
    """Where judged answers are, and of which range of time."""

    until: Moment | None = option(
        "--until", metavar="TIME", parse=Moment, help="Until when: 24h or a date. [default: now]"
    )


def access(headers: Mapping[str, str]) -> ConnectionSettings:
    """Return what readers and sinks take; files for TLS are named as for any exporter of OpenTelemetry."""
    from ragtrace.backends.http_api import ConnectionSettings
    from ragtrace.http import ClientTls

    names = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    given = (os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") for name in names)
    ca, cert, key = (Path(each) if each else None for each in given)
    tls = ClientTls(ca=ca, cert=cert, key=key) if ca or cert or key else None
    return ConnectionSettings(headers=headers, tls=tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """What is measured, and when it passes."""

    names: str | None = option(
        "--metrics",
        metavar="NAMES",
        configures=True,
        help="Comma-separated names (docs/metrics.md) or addresses of code. [default: faithfulness]",
    )
    threshold: float | None = option(
        "--threshold",
        type=click.FloatRange(0, 1),
        metavar="SCORE",
        configures=True,
        help="Lowest score that passes. [default: the metric's rule]",
    )
    pass_when: str | None = option(
        "--pass-when",
        metavar="RULE",
        configures=True,
        help="Instead of a threshold: `contradicted == 0 and unsupported <= 1`.",
    )

    def __post_init__(self) -> None:
        """Refuse two rules at once."""
        if self.threshold is not None and self.pass_when is not None:
            raise click.UsageError(
                "--threshold and --pass-when both say when a metric passes: give one;"
                f" --pass-when 'score >= {self.threshold:g} and contradicted == 0' requires both"
            )
        if self.names is not None and not self.chosen:
            raise click.UsageError("--metrics names none: docs/metrics.md lists them")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names, each once."""
        names = (self.names or "faithfulness").split(",")
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))

    def metrics(self, profile: str = OWN_PROFILE, *, asks: bool = False) -> list[dict[str, Any]]:
        """Return the metrics as `evaluate.metrics` of a configuration has them.

        ``faithfulness.deepeval-4`` names another profile than this one. With ``asks``, they ask as the
        profile's tool asks.
        """
        rules = {"threshold": self.threshold, "pass_when": self.pass_when}
        given = {name: value for name, value in rules.items() if value is not None}
        if asks:
            given["peer_prompts"] = True
        return [{**_named(name, profile), **given} for name in self.chosen]


def _named(name: str, profile: str) -> dict[str, Any]:
    from ragtrace.plugins import Address

    if Address.parse(name):
        return {"name": name}
    plain, _, named = name.partition(".")
    return {"name": plain, "profile": named or profile}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Which reports are wanted."""

    paths: tuple[Path, ...] = option(
        "--out",
        type=FILE,
        multiple=True,
        metavar="FILE",
        parse=named(*REPORT_SUFFIXES),
        help="Also write judged answers with their texts to a .html, .jsonl, .csv or .parquet file. Appends"
        " to an existing .jsonl or .csv, replaces others. Repeatable.",
    )
    transcripts: Path | None = option(
        "--transcripts",
        type=FILE,
        metavar="FILE",
        help="Save records, replies and verdicts for `ragtrace rejudge`. The file contains texts; only you"
        " can read it.",
    )


_EMBEDDER: Final = "openai:text-embedding-3-small"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Who judges, and how it is reached."""

    config: ConfigOptions = group(ConfigOptions)
    spec: str | None = option(
        "--judge",
        metavar="JUDGE",
        configures=True,
        help="lexical, openai:MODEL, azure:DEPLOYMENT, anthropic:MODEL, nli:FOLDER or scripted:PATH."
        " [default: openai if OPENAI_API_KEY or OPENAI_BASE_URL is set, else lexical]",
    )
    base_url: str | None = option(
        "--base-url",
        metavar="URL",
        configures=True,
        help="Endpoint of openai:, azure: or anthropic:. A user and password in it replace the key.",
    )
    api_key_env: str | None = option(
        "--api-key-env",
        metavar="NAME",
        configures=True,
        help="Environment variable with the judge's key. [default: OPENAI_API_KEY; for anthropic: and"
        " azure:, their own]",
    )
    use_cache: bool | None = option(
        "--cache/--no-cache",
        configures=True,
        help="Keep and reuse the judge's replies in ~/.cache/ragtrace. They contain judged text; only you can"
        " read the file. [default: off, unless judge.cache is set]",
    )
    calibration: Path | None = option(
        "--calibration",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        configures=True,
        help="What `ragtrace calibrate --save` wrote about this judge: how to ask it, and its threshold.",
    )

    @property
    def names_judge(self) -> bool:
        """Whether an option names the judge."""
        return self.spec is not None or "judge.use" in dict(self.config.changes)

    def evaluator(
        self,
        metrics: Callable[[], list[dict[str, Any]]] | None = None,
        *,
        max_concurrency: int = 1,
        only: Collection[str] = ("judge", "evaluate"),
    ) -> ChosenEvaluator:
        """Return the evaluator that the configuration or the options name, not opened yet.

        Args:
            metrics: Makes the metrics that options name.
            max_concurrency: How many requests run at once; the collector's number is for its own traffic.
            only: The sections of the configuration that the command reads.

        Raises:
            ConfigError: a setting is wrong.
            UsageError: options do not go together.
        """
        options = self._options()
        if metrics is not None and self.config.path is None:
            options["evaluate.metrics"] = metrics()
        config = self.config.read(options, only=only)
        from ragtrace_collector.judge import evaluator_spec_of

        spec = evaluator_spec_of(config)
        embedder = spec.embedder
        if embedder is None and self.config.path is None and spec.judge.kind == "openai":
            embedder = spec.judge.sibling(_EMBEDDER)
        second = spec.second and replace(spec.second, max_concurrency=max_concurrency)
        judge = replace(spec.judge, max_concurrency=max_concurrency)
        spec = replace(spec, judge=judge, second=second, embedder=embedder)
        if config.attach.mode == "hold":
            from ragtrace.cli.render import talk

            talk("for live traffic only, not used here: attach.mode: hold")
        return ChosenEvaluator(spec=spec, config=config)

    def _options(self) -> dict[str, object]:
        """Return what these options say, by the paths of the keys."""
        from ragtrace.judge import default_cache_path, judge_named_by

        if self.config.path is None and self.base_url is not None and not self.names_judge:
            raise click.UsageError("--base-url needs --judge openai:MODEL: which model is to judge?")
        cache = {None: None, True: str(default_cache_path()), False: None}[self.use_cache]
        given: Mapping[str, object] = {
            "judge.base_url": self.base_url,
            "judge.api_key_env": self.api_key_env,
            "judge.cache": cache,
            "judge.calibration": self.calibration and str(self.calibration),
        }
        return {
            "judge.use": self.spec or judge_named_by(os.environ),
            **{key: value for key, value in given.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEvaluator:
    """The evaluator that the options name, not opened yet, and the configuration that says so."""

    spec: EvaluatorSpec
    config: CollectorConfig
