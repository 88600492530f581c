"""``ragtrace metrics``: what can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragtrace.cli.options import OWN_PROFILE, JsonOption
from ragtrace.cli.render import open_console, print_indented, print_json, printable
from ragtrace.cli.settings import command, takes
from ragtrace.model import Direction

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.metrics import MetricInfo


@command()
@takes(output=JsonOption)
def metrics(output: JsonOption) -> None:
    """List the metrics, built in and installed.

    Shows what each metric needs, when it passes, and which other tools' rules (--profile) can score it.

    \b
    Examples:
      ragtrace metrics
      ragtrace metrics --json
    """
    from ragtrace.metrics import available_metrics

    console = None if output.wanted else open_console()
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
    if info.profile != OWN_PROFILE:
        return []
    from ragtrace.compat.tools import tool_metrics
    from ragtrace.scoring import PROFILES, scored_metrics

    asked = {peer.profile for peer in tool_metrics() if peer.metric == info.name}
    return [
        each
        for each in PROFILES
        if each != OWN_PROFILE and (each in asked or info.name in scored_metrics(each))
    ]


def _aliases(info: MetricInfo) -> list[str]:
    from ragtrace.scoring import ALIASES

    return [alias for alias, name in ALIASES.items() if name == info.name and info.profile == OWN_PROFILE]


def _listed(words: Sequence[str]) -> str:
    """Write ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
