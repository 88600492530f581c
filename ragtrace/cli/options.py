"""Options that several commands share; they load judges, metrics and back ends only to use them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.settings import group, option

if TYPE_CHECKING:
    from ragtrace.backends.http_api import ConnectionSettings
    from ragtrace.budget import Prices
    from ragtrace.http.tls import ClientTls
    from ragtrace.judge.spec import JudgeSpec
    from ragtrace.pipeline.spec import MetricSpec
    from ragtrace.sampling import SamplingPlan
    from ragtrace.traces.extract import ExtractRules


OWN_PROFILE: Final = "ragtrace"
TOOLS: Final = ("ragas", "ragas-legacy", "deepeval-3", "deepeval-4", "promptfoo", "rag_evals")
"""Other tools whose rules and prompts there are: `ragtrace.compat.tools.PROFILES`."""
CONTEXT_SOURCES: Final = ("spans", "prompt", "auto")
"""The values of `ragtrace.traces.extract.ContextFrom`."""
CARRIER_TIMES: Final = ("target", "now", "auto")
"""The values of `ragtrace.traces.attach.CarrierTime`."""
CLAIM_EXTRACTORS: Final = ("screen", "then")
"""The values of `ragtrace.judge.cascade.Extractor`."""
EMBEDDING_MODEL: Final = "text-embedding-3-small"

FILE: Final = click.Path(path_type=Path, dir_okay=False)
EXISTING_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOption:
    """``--json``."""

    wanted: bool = option("--json", is_flag=True, help="Print JSON lines to stdout.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyOption:
    """``--concurrency``."""

    answers: int = option(
        "--concurrency",
        type=click.IntRange(min=1, max=256),
        default=8,
        show_default=True,
        metavar="N",
        help="Judge N answers at once.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """Where question, context and answer are in a trace."""

    mapping: Path | None = option(
        "--mapping",
        type=FILE,
        metavar="FILE",
        help="A collector's configuration, or its section `extract`: which attributes hold question, chunks"
        " and answer (docs/conventions.md).",
    )
    context_from: str | None = option(
        "--context",
        type=click.Choice(CONTEXT_SOURCES),
        help="Context of a call without a retrieval span: none (spans), the whole prompt (prompt), or"
        " passages marked off in the prompt (auto). [default: from --mapping, else auto]",
    )

    def rules(self, configured: ExtractRules | None = None) -> ExtractRules:
        """Return the rules; these options override those of a configuration.

        Raises:
            ConfigError: the file is wrong.
        """
        from dataclasses import replace

        from ragtrace.traces.extract import ContextFrom, ExtractRules

        rules = configured or ExtractRules()
        if self.mapping is not None:
            with needs_extra("collector"):
                from ragtrace_collector.config import load_extract
            rules = load_extract(self.mapping)
        return rules if self.context_from is None else replace(rules, context=ContextFrom(self.context_from))


def sampling_plan(path: str) -> SamplingPlan:
    """Read the sampling plan of a collector's configuration.

    Raises:
        ConfigError: the file is wrong.
    """
    with needs_extra("collector"):
        from ragtrace_collector.config import load_sampling
    return load_sampling(Path(path))


def _pairs(texts: tuple[str, ...], what: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts]
    if any(not mark or not key for key, mark, _ in pairs):
        raise ValueError(f"write {what}")
    return [(key, value) for key, _, value in pairs]


def tags(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Read ``KEY=VALUE`` of attributes.

    Raises:
        ValueError: a text is no such pair.
    """
    return tuple(_pairs(texts, "KEY=VALUE, such as deployment.environment.name=prod"))


def _tenant_headers(texts: tuple[str, ...]) -> dict[str, str]:
    return dict(_pairs(texts, "NAME=VALUE, such as X-Scope-OrgID=team-a"))


def _judge_headers(texts: tuple[str, ...]) -> Mapping[str, str]:
    pairs = _pairs(texts, "NAME=VALUE, such as X-Team=search")
    return {name: _VARIABLE.sub(_of_environment, value) for name, value in pairs}


_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def _of_environment(found: re.Match[str]) -> str:
    if found[1] not in os.environ:
        raise ValueError(f"the environment variable {found[1]} is not set")
    return os.environ[found[1]]


def _band(text: str) -> tuple[float, float]:
    low, _, high = text.partition(",")
    try:
        return float(low), float(high)
    except ValueError:
        raise ValueError("give two probabilities, such as 0.1,0.9") from None


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise ValueError(f"this is not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise ValueError("write a JSON object")  # noqa: TRY004 -- settings turn a ValueError into usage
    return value


def _secret_in(variable: str) -> str:
    if not os.environ.get(variable):
        raise ValueError(f"the environment variable {variable} is not set")
    return os.environ[variable]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """Which judge is asked, and how it is reached."""

    spec: str | None = option(
        "--judge",
        metavar="JUDGE",
        help="lexical, openai:MODEL, azure:DEPLOYMENT, anthropic:MODEL, nli:FOLDER, scripted:PATH or cascade."
        " [default: openai if OPENAI_API_KEY or OPENAI_BASE_URL is set, else lexical]",
    )
    then: str | None = option(
        "--judge-then",
        metavar="JUDGE",
        help="With --judge cascade: the judge of the claims that its screen leaves open. All other judge"
        " options apply to it.",
    )
    screen: str | None = option(
        "--judge-screen",
        metavar="JUDGE",
        help="With --judge cascade: the screen that decides the claims it is sure of: nli:FOLDER or lexical."
        " [default: lexical]",
    )
    band: tuple[float, float] | None = option(
        "--judge-band",
        metavar="LOW,HIGH",
        parse=_band,
        help="With --judge cascade: the judge decides claims whose probability of support is between these."
        " [default: 0.1,0.9]",
    )
    extract: str | None = option(
        "--judge-extract",
        type=click.Choice(CLAIM_EXTRACTORS),
        help="With --judge cascade: who lists the claims. [default: screen, which takes sentences]",
    )
    base_url: str | None = option(
        "--base-url",
        metavar="URL",
        help="Endpoint of openai:, azure: or anthropic:. A user and password in it replace the key.",
    )
    ca: Path | None = option(
        "--judge-ca",
        type=EXISTING_FILE,
        metavar="FILE",
        help="PEM file of the endpoint's certificate authority.",
    )
    headers: Mapping[str, str] = option(
        "--judge-header",
        multiple=True,
        metavar="NAME=VALUE",
        parse=_judge_headers,
        secret=True,
        help="Header of each request to the judge; '${env:VARIABLE}' hides a key. Repeatable.",
    )
    extra_body: Mapping[str, Any] | None = option(
        "--judge-extra-body",
        metavar="JSON",
        parse=_json_object,
        help="Added to each request to the judge, such as"
        """ '{"chat_template_kwargs": {"enable_thinking": false}}'. Changes the evaluator.""",
    )
    api_key_env: str = option(
        "--api-key-env",
        metavar="NAME",
        default="OPENAI_API_KEY",
        show_default=True,
        help="Environment variable with the judge's key; for anthropic: and azure:, their own.",
    )
    timeout_s: float = option(
        "--judge-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        default=60.0,
        show_default=True,
        help="For one request; models on a CPU need more.",
    )
    max_retries: int = option(
        "--judge-retries",
        type=click.IntRange(min=0, max=20),
        metavar="N",
        default=2,
        show_default=True,
        help="Repeat a request N times while the endpoint is unavailable.",
    )
    max_corrections: int = option(
        "--judge-corrections",
        type=click.IntRange(min=0, max=10),
        metavar="N",
        default=1,
        show_default=True,
        help="Send a reply of the wrong form back N times.",
    )
    strict_json: bool = option(
        "--judge-strict-json", is_flag=True, help="Accept bare JSON only: repair no reply of the judge."
    )
    use_cache: bool | None = option(
        "--cache/--no-cache",
        help="Keep and reuse the judge's replies on disk. They contain judged text; only you can read the"
        " file. [default: on with --cache-file, else off]",
    )
    cache_file: str | None = option(
        "--cache-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="[default: judge.db in ~/.cache/ragtrace]",
    )
    prices_file: str | None = option(
        "--prices",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Prices that override the built-in ones (form: docs/judges.md).",
    )

    @property
    def is_given(self) -> bool:
        """Whether an option names the judge."""
        return self.spec is not None or self.base_url is not None

    def judge_spec(self, *, max_concurrency: int = 1) -> JudgeSpec:
        """Return the settings of the judge, not opened yet: one of the environment if no option names one.

        Raises:
            UsageError: an endpoint is named, but no model.
            ConfigError: a part of a cascade is missing, or set without one.
        """
        from ragtrace.cli.judge_choice import cache_settings
        from ragtrace.http.tls import ClientTls
        from ragtrace.judge import judge_named_by
        from ragtrace.judge.cascade import judge_and_screen
        from ragtrace.judge.replies import ReplyRules
        from ragtrace.judge.spec import JudgeSpec

        if self.spec is None and self.base_url is not None:
            raise click.UsageError("--base-url needs --judge openai:MODEL: which model is to judge?")
        asked, screen = judge_and_screen(
            self.spec or judge_named_by(os.environ),
            then=self.then,
            screen=self.screen,
            band=self.band,
            extract=self.extract,
        )
        return JudgeSpec(
            use=asked,
            screen=screen,
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            max_concurrency=max_concurrency,
            cache=cache_settings(self.use_cache, self.cache_file),
            tls=ClientTls(ca=self.ca) if self.ca else None,
            headers=self.headers,
            extra_body=self.extra_body or {},
            max_retries=self.max_retries,
            reply_rules=ReplyRules(strict_json=self.strict_json, max_corrections=self.max_corrections),
        )

    def prices(self) -> Prices:
        """Read the prices.

        Raises:
            ConfigError: the file is wrong.
        """
        from ragtrace.budget import load_prices

        return load_prices(self.prices_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondJudgeOption:
    """``--second-judge``."""

    spec: str | None = option(
        "--second-judge",
        metavar="JUDGE",
        help="Asked if the first judge gets a canary claim wrong, as after a prompt injection. A judge of the"
        " same kind uses the endpoint and key of --judge.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOptions:
    """What was measured of the judges."""

    files: tuple[Path, ...] = option(
        "--judge-card",
        type=click.Path(dir_okay=False, path_type=Path),
        multiple=True,
        metavar="FILE",
        help="What `ragtrace calibrate --card` wrote about a judge. Repeatable.",
    )
    are_required: bool = option(
        "--require-card",
        is_flag=True,
        help="Refuse a judge without a card, or whose card is no better than counting shared words.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOptions:
    """Who turns texts into vectors."""

    spec: str | None = option(
        "--embedder",
        metavar="EMBEDDER",
        help="wordllama, openai:MODEL or azure:DEPLOYMENT, for metrics that compare meanings. [default: with"
        f" --judge openai:MODEL, {EMBEDDING_MODEL} there]",
    )

    def embedder_spec(self, judge: JudgeSpec) -> JudgeSpec | None:
        """Return the settings of the embedder; ``None`` if neither an option nor the judge names one."""
        default = f"openai:{EMBEDDING_MODEL}" if judge.kind == "openai" else None
        named = self.spec or default
        return judge.sibling(named) if named else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOptions:
    """When a metric passes."""

    threshold: float | None = option(
        "--threshold",
        type=click.FloatRange(0, 1),
        metavar="SCORE",
        help="Lowest score that passes. [default: the metric's rule]",
    )
    pass_when: str | None = option(
        "--pass-when",
        metavar="RULE",
        help="Instead of a threshold: `contradicted == 0 and unsupported <= 1`.",
    )

    @property
    def is_given(self) -> bool:
        """Whether an option says when a metric passes."""
        return self.threshold is not None or self.pass_when is not None

    def rules(self) -> dict[str, Any]:
        """Return the options of a metric that say when it passes."""
        given = {"threshold": self.threshold, "pass_when": self.pass_when}
        return {name: value for name, value in given.items() if value is not None}

    def __post_init__(self) -> None:
        """Refuse two rules at once."""
        if self.threshold is not None and self.pass_when is not None:
            raise click.UsageError(
                "--threshold and --pass-when both say when a metric passes: give one;"
                f" --pass-when 'score >= {self.threshold:g} and contradicted == 0' requires both"
            )


def _metric_options(texts: tuple[str, ...]) -> tuple[tuple[str, str, Any], ...]:
    found = []
    for place, text in _pairs(texts, "METRIC.NAME=VALUE, such as faithfulness.truths=true"):
        metric, mark, name = place.rpartition(".")
        if not (mark and metric and name):
            raise ValueError("write METRIC.NAME=VALUE, such as faithfulness.truths=true")
        found.append((metric, name, _json_or_text(text)))
    return tuple(found)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _weights(text: str) -> Mapping[str, float]:
    pairs = _pairs(tuple(part.strip() for part in text.split(",")), "PART=WEIGHT,…, such as faithfulness=0.6")
    try:
        return {name.strip(): float(weight) for name, weight in pairs}
    except ValueError:
        raise ValueError("a weight is a number, such as faithfulness=0.6") from None


_COMPOSITE: Final = "rag_score"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChanges:
    """What metrics take beside their rules of a pass."""

    options: tuple[tuple[str, str, Any], ...] = option(
        "--metric-option",
        multiple=True,
        metavar="METRIC.NAME=VALUE",
        parse=_metric_options,
        help="Option of a metric, such as faithfulness.truths=true; the value is JSON or text. Repeatable.",
    )
    prompts: Path | None = option(
        "--prompts",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="DIR",
        help="Use the prompts in this folder: NAME.md replaces the prompt NAME (`ragtrace metrics prompts`).",
    )
    weights: Mapping[str, float] | None = option(
        "--weights",
        metavar="PART=WEIGHT,…",
        parse=_weights,
        help="Weights of rag_score's parts: faithfulness, answer_relevance, chunk_precision; their sum is 1.",
    )

    def applied(self, specs: tuple[MetricSpec, ...]) -> tuple[MetricSpec, ...]:
        """Return the metrics with these changes.

        Raises:
            UsageError: a change is about a metric that is not measured.
            ConfigError: a file of the folder of prompts is none.
        """
        self._refuse_unmeasured({spec.name for spec in specs})
        prompts = self._prompts()
        return tuple(self._changed(spec, prompts) for spec in specs)

    def _refuse_unmeasured(self, measured: set[str]) -> None:
        for metric, name, _ in self.options:
            if metric not in measured:
                raise click.UsageError(
                    f"--metric-option {metric}.{name}: --metrics does not name {metric!r},"
                    f" but {', '.join(sorted(measured))}"
                )
        if self.weights and _COMPOSITE not in measured:
            raise click.UsageError(f"--weights needs --metrics {_COMPOSITE}")

    def _changed(self, spec: MetricSpec, prompts: Mapping[str, Path]) -> MetricSpec:
        from dataclasses import replace

        own = {name: value for metric, name, value in self.options if metric == spec.name}
        weights = self.weights if spec.name == _COMPOSITE and self.weights else spec.weights
        changed = replace(spec, options={**spec.options, **own}, weights=weights)
        if not prompts:
            return changed
        from ragtrace.metrics.steps.table import prompts_of

        uses = changed.open().uses
        known = [*prompts] if uses is None else [str(name) for name in prompts_of(uses)]
        own_prompts = {name: prompts[name] for name in known if name in prompts}
        return replace(changed, prompts={**spec.prompts, **own_prompts})

    def _prompts(self) -> Mapping[str, Path]:
        if self.prompts is None:
            return {}
        from ragtrace.errors import ConfigError
        from ragtrace.judge_steps import PROMPTS

        files = {path.stem: path for path in sorted(self.prompts.glob("*.md"))}
        if strange := files.keys() - set(PROMPTS):
            raise ConfigError(
                f"{files[min(strange)]} replaces no prompt: the names are {', '.join(PROMPTS)}."
                " `ragtrace metrics prompts --export DIR` writes the built-in ones"
            )
        if not files:
            raise ConfigError(
                f"{self.prompts} has no prompt:"
                " `ragtrace metrics prompts --export DIR` writes the built-in ones"
            )
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOptions:
    """What is measured."""

    names: str = option(
        "--metrics",
        metavar="NAMES",
        default="faithfulness",
        show_default=True,
        help="Comma-separated; `ragtrace metrics` lists them.",
    )
    passes: PassOptions = group(PassOptions)
    changes: MetricChanges = group(MetricChanges)
    allow_truncated: bool = option(
        "--allow-truncated",
        is_flag=True,
        help="Also judge answers with truncated texts, and mark the verdicts. Without it they are"
        " `ineligible:truncated`.",
    )

    def metric_specs(self) -> tuple[MetricSpec, ...]:
        """Return the metrics, not made yet.

        Raises:
            UsageError: none is named.
        """
        options = {"judge_truncated": True} if self.allow_truncated else {}
        return self.changes.applied(
            tuple(
                metric_spec(name, **self.passes.rules(), options=options) for name in split_names(self.names)
            )
        )


def split_names(names: str) -> tuple[str, ...]:
    """Split what ``--metrics`` was given, each name once.

    Raises:
        UsageError: there is none.
    """
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise click.UsageError("--metrics names none: `ragtrace metrics` lists them")
    return chosen


def metric_spec(name: str, *, profile: str = OWN_PROFILE, **settings: Any) -> MetricSpec:
    """Return the metric that ``faithfulness``, ``faithfulness.deepeval-4`` or an address of code names."""
    from ragtrace.pipeline.spec import MetricSpec
    from ragtrace.plugins import Address

    if Address.parse(name):
        return MetricSpec(name=name, **settings)
    plain, _, named = name.partition(".")
    return MetricSpec(name=plain, profile=named or profile, **settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """How to authenticate at a back end: a group with the words ``prefix`` and ``where``."""

    headers: dict[str, str] = option(
        "--{prefix}-header",
        multiple=True,
        metavar="NAME=VALUE",
        parse=_tenant_headers,
        secret=True,
        help="Header for {where}: X-Scope-OrgID=TENANT. Repeatable.",
    )
    token: str | None = option(
        "--{prefix}-token-env",
        metavar="VARIABLE",
        parse=_secret_in,
        secret=True,
        help="Environment variable with a bearer token.",
    )
    login: str | None = option(
        "--{prefix}-login-env",
        metavar="VARIABLE",
        parse=_secret_in,
        secret=True,
        help="Environment variable with USER:PASSWORD.",
    )
    ca: Path | None = option(
        "--{prefix}-ca", type=EXISTING_FILE, metavar="FILE", help="Certificates of trusted authorities."
    )
    cert: Path | None = option(
        "--{prefix}-cert", type=EXISTING_FILE, metavar="FILE", help="Client certificate."
    )
    key: Path | None = option("--{prefix}-key", type=EXISTING_FILE, metavar="FILE", help="Its key.")

    def access(self, prefix: str) -> ConnectionSettings:
        """Return what a reader or sink takes.

        Raises:
            UsageError: the login has no password.
        """
        from ragtrace.backends.http_api import ConnectionSettings

        user, colon, password = (self.login or "").partition(":")
        if self.login and not colon:
            raise click.UsageError(f"the variable of --{prefix}-login-env must hold USER:PASSWORD")
        return ConnectionSettings(
            headers=self.headers,
            basic=(user, password) if self.login else None,
            token=self.token,
            tls=self._tls(),
        )

    def _tls(self) -> ClientTls | None:
        from ragtrace.http.tls import ClientTls

        files = (self.ca, self.cert, self.key)
        return ClientTls(ca=self.ca, cert=self.cert, key=self.key) if any(files) else None
