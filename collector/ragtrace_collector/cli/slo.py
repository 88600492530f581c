"""``ragtrace slo``: the objectives of a configuration, as rules of Prometheus and Grafana."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, FILE
from ragtrace.cli.render import many, talk
from ragtrace.cli.settings import command, option, takes
from ragtrace.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SloOptions:
    """Whose objectives, and where the rules go."""

    config: Path = option(
        "--config",
        type=EXISTING_FILE,
        required=True,
        metavar="FILE",
        help="The collector's configuration: its section `slo`.",
    )
    format: Literal["prometheus", "grafana"] = option(
        "--format",
        type=click.Choice(["prometheus", "grafana"]),
        default="prometheus",
        show_default=True,
        help="A rule file of Prometheus, or a provisioning file of Grafana's alerting.",
    )
    out: Path | None = option(
        "--out", type=FILE, metavar="FILE", help="Where the rules go. [default: standard output]"
    )
    datasource: str = option(
        "--datasource",
        default="prometheus",
        show_default=True,
        metavar="UID",
        help="Grafana: the uid of the data source with the collector's metrics.",
    )
    folder: str = option(
        "--folder", default="ragtrace", show_default=True, metavar="NAME", help="Grafana: the rules' folder."
    )


@command()
@click.argument("action", type=click.Choice(["rules"]))
@takes(options=SloOptions)
def slo(action: str, options: SloOptions) -> None:
    """Write the objectives of a configuration as alert rules: burn rates over two windows each.

    The rules read the collector's metrics of scores, weighted by sampling. What they cannot see exactly is
    said on standard error and in each alert.

    \b
    Examples:
      ragtrace slo rules --config collector.yaml --out slo-rules.yml
      promtool check rules slo-rules.yml
      ragtrace slo rules --config collector.yaml --format grafana > slo.yaml
    """
    from ragtrace.files.private import replace_file

    with needs_extra("collector"):
        from ragtrace_collector.alerts.rule_files import grafana_file, prometheus_file
        from ragtrace_collector.alerts.rules import SloRules
        from ragtrace_collector.config import load_config

    config = load_config(options.config)
    if not config.slo:
        raise InputError(
            f"{options.config}: `slo` names no objective: add one, such as"
            " `slo: [{name: faithful, metric: faithfulness, objective: 0.95}]`"
        )
    rules = [SloRules.of(each, config) for each in config.slo]
    if options.format == "grafana":
        text = grafana_file(rules, datasource=options.datasource, folder=options.folder)
    else:
        text = prometheus_file(rules)
    if options.out:
        replace_file(options.out, text, is_private=False)
    else:
        click.echo(text, nl=False)
    talk(f"rules for {many(len(rules), 'objective')}")
    for each in rules:
        for note in each.notes:
            talk(f"note: {each.slo.name}: {note}")
