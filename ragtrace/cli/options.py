"""Options that several commands share, and what they choose."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.terminal import many, talk
from ragtrace.clock import SystemClock
from ragtrace.http.tls import ClientTls
from ragtrace.judge import (
    CacheSettings,
    Prices,
    default_cache_path,
    judge_named_by,
    load_prices,
    open_judge,
    spent_by,
)
from ragtrace.judge.base_url import secrets_in, sibling_url
from ragtrace.judge.batch_settings import BatchSettings
from ragtrace.metrics import metric_named
from ragtrace.model import JudgeIdentity
from ragtrace.plugins import Address
from ragtrace.ports import Clock, Judge, Metric
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.extract import ContextFrom, ExtractRules

Callback: TypeAlias = Callable[..., Any]
Around: TypeAlias = Callable[[Judge], Judge]

json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable lines on stdout.")

concurrency_option = click.option(
    "--concurrency",
    type=click.IntRange(min=1, max=256),
    default=8,
    show_default=True,
    metavar="N",
    help="Answers judged at once.",
)


def extract_options(callback: Callback) -> Callback:
    """Add ``--mapping`` and ``--context``; the callback gets ``rules``, an `ExtractRules`."""

    @click.option(
        "--mapping",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Where attributes of your own hold question, chunks and answer: a collector's configuration,"
        " or a file of its section `extract` (docs/conventions.md).",
    )
    @click.option(
        "--context",
        "context_from",
        type=click.Choice([each.value for each in ContextFrom]),
        help="Where the context of a call without a retrieval comes from: nowhere (spans), whatever its"
        " prompt holds (prompt), or passages that are set off in its prompt (auto). Without it: as the file"
        " of --mapping says, else auto.",
    )
    @wraps(callback)
    def with_rules(mapping: str | None, context_from: str | None, **others: Any) -> Any:
        rules = _rules(mapping)
        if context_from is not None:
            rules = replace(rules, context=ContextFrom(context_from))
        return callback(rules=rules, **others)

    return with_rules


def _rules(path: str | None) -> ExtractRules:
    if path is None:
        return ExtractRules()
    with needs_extra("collector"):
        from ragtrace_collector.config import load_extract

    return load_extract(Path(path))


def _sampling(_: click.Context, __: click.Parameter, path: str | None) -> SamplingPlan | None:
    if path is None:
        return None
    with needs_extra("collector"):
        from ragtrace_collector.config import load_sampling

    return load_sampling(Path(path))


sampling_option = click.option(
    "--sampling",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    callback=_sampling,
    help="Ratio and rules that a collector samples by: its configuration, or a file of its section `sample`"
    " (docs/sampling.md). --ratio goes before the ratio in it.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeChoice:
    """The judge that options name, or else the environment."""

    spec: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    cache: CacheSettings | None = None
    prices: Prices = field(default_factory=load_prices)
    batches: BatchSettings | None = None
    """It is asked in batches, if this is set."""
    tls: ClientTls | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def open(self, *, max_concurrency: int, around: Around | None = None) -> Judge:
        """Open the judge; ``around`` puts one more layer around every attempt to ask it.

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
            cache=self.cache,
            around=around,
            batches=self.batches,
            tls=self.tls,
            headers=self.headers,
            extra_body=self.extra_body,
        )

    def open_second(
        self, spec: str | None, *, max_concurrency: int, around: Around | None = None
    ) -> Judge | None:
        """Open a second judge, if one is named: one of the same kind is at the same endpoint.

        Raises:
            ConfigError: there is no such judge, or it lacks a setting.
        """
        if spec is None:
            return None
        other = JudgeChoice(spec=spec, timeout_s=self.timeout_s, cache=self.cache, prices=self.prices)
        at_the_same = replace(self, spec=spec, base_url=sibling_url(self.base_url, spec, os.environ))
        chosen = at_the_same if self.spec is not None and self.is_like(spec) else other
        return chosen.open(max_concurrency=max_concurrency, around=around)

    def is_like(self, spec: str) -> bool:
        """Whether a judge or embedder is of the same kind: then it is at the same endpoint."""
        named = self.spec or judge_named_by(os.environ)
        return named.partition(":")[0] == spec.partition(":")[0]

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be printed, whoever repeats it."""
        urls = (self.base_url, *(os.environ.get(name) for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")))
        logins = (secret for url in urls for secret in secrets_in(url))
        return (os.environ.get(self.api_key_env, ""), *self.headers.values(), *logins)


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


def _judge_headers(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> Mapping[str, str]:
    pairs = [text.partition("=") for text in texts]
    if any(not mark or not name for name, mark, _value in pairs):
        raise click.BadParameter("write NAME=VALUE, such as X-Team=search")
    return {name: _VARIABLE.sub(_of_environment, value) for name, _mark, value in pairs}


_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def _of_environment(found: re.Match[str]) -> str:
    if found[1] not in os.environ:
        raise click.BadParameter(f"the environment variable {found[1]} is not set")
    return os.environ[found[1]]


def _judge_extra_body(_: click.Context, __: click.Parameter, text: str | None) -> Mapping[str, Any]:
    try:
        told = json.loads(text or "{}")
    except ValueError as exc:
        raise click.BadParameter(f"it is no JSON: {exc}") from None
    if not isinstance(told, dict):
        raise click.BadParameter("write a JSON object")
    return told


def judge_options(callback: Callback) -> Callback:
    """Add ``--judge`` and what goes with it; the callback gets ``judge``, a `JudgeChoice`."""

    @click.option(
        "--judge",
        "judge_spec",
        metavar="JUDGE",
        help="lexical, openai:MODEL, anthropic:MODEL, llama:PATH.gguf or scripted:PATH. Without it: an"
        " OpenAI-compatible endpoint where OPENAI_API_KEY or OPENAI_BASE_URL is set, else lexical.",
    )
    @click.option(
        "--base-url",
        metavar="URL",
        help="Endpoint of --judge openai:MODEL or anthropic:MODEL. A user and a password in it take the"
        " place of the key.",
    )
    @click.option(
        "--judge-ca",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        metavar="FILE",
        help="The authority, in PEM form, that signed the certificate of the judge's endpoint.",
    )
    @click.option(
        "--judge-header",
        "judge_headers",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_judge_headers,
        help="Sent with each request to the judge; '${env:VARIABLE}' in it keeps a key off the command line."
        " May be repeated.",
    )
    @click.option(
        "--judge-extra-body",
        metavar="JSON",
        callback=_judge_extra_body,
        help="What else each request to the judge says, such as"
        """ '{"chat_template_kwargs": {"enable_thinking": false}}'. It makes another evaluator.""",
    )
    @click.option(
        "--api-key-env",
        metavar="NAME",
        default="OPENAI_API_KEY",
        show_default=True,
        help="Environment variable that holds the judge's key; for anthropic:MODEL, ANTHROPIC_API_KEY.",
    )
    @click.option(
        "--judge-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        help="For one request to the --judge named; models on a CPU need more.",
    )
    @click.option(
        "--cache/--no-cache",
        "use_cache",
        default=None,
        help="Keep the judge's replies on disk, and do not ask again what is known. They hold parts of the"
        " texts that were judged; only you can read the file. Off unless --cache-file is given.",
    )
    @click.option(
        "--cache-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Where; instead of judge.db in ~/.cache/ragtrace.",
    )
    @click.option(
        "--prices",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Prices of models, over those that come with ragtrace (docs/judges.md has the form).",
    )
    @wraps(callback)
    def with_judge(
        judge_spec: str | None,
        base_url: str | None,
        judge_ca: Path | None,
        judge_headers: Mapping[str, str],
        judge_extra_body: Mapping[str, Any],
        api_key_env: str,
        judge_timeout: float,
        use_cache: bool | None,
        cache_file: str | None,
        prices: str | None,
        **others: Any,
    ) -> Any:
        judge = JudgeChoice(
            spec=judge_spec,
            base_url=base_url,
            api_key_env=api_key_env,
            timeout_s=judge_timeout,
            cache=_cache(use_cache, cache_file),
            prices=load_prices(prices),
            tls=ClientTls(ca=judge_ca) if judge_ca else None,
            headers=judge_headers,
            extra_body=judge_extra_body,
        )
        return callback(judge=judge, **others)

    return with_judge


names_option = click.option(
    "--metrics",
    "names",
    metavar="NAMES",
    default="faithfulness",
    show_default=True,
    help="Separated by commas; `ragtrace metrics` lists them.",
)

threshold_option = click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    metavar="SCORE",
    help="The score where `pass` begins. Without it: the metric's own rule.",
)
pass_when_option = click.option(
    "--pass-when",
    metavar="RULE",
    help="The rule of a `pass`, in place of a threshold: `contradicted == 0 and unsupported <= 1`.",
)


def metric_options(callback: Callback) -> Callback:
    """Add ``--metrics`` and what goes with it; the callback gets ``metrics``, a tuple of `Metric`."""

    @names_option
    @threshold_option
    @pass_when_option
    @click.option(
        "--allow-truncated",
        is_flag=True,
        help="Judge answers whose texts were cut on their way by what is whole of them, and mark the"
        " verdicts. Without it they are `ineligible:truncated`.",
    )
    @wraps(callback)
    def with_metrics(
        names: str,
        threshold: float | None,
        pass_when: str | None,
        allow_truncated: bool,
        **others: Any,
    ) -> Any:
        rules = passing(threshold, pass_when)
        if allow_truncated:
            rules["judge_truncated"] = True
        metrics = tuple(make_metric(name, **rules) for name in split_names(names))
        return callback(metrics=metrics, **others)

    return with_metrics


def passing(threshold: float | None, pass_when: str | None) -> dict[str, Any]:
    """Return the options of a metric that say when it passes.

    Raises:
        UsageError: two of them do.
    """
    if threshold is not None and pass_when is not None:
        raise click.UsageError(
            "--threshold and --pass-when both say when a metric passes: give one;"
            f" --pass-when 'score >= {threshold:g} and contradicted == 0' asks for both"
        )
    given = {"threshold": threshold, "pass_when": pass_when}
    return {name: value for name, value in given.items() if value is not None}


def account_for(judge: Judge, prices: Prices) -> None:
    """Say on stderr what a judge that costs anything was asked, and what that comes to."""
    spent = spent_by(judge)
    if judge.identity.computes:
        return
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    tokens = f"{spent.input_tokens:,}{cached} + {spent.output_tokens:,} tokens"
    cost = prices.cost_usd(spent, judge.identity)
    dollars = "cost unknown" if cost is None else f"${cost:.4f} at the prices of {prices.as_of}"
    talk(f"{many(spent.calls, 'call')} to {judge.identity.model}: {tokens}, {dollars}")
    warn_of_old_prices(prices, judge.identity)


def warn_of_old_prices(prices: Prices, who: JudgeIdentity, *, clock: Clock | None = None) -> None:
    """Say on stderr, once a run, that a price was looked up long ago."""
    warning = prices.too_old(who, now_ns=(clock or SystemClock()).now_ns())
    context = click.get_current_context(silent=True)
    said = context.find_root().meta.setdefault("ragtrace.old_prices", set()) if context else set()
    if warning and warning not in said:
        said.add(warning)
        talk(f"warning: {warning}")


def introduce(judge: Judge) -> None:
    """Say on stderr who judges, and how much that is worth where it is a heuristic."""
    talk(f"judge: {judge.identity.provider} ({judge.identity.model})")
    if judge.identity.provider == "lexical":
        talk(
            "  a heuristic of numbers, names and wording: it leaves many claims unjudged, and\n"
            "  no alarm should rest on it alone. A model judges with --judge openai:MODEL."
        )


def _cache(use: bool | None, path: str | None) -> CacheSettings | None:
    if use is False or (use is None and path is None):
        return None
    return CacheSettings(path=path or default_cache_path())


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
