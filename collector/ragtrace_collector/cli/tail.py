"""``ragtrace tail``: follow verdicts in a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import click

from ragtrace.cli.options import JsonOption, PlaceOptions, command, group, option, takes

LABELS: Final = ("pass", "fail", "error", "skipped")
"""The values of `ragtrace.model.Label`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOptions:
    """Which verdicts, and how they are shown."""

    metric: str | None = option(
        "--metric",
        metavar="NAME",
        help="The metric whose score is shown and filtered by. [default: faithfulness, else the first]",
    )
    label: str | None = option(
        "--label",
        type=click.Choice(LABELS),
        help="This label only: of the metric if one is named, else of the answer.",
    )
    max_score: float | None = option(
        "--max-score", type=click.FloatRange(0, 1), metavar="SCORE", help="Scores up to this one only."
    )
    number: int = option(
        "--number",
        "-n",
        type=click.IntRange(0, 10_000),
        default=20,
        show_default=True,
        metavar="N",
        help="Begin with the newest N answers.",
    )
    follows: bool = option(
        "--follow/--no-follow", default=True, help="Wait for further verdicts, or end. [default: --follow]"
    )
    claims: bool = option(
        "--claims", is_flag=True, help="Show the wrong claims with their evidence below each answer."
    )
    json: JsonOption = group(JsonOption)


@command()
@takes(place=PlaceOptions, options=TailOptions)
def tail(place: PlaceOptions, options: TailOptions) -> None:
    """Follow verdicts: score, wrong claims and trace of each judged answer; below, its pipeline and question.

    Without options it reads the default store of a collector on this machine, also while that runs. It
    searches a back end or a file every 10 s. Times are UTC. * marks the label of an evaluation that replaces
    an earlier one. Ctrl-C ends it.

    \b
    Examples:
      ragtrace tail
      ragtrace tail --label fail --claims
      ragtrace tail --config collector.yaml --service shop --max-score 0.7
      ragtrace tail --from jaeger:http://localhost:16686 --since 1h --no-follow
      ragtrace tail --json | jq .metrics.faithfulness.score
    """
    from ragtrace_collector.cli.following import follow

    follow(place, options)
