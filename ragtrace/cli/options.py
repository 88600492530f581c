"""Options that several commands share, and what they choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ragtrace.cli.terminal import talk
from ragtrace.judge import judge_from_environment, open_judge
from ragtrace.metrics import metric_named
from ragtrace.ports import Judge, Metric

__all__ = ["choose_judge", "choose_metrics", "introduce", "json_option", "judge_options", "metric_options"]

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable lines on stdout.")


def judge_options(command: CommandT) -> CommandT:
    """Add ``--judge``, ``--base-url`` and ``--api-key-env``: what `choose_judge` takes."""
    for option in (
        click.option(
            "--api-key-env",
            metavar="NAME",
            default="OPENAI_API_KEY",
            show_default=True,
            help="Environment variable that holds the judge's key.",
        ),
        click.option("--base-url", metavar="URL", help="Endpoint of `--judge openai:MODEL`."),
        click.option(
            "--judge",
            "judge_spec",
            metavar="JUDGE",
            help="lexical, openai:MODEL or scripted:PATH. Without it: an OpenAI-compatible endpoint where "
            "OPENAI_API_KEY or OPENAI_BASE_URL is set, else lexical.",
        ),
    ):
        command = option(command)
    return command


def metric_options(command: CommandT) -> CommandT:
    """Add ``--metrics`` and ``--threshold``: what `choose_metrics` takes."""
    for option in (
        click.option(
            "--threshold",
            type=click.FloatRange(0, 1),
            metavar="SCORE",
            help="Where `pass` begins; without it, the metric's own.",
        ),
        click.option(
            "--metrics",
            "metric_names",
            metavar="NAMES",
            default="faithfulness",
            show_default=True,
            help="Separated by commas; `ragtrace metrics` lists them.",
        ),
    ):
        command = option(command)
    return command


def choose_judge(spec: str | None, *, base_url: str | None, api_key_env: str, max_concurrency: int) -> Judge:
    """Open the judge that the options or the environment name.

    Raises:
        ConfigError: there is no such judge, or it lacks a setting.
        UsageError: an endpoint is named, but no model.
    """
    if spec is None and base_url is not None:
        raise click.UsageError("--base-url needs --judge openai:MODEL: which model is to judge?")
    if spec is None:
        return judge_from_environment()
    return open_judge(spec, base_url=base_url, api_key_env=api_key_env, max_concurrency=max_concurrency)


def choose_metrics(names: str, *, threshold: float | None) -> tuple[Metric, ...]:
    """Make the metrics that a list of names separated by commas names, each once.

    Raises:
        ConfigError: there is no such metric.
        UsageError: the list is empty.
    """
    chosen = dict.fromkeys(name.strip() for name in names.split(",") if name.strip())
    if not chosen:
        raise click.UsageError("--metrics names none: `ragtrace metrics` lists them")
    return tuple(_metric(name, threshold) for name in chosen)


def introduce(judge: Judge) -> None:
    """Say on stderr who judges, and how much that is worth where it is a heuristic."""
    identity = judge.identity
    talk(f"judge: {identity.provider} ({identity.model})")
    if identity.provider == "lexical":
        talk(
            "  a heuristic of numbers, names and wording: it leaves many claims unjudged, and no alarm\n"
            "  should rest on it alone. A model judges with --judge openai:MODEL."
        )


def _metric(name: str, threshold: float | None) -> Metric:
    # `ragtrace metrics` prints name and profile; NAME.PROFILE is how a plug-in's entry point is called too
    plain, _, profile = name.partition(".")
    if profile:
        return metric_named(plain, profile=profile, threshold=threshold)
    return metric_named(plain, threshold=threshold)
