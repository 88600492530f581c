"""``ragtrace collector``: run the service, or check its configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ragtrace import process
from ragtrace.cli.options import ConfigOptions, command, group, option, takes
from ragtrace.cli.render import talk

if TYPE_CHECKING:
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.service.collector import Collector


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Which configuration is used, and what is done with it."""

    config: ConfigOptions = group(ConfigOptions)
    judge: str | None = option(
        "--judge",
        metavar="JUDGE",
        configures=True,
        help="Without --config: lexical, openai:MODEL, anthropic:MODEL, nli:FOLDER. Its key and address are"
        " in OPENAI_API_KEY and OPENAI_BASE_URL, or the provider's own variables. [default: lexical]",
    )
    role: Literal["all", "ingest", "evaluate"] = option(
        "--role",
        type=click.Choice(["all", "ingest", "evaluate"]),
        default="all",
        show_default=True,
        help="What this process does with a store in PostgreSQL, which others share: receive spans and sample"
        " their answers, or judge and deliver, or both. Those on one machine share the receivers' ports.",
    )
    check: bool = option(
        "--check",
        is_flag=True,
        help="Check the configuration and the files it names, then exit; starts and creates nothing.",
    )
    print_config: bool = option(
        "--print-config", is_flag=True, help="Print the commented default configuration and exit."
    )
    print_schema: bool = option(
        "--print-schema",
        is_flag=True,
        help="Print the JSON schema of the configuration, for editors, and exit.",
    )
    as_json: bool = option(
        "--json", is_flag=True, help="Print a JSON line to stdout when ready, checked or stopped."
    )


@command()
@takes(options=ServiceOptions)
def collector(options: ServiceOptions) -> None:
    """Receive OTLP, judge the RAG answers in it, and write the verdicts back.

    Without --config it exports nowhere, and shows its page on port 4330. Ctrl-C or SIGTERM stops it: answers
    that are ready are judged and delivered first; the rest is on disk and continues at the next start. SIGHUP
    reloads the file; if the new configuration cannot be used, the old one stays.

    \b
    Examples:
      ragtrace collector --judge openai:gpt-4o-mini
      ragtrace collector --print-config > collector.yaml
      ragtrace collector --print-schema > collector.schema.json
      ragtrace collector --config collector.yaml --check
      ragtrace collector --config collector.yaml
      ragtrace collector --config collector.yaml --role ingest
    """
    # gRPC reads this when it is loaded; otherwise it writes log lines in a format of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from ragtrace_collector import config as configuration
    from ragtrace_collector.service import check as checking
    from ragtrace_collector.service.collector import run_collector
    from ragtrace_collector.service.pipeline import Role
    from ragtrace_collector.telemetry.logs import log_to_stderr
    from ragtrace_collector.telemetry.scores import log_verdicts

    if options.print_config:
        click.echo(configuration.default_config_text(), nl=False)
        return
    if options.print_schema:
        click.echo(configuration.schema_text(), nl=False)
        return
    config = _read(options)
    if config.store.url is None and options.role != "all":
        raise click.UsageError(
            "--role is for processes that share a store, and a file belongs to one: set `store: postgresql://…`"
        )
    if options.check:
        warnings = checking.check_config(config)
        _say_checked(config, options.config.path, warnings, as_json=options.as_json)
        return
    log_to_stderr(config.log_level, config.log_format)
    if config.telemetry.verdict_log:
        log_verdicts()
    running = run_collector(
        config,
        role=Role(options.role),
        shares_ports=config.store.url is not None,
        reread=partial(_read, options) if options.config.path else None,
        on_ready=_say_ready if options.as_json else None,
    )
    counts = process.run(running)
    if options.as_json:
        _line("stopped", {"counts": dict(counts)})


def _read(options: ServiceOptions) -> CollectorConfig:
    return options.config.read({"judge.use": options.judge} if options.judge else {})


def _say_checked(
    config: CollectorConfig, path: Path | None, warnings: Sequence[str], *, as_json: bool
) -> None:
    endpoints = [export.endpoint for export in config.export]
    if as_json:
        _line("checked", {"judge": config.judge.use, "export": endpoints, "warnings": [*warnings]})
        return
    for warning in warnings:
        talk(f"warning: {warning}")
    click.echo(
        f"{path or 'the default configuration'} is fine: "
        f"judge {config.judge.use}, export to {', '.join(endpoints) or 'nowhere'}"
    )


def _say_ready(running: Collector) -> None:
    ports = {
        "grpc_port": running.grpc_port,
        "http_port": running.http_port,
        "pages_port": running.operations.port,
        "ui_port": running.ui.port,
    }
    _line("ready", ports)


def _line(event: str, fields: Mapping[str, object]) -> None:
    click.echo(json.dumps({"event": event, **fields}))
