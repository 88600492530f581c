"""Options that several commands share, and what they choose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeAlias

import click

from ragtrace.cli.terminal import talk
from ragtrace.judge import judge_named_by, open_judge
from ragtrace.metrics import metric_named
from ragtrace.plugins import Address
from ragtrace.ports import Judge, Metric

__all__ = [
    "JudgeChoice",
    "calibration_option",
    "concurrency_option",
    "introduce",
    "json_option",
    "judge_options",
    "make_metric",
    "metric_options",
    "second_judge_option",
    "split_names",
]

Callback: TypeAlias = Callable[..., Any]

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable lines on stdout.")

concurrency_option = click.option(
    "--concurrency",
    type=click.IntRange(min=1, max=256),
    default=8,
    show_default=True,
    metavar="N",
    help="Answers judged at once.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeChoice:
    """The judge that options name, or else the environment."""

    spec: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 60.0

    def open(self, *, max_concurrency: int) -> Judge:
        """Open the judge.

        Raises:
            ConfigError: there is no such judge, or it lacks a setting.
            UsageError: an endpoint is named, but no model.
        """
        if self.spec is None and self.base_url is not None:
            raise click.UsageError("--base-url needs --judge openai:MODEL: which model is to judge?")
        return open_judge(
            self.spec or judge_named_by(os.environ),
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            max_concurrency=max_concurrency,
        )

    def open_second(self, spec: str | None, *, max_concurrency: int) -> Judge | None:
        """Open a second judge, if one is named: one of the same kind is at the same endpoint.

        Raises:
            ConfigError: there is no such judge, or it lacks a setting.
        """
        if spec is None:
            return None
        alike = self.spec is not None and self.spec.partition(":")[0] == spec.partition(":")[0]
        other = JudgeChoice(spec=spec, timeout_s=self.timeout_s)
        return (replace(self, spec=spec) if alike else other).open(max_concurrency=max_concurrency)


calibration_option = click.option(
    "--calibration",
    "calibration",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="What `ragtrace calibrate --save` wrote about this judge: how to ask it, and where to cut.",
)

second_judge_option = click.option(
    "--second-judge",
    "second_judge",
    metavar="JUDGE",
    help="Asked instead where the judge got a planted claim wrong: it was talked round, or did not look. "
    "At the endpoint of --judge, with its key, if it is of the same kind.",
)


def judge_options(callback: Callback) -> Callback:
    """Add ``--judge`` and what goes with it; the callback gets ``judge``, a `JudgeChoice`."""

    @click.option(
        "--judge",
        "judge_spec",
        metavar="JUDGE",
        help="lexical, openai:MODEL, anthropic:MODEL, llama:PATH.gguf or scripted:PATH. Without it: an"
        " OpenAI-compatible endpoint where OPENAI_API_KEY or OPENAI_BASE_URL is set, else lexical.",
    )
    @click.option("--base-url", metavar="URL", help="Endpoint of --judge openai:MODEL.")
    @click.option(
        "--api-key-env",
        metavar="NAME",
        default="OPENAI_API_KEY",
        show_default=True,
        help="Environment variable that holds the judge's key.",
    )
    @click.option(
        "--judge-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        help="For one request to the --judge named; models on a CPU need more.",
    )
    @wraps(callback)
    def with_judge(
        judge_spec: str | None, base_url: str | None, api_key_env: str, judge_timeout: float, **others: Any
    ) -> Any:
        judge = JudgeChoice(
            spec=judge_spec, base_url=base_url, api_key_env=api_key_env, timeout_s=judge_timeout
        )
        return callback(judge=judge, **others)

    return with_judge


def metric_options(callback: Callback) -> Callback:
    """Add ``--metrics`` and ``--threshold``; the callback gets ``metrics``, a tuple of `Metric`."""

    @click.option(
        "--metrics",
        "names",
        metavar="NAMES",
        default="faithfulness",
        show_default=True,
        help="Separated by commas; `ragtrace metrics` lists them.",
    )
    @click.option(
        "--threshold",
        type=click.FloatRange(0, 1),
        metavar="SCORE",
        help="Where `pass` begins. Without it: the metric's own.",
    )
    @wraps(callback)
    def with_metrics(names: str, threshold: float | None, **others: Any) -> Any:
        metrics = tuple(make_metric(name, threshold=threshold) for name in split_names(names))
        return callback(metrics=metrics, **others)

    return with_metrics


def introduce(judge: Judge) -> None:
    """Say on stderr who judges, and how much that is worth where it is a heuristic."""
    talk(f"judge: {judge.identity.provider} ({judge.identity.model})")
    if judge.identity.provider == "lexical":
        talk(
            "  a heuristic of numbers, names and wording: it leaves many claims unjudged, and\n"
            "  no alarm should rest on it alone. A model judges with --judge openai:MODEL."
        )


def split_names(names: str) -> tuple[str, ...]:
    """Part what ``--metrics`` was given, each name once.

    Raises:
        UsageError: there is none.
    """
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise click.UsageError("--metrics names none: `ragtrace metrics` lists them")
    return chosen


def make_metric(
    name: str, *, profile: str = "ragtrace", threshold: float | None = None, **options: Any
) -> Metric:
    """Make the metric that ``faithfulness``, ``faithfulness.deepeval-4`` or an address of code names.

    Raises:
        ConfigError: there is no such metric.
    """
    if Address.parse(name):
        return metric_named(name, threshold=threshold, **options)
    plain, _, named = name.partition(".")
    return metric_named(plain, profile=named or profile, threshold=threshold, **options)
