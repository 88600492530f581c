"""The options that name an evaluator: short forms of what a collector's configuration says."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.options import ConfigOptions
from ragtrace.cli.render import talk
from ragtrace.cli.settings import group, option

if TYPE_CHECKING:
    from ragtrace.pipeline.evaluator import EvaluatorSpec
    from ragtrace_collector.config import CollectorConfig

_EMBEDDER: Final = "openai:text-embedding-3-small"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Who judges, and how it is reached."""

    config: ConfigOptions = group(ConfigOptions)
    spec: str | None = option(
        "--judge",
        metavar="JUDGE",
        configures=True,
        help="lexical, openai:MODEL, azure:DEPLOYMENT, anthropic:MODEL, nli:FOLDER or scripted:PATH."
        " [default: openai if OPENAI_API_KEY or OPENAI_BASE_URL is set, else lexical]",
    )
    base_url: str | None = option(
        "--base-url",
        metavar="URL",
        configures=True,
        help="Endpoint of openai:, azure: or anthropic:. A user and password in it replace the key.",
    )
    api_key_env: str | None = option(
        "--api-key-env",
        metavar="NAME",
        configures=True,
        help="Environment variable with the judge's key. [default: OPENAI_API_KEY; for anthropic: and"
        " azure:, their own]",
    )
    use_cache: bool | None = option(
        "--cache/--no-cache",
        configures=True,
        help="Keep and reuse the judge's replies in ~/.cache/ragtrace. They contain judged text; only you can"
        " read the file. [default: off, unless judge.cache is set]",
    )
    calibration: Path | None = option(
        "--calibration",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        configures=True,
        help="What `ragtrace calibrate --save` wrote about this judge: how to ask it, and its threshold.",
    )

    @property
    def names_judge(self) -> bool:
        """Whether an option names the judge."""
        return self.spec is not None or "judge.use" in dict(self.config.changes)

    def evaluator(
        self,
        metrics: Callable[[], list[dict[str, Any]]] | None = None,
        *,
        max_concurrency: int = 1,
        only: Collection[str] = ("judge", "evaluate"),
    ) -> ChosenEvaluator:
        """Return the evaluator that the configuration or the options name, not opened yet.

        Args:
            metrics: Makes the metrics that options name.
            max_concurrency: How many requests run at once; the collector's number is for its own traffic.
            only: The sections of the configuration that the command reads.

        Raises:
            ConfigError: a setting is wrong.
            UsageError: options do not go together.
        """
        options = self._options()
        if metrics is not None and self.config.path is None:
            options["evaluate.metrics"] = metrics()
        config = self.config.read(options, only=only)
        from ragtrace_collector.judge import evaluator_spec_of

        spec = evaluator_spec_of(config)
        embedder = spec.embedder
        if embedder is None and self.config.path is None and spec.judge.kind == "openai":
            embedder = spec.judge.sibling(_EMBEDDER)
        second = spec.second and replace(spec.second, max_concurrency=max_concurrency)
        judge = replace(spec.judge, max_concurrency=max_concurrency)
        if self.config.path is not None:
            _say_what_is_live(config)
        return ChosenEvaluator(
            spec=replace(spec, judge=judge, second=second, embedder=embedder),
            config=config,
        )

    def _options(self) -> dict[str, object]:
        """Return what these options say, by the paths of the keys."""
        from ragtrace.judge import default_cache_path, judge_named_by

        if self.config.path is None and self.base_url is not None and not self.names_judge:
            raise click.UsageError("--base-url needs --judge openai:MODEL: which model is to judge?")
        cache = {None: None, True: str(default_cache_path()), False: None}[self.use_cache]
        given: Mapping[str, object] = {
            "judge.base_url": self.base_url,
            "judge.api_key_env": self.api_key_env,
            "judge.cache": cache,
            "judge.calibration": self.calibration and str(self.calibration),
        }
        return {
            "judge.use": self.spec or judge_named_by(os.environ),
            **{key: value for key, value in given.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEvaluator:
    """The evaluator that the options name, not opened yet, and the configuration that says so."""

    spec: EvaluatorSpec
    config: CollectorConfig


def _say_what_is_live(config: CollectorConfig) -> None:
    if config.attach.mode == "hold":
        talk("for live traffic only, not used here: attach.mode: hold")
