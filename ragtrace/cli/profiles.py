"""Options of `ragtrace evaluate` that choose whose rules and whose prompts measure."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, TypeAlias

import click

from ragtrace.cli.options import (
    JudgeChoice,
    make_metric,
    names_option,
    pass_when_option,
    passing,
    split_names,
    threshold_option,
)
from ragtrace.compat.tool import ToolOptions
from ragtrace.compat.tool_metric import ToolPrompted
from ragtrace.compat.tools import PROFILES, tool_named
from ragtrace.judge import judge_named_by, open_embedder
from ragtrace.judge.base_url import sibling_url
from ragtrace.ports import Embedder, Metric

Callback: TypeAlias = Callable[..., Any]

_OWN = "ragtrace"
_EMBEDDING_MODEL = "text-embedding-3-small"
_OF_SCORING = ("strict_mode", "penalize_ambiguous_claims")
_DEFAULTS = asdict(ToolOptions())


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderChoice:
    """The embedder that an option names, or else the judge's endpoint."""

    spec: str | None

    def open(self, judge: JudgeChoice) -> Embedder | None:
        """Open the embedder; ``None`` where none is named and the judge's endpoint has none.

        Raises:
            ConfigError: there is no such embedder, or it lacks a setting.
        """
        spec = self.spec or self._beside(judge.spec or judge_named_by(os.environ))
        if spec is None:
            return None
        return open_embedder(
            spec,
            base_url=sibling_url(judge.base_url, spec, os.environ),
            api_key_env=judge.api_key_env,
            timeout_s=judge.timeout_s,
            tls=judge.tls,
            headers=judge.headers if judge.is_like(spec) else {},  # they may hold keys
        )

    def _beside(self, judge: str) -> str | None:
        return f"openai:{_EMBEDDING_MODEL}" if judge.startswith("openai:") else None


def embedder_option(callback: Callback) -> Callback:
    """Add ``--embedder``; the callback gets ``embedder``, an `EmbedderChoice`."""

    @click.option(
        "--embedder",
        "embedder_spec",
        metavar="EMBEDDER",
        help="For metrics that compare meanings: wordllama or openai:MODEL. Without it:"
        f" {_EMBEDDING_MODEL} at the endpoint of --judge openai:MODEL.",
    )
    @wraps(callback)
    def with_embedder(embedder_spec: str | None, **others: Any) -> Any:
        return callback(embedder=EmbedderChoice(spec=embedder_spec), **others)

    return with_embedder


def profile_options(callback: Callback) -> Callback:
    """Add ``--metrics``, ``--profile``, ``--peer-prompts`` and what goes with them; the callback gets
    ``metrics``, a tuple of `Metric`."""

    @names_option
    @threshold_option
    @pass_when_option
    @click.option(
        "--profile",
        type=click.Choice((_OWN, *PROFILES)),
        default=_OWN,
        show_default=True,
        metavar="TOOL",
        help=f"Whose rules turn verdicts into scores: {', '.join((_OWN, *PROFILES))}.",
    )
    @click.option(
        "--peer-prompts",
        is_flag=True,
        help="Ask as the tool of --profile asks: its calls in its order, its JSON fields and text formats.",
    )
    @_peer_options
    @wraps(callback)
    def with_metrics(
        names: str,
        threshold: float | None,
        pass_when: str | None,
        profile: str,
        peer_prompts: bool,
        options: ToolOptions,
        **others: Any,
    ) -> Any:
        if peer_prompts and profile == _OWN:
            raise click.UsageError("--peer-prompts needs --profile: whose prompts?")
        passes = passing(threshold, pass_when)
        if pass_when and profile != _OWN:
            raise click.UsageError(
                f"--pass-when is a rule of ragtrace's own profile: under {profile}, give a --threshold"
            )
        rules = {} if peer_prompts else _rules(options, profile)
        metrics = tuple(
            _prompted(name, profile, options, threshold)
            if peer_prompts
            else make_metric(name, profile=profile, **passes, **rules)
            for name in split_names(names)
        )
        return callback(metrics=metrics, **others)

    return with_metrics


def _peer_options(callback: Callback) -> Callback:
    defaults = ToolOptions()

    @click.option("--include-reason", is_flag=True, help="deepeval: ask for a reason too, one more call.")
    @click.option("--strict-mode", is_flag=True, help="deepeval: what is not perfect scores 0.")
    @click.option(
        "--penalize-ambiguous-claims",
        is_flag=True,
        help="deepeval: what the context does not mention does not pass.",
    )
    @click.option(
        "--truths-extraction-limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="deepeval: how many truths to ask for, a document.",
    )
    @click.option(
        "--strictness",
        type=click.IntRange(min=1),
        default=defaults.strictness,
        show_default=True,
        metavar="N",
        help="ragas, promptfoo: how many questions are made from the answer.",
    )
    @click.option(
        "--max-retries",
        type=click.IntRange(min=0),
        default=defaults.max_retries,
        show_default=True,
        metavar="N",
        help="ragas: how often an unreadable reply is asked for again.",
    )
    @click.option(
        "--text-fallback/--no-text-fallback",
        default=defaults.text_fallback,
        show_default=True,
        help="promptfoo: count `verdict: yes` where the final line is missing.",
    )
    @wraps(callback)
    def with_options(
        include_reason: bool,
        strict_mode: bool,
        penalize_ambiguous_claims: bool,
        truths_extraction_limit: int | None,
        strictness: int,
        max_retries: int,
        text_fallback: bool,
        **others: Any,
    ) -> Any:
        options = ToolOptions(
            include_reason=include_reason,
            strict_mode=strict_mode,
            penalize_ambiguous_claims=penalize_ambiguous_claims,
            truths_extraction_limit=truths_extraction_limit,
            strictness=strictness,
            max_retries=max_retries,
            text_fallback=text_fallback,
        )
        return callback(options=options, **others)

    return with_options


def _rules(options: ToolOptions, profile: str) -> dict[str, bool]:
    """Return the options that are a matter of scoring.

    Raises:
        UsageError: an option was given that is a matter of prompts.
    """
    given = {name: value for name, value in asdict(options).items() if value != _DEFAULTS[name]}
    for name in given:
        needed = "--profile deepeval-4 or -3" if name in _OF_SCORING else "--peer-prompts"
        fits = name in _OF_SCORING and profile.startswith("deepeval")
        if not fits:
            raise click.UsageError(f"--{name.replace('_', '-')} needs {needed}")
    return given


def _prompted(name: str, profile: str, options: ToolOptions, threshold: float | None) -> Metric:
    return ToolPrompted(tool_named(name, profile), options=options, threshold=threshold)
