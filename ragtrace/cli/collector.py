"""``ragtrace collector``: run the service, or check its configuration."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.terminal import talk

if TYPE_CHECKING:
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.service.collector import Collector


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="YAML configuration. Without it: the defaults, which export to http://localhost:4317.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check the configuration, open the files that it names, and exit; nothing is started or made.",
)
@click.option("--print-config", is_flag=True, help="Print the commented default configuration and exit.")
@click.option(
    "--print-schema",
    is_flag=True,
    help="Print the JSON schema of the configuration and exit: editors complete and check by it.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON line on stdout when ready, checked or stopped."
)
def collector(
    config_path: Path | None, check: bool, print_config: bool, print_schema: bool, as_json: bool
) -> None:
    """Receive OTLP, judge the RAG answers in it, and write the verdicts back.

    Stops on Ctrl-C or SIGTERM: what is ready is judged and delivered first; the rest is on disk and goes on
    at the next start. Reads FILE again on SIGHUP, and goes on as before where it cannot follow.

    \b
    Examples:
      ragtrace collector --print-config > collector.yaml
      ragtrace collector --print-schema > collector.schema.json
      ragtrace collector --config collector.yaml --check
      ragtrace collector --config collector.yaml
    """
    # gRPC's core reads it when it is loaded, and else writes lines in a form of its own between ours.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with needs_extra("collector"):
        from ragtrace_collector import config as configuration
        from ragtrace_collector.service import check as checking
        from ragtrace_collector.service import run as service
        from ragtrace_collector.telemetry import logs

    if print_config:
        click.echo(configuration.default_config_text(), nl=False)
        return
    if print_schema:
        click.echo(configuration.schema_text(), nl=False)
        return
    if config_path is None:
        config = configuration.parse_config(
            configuration.default_config_text(), where="the default configuration"
        )
    else:
        config = configuration.load_config(config_path)
    if check:
        warnings = checking.check_config(config)
        _say_checked(config, config_path, warnings, as_json=as_json)
        return
    logs.log_to_stderr(config.log_level, config.log_format)
    running = service.run_collector(
        config,
        reread=partial(configuration.load_config, config_path) if config_path else None,
        on_ready=_say_ready if as_json else None,
    )
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        counts = runner.run(running)
    if as_json:
        _line("stopped", {"counts": dict(counts)})


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes an event loop that takes requests at less cost, where there is one."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


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
        f"judge {config.judge.use}, export to {', '.join(endpoints)}"
    )


def _say_ready(running: Collector) -> None:
    ports = {
        "grpc_port": running.grpc_port,
        "http_port": running.http_port,
        "pages_port": running.operations.port,
    }
    _line("ready", ports)


def _line(event: str, fields: Mapping[str, object]) -> None:
    click.echo(json.dumps({"event": event, **fields}))
