"""``ragtrace metrics``: what can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import json_option
from ragtrace.cli.terminal import open_console, print_indented, print_json, printable
from ragtrace.compat.tools import tool_metrics
from ragtrace.metrics import MetricInfo, available_metrics
from ragtrace.model import Direction
from ragtrace.scoring import ALIASES, PROFILES, scored_metrics

if TYPE_CHECKING:
    from rich.console import Console


_OWN: Final = "ragtrace"


@click.command()
@json_option
def metrics(as_json: bool) -> None:
    """List the metrics, built in and installed.

    Each with what it needs, where it passes, and the other tools' rules (--profile) it can be scored by.

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
        "pass_when": info.pass_when,
        "version": info.version,
        "profiles": _other_profiles(info),
        "aliases": _aliases(info),
        "description": info.description,
    }


def _print(console: Console, info: MetricInfo) -> None:
    better = "" if info.direction is Direction.HIGHER_IS_BETTER else "; lower is better"
    console.print(printable(f"{info.name} (profile {info.profile}, version {info.version})"), style="bold")
    print_indented(console, 2, info.description)
    print_indented(console, 2, f"needs {_listed(info.needs) or 'nothing'}{better}")
    print_indented(console, 2, f"passes when {info.pass_when}")
    if profiles := _other_profiles(info):
        print_indented(console, 2, f"other profiles: {', '.join(profiles)}", style="dim")
    if aliases := _aliases(info):
        print_indented(console, 2, f"also called {_listed(aliases)}", style="dim")


def _other_profiles(info: MetricInfo) -> list[str]:
    """Return the other tools by whose rules this can be scored, or with whose prompts it can be asked."""
    if info.profile != _OWN:
        return []
    asked = {peer.profile for peer in tool_metrics() if peer.metric == info.name}
    return [
        each for each in PROFILES if each != _OWN and (each in asked or info.name in scored_metrics(each))
    ]


def _aliases(info: MetricInfo) -> list[str]:
    return [alias for alias, name in ALIASES.items() if name == info.name and info.profile == _OWN]


def _listed(words: Sequence[str]) -> str:
    """Write ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
