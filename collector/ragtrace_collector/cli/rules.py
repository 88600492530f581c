"""``ragtrace rules``: alert rules of Prometheus and Grafana."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import FILE
from ragtrace.cli.render import talk
from ragtrace.cli.settings import command, group, option, takes
from ragtrace.cli.times import duration

if TYPE_CHECKING:
    from ragtrace_collector.rules import ObjectiveRules

_SHORTEST: Final = timedelta(days=7)
_WORDS: Final = re.compile(r"[a-z0-9]+")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveOptions:
    """Which share of which answers shall be good."""

    metric: str | None = option(
        "--metric",
        metavar="NAME",
        help="The metric that says which answers are good.",
    )
    service: str | None = option(
        "--service", metavar="NAME", help="With --metric: whose answers, by their service.name."
    )
    tenant: str | None = option("--tenant", metavar="NAME", help="Only this tenant's answers.")
    at_least: float | None = option(
        "--at-least",
        type=float,
        metavar="SCORE",
        help="The lowest good score. [default: the metric's rule]",
    )
    at_most: float | None = option(
        "--at-most", type=float, metavar="SCORE", help="The highest good score, where lower is better."
    )
    share: float = option(
        "--objective",
        type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
        default=0.95,
        show_default=True,
        metavar="SHARE",
        help="The share of answers that shall be good.",
    )
    window: timedelta = option(
        "--window",
        parse=duration,
        default="30d",
        show_default=True,
        metavar="TIME",
        help="The time over which the objective holds: a week or more.",
    )
    fewest_answers: int = option(
        "--fewest-answers",
        type=click.IntRange(min=1),
        default=20,
        show_default=True,
        metavar="N",
        help="Judged in an hour; fewer say nothing. Longer windows need more.",
    )
    name: str | None = option(
        "--name", metavar="NAME", help="What the alerts call it. [default: the service and the metric]"
    )

    def rules(self) -> ObjectiveRules | None:
        """Return what watches the objective, if there is one.

        Raises:
            InputError: there is no such metric, or the bound does not fit its scores.
            click.UsageError: the options do not go together.
        """
        from ragtrace_collector.rules import Objective, ObjectiveRules

        if self.metric is None:
            if self.service or self.at_least is not None or self.at_most is not None:
                raise click.UsageError("an objective needs --metric NAME; `ragtrace metrics` lists them")
            return None
        if not self.service:
            raise click.UsageError(
                "--metric needs --service NAME: whose answers are meant, by their service.name"
            )
        if self.at_least is not None and self.at_most is not None:
            raise click.UsageError(
                "--at-least and --at-most: choose the one that bounds the good scores of the metric"
            )
        if self.name and not _NAME.fullmatch(self.name):
            raise click.UsageError("--name: write small letters, digits and hyphens, such as shop-faithful")
        if self.window < _SHORTEST:
            raise click.UsageError("--window: a week is the shortest; write 7d or more")
        return ObjectiveRules(
            Objective(
                name=self.name or "-".join(_WORDS.findall(f"{self.service} {self.metric}".lower())),
                metric=self.metric,
                service=self.service,
                tenant=self.tenant,
                at_least=self.at_least,
                at_most=self.at_most,
                share=self.share,
                window=self.window,
                fewest_answers=self.fewest_answers,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesOptions:
    """What the rules are for, and where they go."""

    objective: ObjectiveOptions = group(ObjectiveOptions)
    format: Literal["prometheus", "grafana"] = option(
        "--format",
        type=click.Choice(["prometheus", "grafana"]),
        default="prometheus",
        show_default=True,
        help="A rule file of Prometheus, or a provisioning file of Grafana's alerting.",
    )
    datasource: str = option(
        "--datasource",
        default="prometheus",
        show_default=True,
        metavar="UID",
        help="Grafana: the uid of the data source with the collector's metrics.",
    )
    out: Path | None = option(
        "--out", type=FILE, metavar="FILE", help="Where the rules go. [default: standard output]"
    )


@command()
@takes(options=RulesOptions)
def rules(options: RulesOptions) -> None:
    """Write alert rules for Prometheus or Grafana.

    With a metric: burn rates over two windows each, of the share of a service's answers that fail. Without:
    those about the judging itself, such as a judge that drifts. The rules read the collector's metrics.

    \b
    Examples:
      ragtrace rules --metric faithfulness --service shop --at-least 0.9
      ragtrace rules --metric hallucination --service shop --format grafana
      ragtrace rules --out judging-rules.yml
    """
    from ragtrace.files.private import replace_file

    with needs_extra("collector"):
        from ragtrace_collector.rules import JUDGING, grafana_file, prometheus_file

    is_grafana = options.format == "grafana"
    found = options.objective.rules()
    groups = tuple(found.groups(recorded=not is_grafana)) if found else (JUDGING,)
    text = grafana_file(groups, datasource=options.datasource) if is_grafana else prometheus_file(groups)
    if options.out:
        replace_file(options.out, text, is_private=False)
    else:
        click.echo(text, nl=False)
    for note in found.notes if found else ():
        talk(f"note: {note}")
