"""``ragtrace metrics``: what can be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.options import OWN_PROFILE, JsonOption
from ragtrace.cli.render import open_console, print_indented, print_json, printable, talk
from ragtrace.cli.settings import command, option, takes
from ragtrace.errors import WriteError

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.judge_steps import Prompt
    from ragtrace.metrics import MetricInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOption:
    """``--export``."""

    folder: Path | None = option(
        "--export",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Write the prompts to this folder, to change them and use them with --prompts DIR.",
    )


@command()
@click.argument("what", type=click.Choice(["metrics", "prompts"]), default="metrics")
@takes(export=ExportOption, output=JsonOption)
def metrics(what: str, export: ExportOption, output: JsonOption) -> None:
    """List the metrics, built in and installed, or the judge's prompts.

    Shows what each metric needs, when it passes, and which other tools' rules (--profile) can score it.

    \b
    Examples:
      ragtrace metrics
      ragtrace metrics --json
      ragtrace metrics prompts --export my-prompts
    """
    if what == "prompts":
        _show_prompts(export.folder, output)
        return
    if export.folder is not None:
        raise click.UsageError("--export writes prompts: ragtrace metrics prompts --export DIR")
    from ragtrace.metrics import available_metrics

    console = None if output.wanted else open_console()
    for info in available_metrics():
        if console is None:
            print_json(_as_json(info))
        else:
            _print(console, info)


def _show_prompts(folder: Path | None, output: JsonOption) -> None:
    from ragtrace.judge_steps import PROMPTS
    from ragtrace.metrics import Prompts

    prompts = Prompts.built_in()
    if folder is not None:
        _export(folder, {name: prompts.named(name) for name in PROMPTS})
        return
    for name in PROMPTS:
        prompt, used_by = prompts.named(name), _used_by(name)
        if output.wanted:
            told = {"name": name, "version": prompt.version, "sha256": prompt.sha256, "used_by": used_by}
            print_json({**told, "text": prompt.text})
        else:
            console = open_console()
            console.print(printable(f"{name} (version {prompt.version})"), style="bold")
            print_indented(console, 2, f"of {_listed(used_by)}" if used_by else _ON_REQUEST)


_ON_REQUEST: Final = "of claim metrics with the option `truths`"


def _export(folder: Path, prompts: Mapping[str, Prompt]) -> None:
    """Write prompts that are not there yet: nobody's changes are overwritten.

    Raises:
        WriteError: the folder cannot be written.
    """
    from ragtrace.metrics.prompt import built_in_source

    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, prompt in prompts.items():
            path = folder / f"{name}.md"
            if path.exists():
                talk(f"{path} is there already: kept as it is")
                continue
            path.write_text(built_in_source(f"{name}.v{prompt.version}.md"), "utf-8")
            written += 1
    except OSError as exc:
        raise WriteError(f"{folder} cannot be written: {exc.strerror}") from exc
    talk(f"wrote {written} of {len(prompts)} prompts to {folder}; delete those that you do not change")


def _used_by(prompt: str) -> list[str]:
    from ragtrace.metrics import available_metrics, metric_named
    from ragtrace.metrics.steps.table import prompts_of

    own = [info.name for info in available_metrics() if info.profile == OWN_PROFILE]
    return [name for name in own if prompt in prompts_of(metric_named(name).uses or ())]


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
    from ragtrace.model import Direction

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
