"""``ragtrace metrics``: what can be measured."""

from __future__ import annotations

import click

from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import open_console, print_json
from ragtrace.metrics import MetricInfo, available_metrics

__all__ = ["metrics"]


@click.command()
@json_option
def metrics(as_json: bool) -> None:
    """List the metrics, built in and installed.

    \b
    Examples:
      ragtrace metrics
      ragtrace metrics --json
    """
    for info in available_metrics():
        if as_json:
            print_json(_as_json(info))
        else:
            _print(info)


def _as_json(info: MetricInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "profile": info.profile,
        "needs": [str(part) for part in info.needs],
        "direction": str(info.direction),
        "threshold": info.threshold,
        "description": info.description,
    }


def _print(info: MetricInfo) -> None:
    from rich.padding import Padding  # found: the console is open

    console = open_console()
    passes = "from" if info.direction == "higher_is_better" else "up to"
    needs = " and ".join(info.needs) or "nothing"
    console.print(f"{info.name} (profile {info.profile})", style="bold")
    console.print(Padding(info.description, (0, 0, 0, 2)))
    console.print(Padding(f"needs {needs}; passes {passes} {info.threshold:g}", (0, 0, 0, 2)))
