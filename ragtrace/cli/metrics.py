"""``ragtrace metrics``: what can be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import open_console, print_indented, print_json
from ragtrace.metrics import MetricInfo, available_metrics
from ragtrace.model import Direction

if TYPE_CHECKING:
    from rich.console import Console

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
    console = None if as_json else open_console()
    for info in available_metrics():
        if console is None:
            print_json(_as_json(info))
        else:
            _print(console, info)


def _as_json(info: MetricInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "profile": info.profile,
        "needs": [str(part) for part in info.needs],
        "direction": str(info.direction),
        "threshold": info.threshold,
        "description": info.description,
    }


def _print(console: Console, info: MetricInfo) -> None:
    passes = "from" if info.direction is Direction.HIGHER_IS_BETTER else "up to"
    console.print(f"{info.name} (profile {info.profile})", style="bold")
    print_indented(console, 2, info.description)
    print_indented(
        console, 2, f"needs {' and '.join(info.needs) or 'nothing'}; passes {passes} {info.threshold:g}"
    )
