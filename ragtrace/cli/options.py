"""Options that several commands share; they load judges, metrics and back ends only to use them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.settings import given_beside_configuration, option

if TYPE_CHECKING:
    from ragtrace.backends.http_api import ConnectionSettings
    from ragtrace_collector.config import CollectorConfig


OWN_PROFILE: Final = "ragtrace"
TOOLS: Final = ("ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")
"""Other tools whose rules and prompts there are: `ragtrace.compat.tool_metric.PROFILES`."""
REPORT_SUFFIXES: Final = (".html", ".jsonl", ".csv", ".parquet")
"""As `ragtrace.reports.SUFFIXES`."""

FILE: Final = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOption:
    """``--json``."""

    wanted: bool = option("--json", is_flag=True, help="Print JSON lines to stdout.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyOption:
    """``--concurrency``."""

    answers: int = option(
        "--concurrency",
        type=click.IntRange(min=1, max=256),
        default=8,
        show_default=True,
        metavar="N",
        help="Judge N answers at once.",
    )


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
        if self.path is not None:
            context = click.get_current_context(silent=True)  # a worker has none: its supervisor has looked
            if context and (given := given_beside_configuration(context)):
                raise click.UsageError(
                    f"--config names the whole evaluator: leave out {', '.join(dict.fromkeys(given))}, or"
                    " change a key of it with --set"
                )
            with needs_extra("collector"):
                import yaml  # noqa: F401 -- the core reads no files
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FromHeaders:
    """``--from-header``."""

    headers: Mapping[str, str] = option(
        "--from-header",
        multiple=True,
        metavar="NAME=VALUE",
        parse=_headers,
        secret=True,
        help="Header of requests to --from: X-Scope-OrgID=TENANT, 'Authorization=Bearer ${env:TOKEN}'."
        " Repeatable.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToHeaders:
    """``--to-header``."""

    headers: Mapping[str, str] = option(
        "--to-header",
        multiple=True,
        metavar="NAME=VALUE",
        parse=_headers,
        secret=True,
        help="The same for requests to --to. Repeatable.",
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
class CriteriaOption:
    """``--criterion``."""

    texts: tuple[str, ...] = option(
        "--criterion",
        multiple=True,
        metavar="TEXT",
        configures=True,
        help='Also judge whether the answer meets this, yes or no: "The answer names the next step".'
        " NAME=TEXT names it. Repeatable.",
    )

    def metrics(self) -> list[dict[str, Any]]:
        """Return the criteria as `evaluate.metrics` of a configuration has them.

        Raises:
            ConfigError: one is empty or too long, or makes no name.
        """
        from ragtrace.metrics.criterion import checked_criterion, criterion_named

        named = map(criterion_named, self.texts)
        return [{"name": name, "criterion": checked_criterion(text, name)} for name, text in named]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOption:
    """``--profile``."""

    tool: str | None = option(
        "--profile",
        type=click.Choice((OWN_PROFILE, *TOOLS)),
        metavar="TOOL",
        configures=True,
        envvar="RAGTRACE_PROFILE",
        show_envvar=True,
        help=f"The tool whose rules turn verdicts into scores: {', '.join((OWN_PROFILE, *TOOLS))}.",
    )


def _known_suffixes(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        if path.suffix.lower() not in REPORT_SUFFIXES:
            raise ValueError(
                f"{path.name!r} is not a report: its name must end with {', '.join(REPORT_SUFFIXES)}"
            )
    return tuple(dict.fromkeys(paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Which reports are wanted."""

    paths: tuple[Path, ...] = option(
        "--out",
        type=FILE,
        multiple=True,
        metavar="FILE",
        parse=_known_suffixes,
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
