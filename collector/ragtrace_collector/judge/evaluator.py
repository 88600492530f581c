"""Build the evaluator that a configuration names: metrics, judges, embedder and prices."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import SecretStr

from ragtrace.clock import SystemClock
from ragtrace.errors import ConfigError
from ragtrace.evaluation import evaluate, evaluator_set, evaluator_version
from ragtrace.judge import CacheSettings, Prices, open_embedder, open_judge
from ragtrace.judge.base_url import sibling_url
from ragtrace.judge.factory import OPENAI_KEY
from ragtrace.metrics import StepLimits, metric_named
from ragtrace.metrics.calibration_file import read_calibration
from ragtrace.metrics.prompt import content_sha256
from ragtrace.metrics.registry import tool_metric_named
from ragtrace.metrics.verify_settings import VerifyForm, VerifySettings
from ragtrace.model import Evaluation, JudgeIdentity, RagRecord
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace_collector.config import CollectorConfig, JudgeConfig, MetricConfig, SecondJudgeConfig
from ragtrace_collector.judge.guard import JudgeGuard, JudgeGuards, Unavailable, guards_of

_OWN_KEYS: Final = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
"""The variables of judges that do not use OpenAI's by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Evaluates records with the configured metrics and judges."""

    metrics: Sequence[Metric]
    judge: Judge
    second_judge: Judge | None = None
    embedder: Embedder | None = None
    limits: StepLimits = field(default_factory=StepLimits)
    prices: Prices | None = None
    guards: JudgeGuards | None = None
    """The guards of every judge and embedder."""
    name: str = "judge"
    """The name of the judge's own guard."""
    cheaper: Evaluator | None = None
    """The evaluator with the cheaper judge, used if the budget has nothing left for this one."""

    @property
    def now(self) -> Evaluator:
        """The evaluator to use now: the cheaper one, if it exists and the budget requires it."""
        is_spent = any(guard.refusal for guard in self._guards(self.name))
        return self.cheaper if self.cheaper and is_spent else self

    def closed(self) -> Unavailable | None:
        """Return until when the judge may not be asked, if so."""
        return next((guard.closed() for guard in self._guards(self.name)), None)

    def stopped(self) -> str | None:
        """Return why nothing is judged, as an outcome; ``None`` if no reason is known."""
        return next((guard.stopped() for guard in self._guards(self.name)), None)

    def opens_ns(self) -> int:
        """Return when every judge may be asked again, in Unix nanoseconds; 0 if they may now."""
        closed = (guard.closed() for guard in self._guards(self.name, "second", "embedder"))
        return max((each.until_ns for each in closed if each), default=0)

    def _guards(self, *names: str) -> Iterator[JudgeGuard]:
        by_name = self.guards.by_name if self.guards else {}
        return (by_name[name] for name in names if name in by_name)

    async def evaluate(
        self, record: RagRecord, *, clock: Clock, earlier: Evaluation | None = None
    ) -> Evaluation:
        """Evaluate the record; results of an earlier attempt at the same record are not judged again."""
        if earlier is not None and not self._may_go_on(earlier, record):
            earlier = None
        found = {(each.metric, each.profile) for each in earlier.results} if earlier else set()
        evaluation = await evaluate(
            record,
            metrics=[each for each in self.metrics if (each.name, each.profile) not in found],
            judge=self.judge,
            clock=clock,
            limits=self.limits,
            embedder=self.embedder,
            second_judge=self.second_judge,
        )
        return self._joined(earlier, evaluation) if earlier else evaluation

    def cost_usd(self, evaluation: Evaluation) -> float | None:
        """Return what the evaluation cost, or ``None`` if that is not known."""
        return self.prices.cost_of(evaluation) if self.prices else None

    def _may_go_on(self, earlier: Evaluation, record: RagRecord) -> bool:
        return earlier.input_sha256 == content_sha256(record) and earlier.judge == self.judge.identity

    def _joined(self, earlier: Evaluation, later: Evaluation) -> Evaluation:
        """Merge the results of two attempts at the same record into one evaluation."""
        outcomes = {(each.metric, each.profile): each for each in (*earlier.outcomes, *later.outcomes)}
        return replace(
            later,
            outcomes=tuple(outcomes[metric.name, metric.profile] for metric in self.metrics),
            evaluator_set=evaluator_set(self.metrics),
            evaluator_version=evaluator_version(
                self.metrics,
                self.judge,
                limits=self.limits,
                second_judge=self.second_judge,
                embedder=self.embedder,
            ),
            run_id=earlier.run_id,
            started_at_ns=earlier.started_at_ns,
            duration_ms=earlier.duration_ms + later.duration_ms,
            usage=earlier.usage + later.usage,
            compromised=earlier.compromised or later.compromised,
        )


def old_prices(evaluator: Evaluator, *, now_ns: int) -> tuple[str, ...]:
    """Return one line for each model whose price is old."""
    prices = evaluator.prices
    asked = (evaluator, evaluator.cheaper) if evaluator.cheaper else (evaluator,)
    models = [who for each in asked for who in (each.judge, each.second_judge, each.embedder) if who]
    said = (prices.too_old(who.identity, now_ns=now_ns) for who in models) if prices else ()
    return tuple(dict.fromkeys(line for line in said if line))


@asynccontextmanager
async def open_evaluator(
    config: CollectorConfig, guards: JudgeGuards | None = None
) -> AsyncIterator[Evaluator]:
    """Open the evaluator behind its guards; close it at the end.

    Raises:
        ConfigError: a metric, judge, embedder, calibration or price table cannot be used.
    """
    settings, guards = config.judge, guards or guards_of(config, clock=SystemClock(), spend_ledger=None)
    async with AsyncExitStack() as opened:
        embedder = embedder_of(settings, around=guards.embedder("embedder", key_place=_key_place(settings)))
        if embedder is not None:
            await opened.enter_async_context(aclosing(embedder))
        evaluator = await _open_one("judge", settings, config, guards, embedder, opened)
        if settings.cheaper is not None:
            cheaper = _judge_beside(settings, settings.cheaper)
            other = await _open_one("cheaper", cheaper, config, guards, embedder, opened)
            evaluator = replace(evaluator, cheaper=other)
        yield evaluator


async def _open_one(
    name: str,
    settings: JudgeConfig,
    config: CollectorConfig,
    guards: JudgeGuards,
    embedder: Embedder | None,
    opened: AsyncExitStack,
) -> Evaluator:
    share = config.budget.cheaper_from if settings.cheaper else 1.0
    around = guards.judge(name, share=share, key_place=_key_place(settings))
    judge = judge_of(settings, around=around)
    await opened.enter_async_context(aclosing(judge))
    second = None
    if settings.second is not None:
        beside = _judge_beside(settings, settings.second)
        around = guards.judge("second", share=share, key_place=_key_place(beside))
        second = judge_of(beside, around=around)
        await opened.enter_async_context(aclosing(second))
    metrics = metrics_of(config.evaluate.metrics, pass_at=_pass_at(settings))
    _check_embedder(metrics, embedder)
    return Evaluator(
        metrics=metrics,
        judge=judge,
        second_judge=second,
        embedder=embedder,
        limits=StepLimits(verify=verify_settings_of(settings, judge.identity)),
        prices=guards.prices,
        guards=guards,
        name=name,
    )


def metrics_of(
    configs: Sequence[MetricConfig], *, pass_at: Mapping[str, float] | None = None
) -> tuple[Metric, ...]:
    """Build the configured metrics; ``pass_at`` gives thresholds for those without one.

    Raises:
        ConfigError: there is no such metric or profile, it does not take an option, or two have one name.
    """
    metrics = tuple(_metric(each, pass_at or {}) for each in configs)
    names = [(metric.name, metric.profile) for metric in metrics]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"`evaluate.metrics` has {twice[0]!r} ({twice[1]}) twice, under two names")
    return metrics


def judge_of(config: JudgeConfig, *, around: Callable[[Judge], Judge] | None = None) -> Judge:
    """Build the configured judge; ``around`` puts one more layer around every attempt.

    Raises:
        ConfigError: there is no such judge, or its key is missing.
    """
    cache = config.cache
    return open_judge(
        config.use,
        base_url=config.base_url,
        api_key_env=config.api_key_env,
        timeout_s=config.timeout.total_seconds(),
        max_concurrency=config.max_concurrency,
        cache=CacheSettings(path=cache.path, max_bytes=cache.max_bytes) if cache else None,
        around=around,
        environ=_environ(config),
        tls=config.tls.opened() if config.tls else None,
        headers=_plain(config.headers),
        extra_body=config.extra_body,
    )


def _plain(headers: Mapping[str, SecretStr]) -> Mapping[str, str]:
    return {name: value.get_secret_value() for name, value in headers.items()}


def _key_place(config: JudgeConfig) -> str:
    """Return where a judge's key is read from, for messages; empty if the judge needs no key."""
    if _kind(config.use) not in ("openai", *_OWN_KEYS):
        return ""
    if config.api_key:
        return "`judge.api_key`"
    own = _OWN_KEYS.get(_kind(config.use), OPENAI_KEY)
    return own if config.api_key_env == OPENAI_KEY else config.api_key_env


def _environ(config: JudgeConfig) -> Mapping[str, str]:
    """Return where judges look for their keys, including the configuration itself."""
    if config.api_key is None:
        return os.environ
    variables = (config.api_key_env, *_OWN_KEYS.values())
    return {**os.environ, **dict.fromkeys(variables, config.api_key.get_secret_value())}


def _metric(config: MetricConfig, pass_at: Mapping[str, float]) -> Metric:
    if config.peer_prompts:
        return _tool_metric(config)
    options: dict[str, Any] = dict(config.options)
    if config.prompts:
        options["prompts"] = dict(config.prompts)
    if config.weights:
        options["weights"] = dict(config.weights)
    is_own = config.profile == "ragtrace"
    default = pass_at.get(config.name) if is_own else None
    threshold = default if config.threshold is None and config.pass_when is None else config.threshold
    return metric_named(
        config.name, profile=config.profile, threshold=threshold, pass_when=config.pass_when, **options
    )


def _tool_metric(config: MetricConfig) -> Metric:
    try:
        return tool_metric_named(
            config.name, profile=config.profile, options=config.options, threshold=config.threshold
        )
    except ConfigError as exc:
        raise ConfigError(f"`evaluate.metrics`: {exc}") from exc


def _judge_beside(config: JudgeConfig, second: SecondJudgeConfig) -> JudgeConfig:
    """Return the settings of an additional judge, without calibrations."""
    beside = config if _kind(second.use) == _kind(config.use) else JudgeConfig()
    # settings for one endpoint, keys in headers included, must not go to another
    shared = beside if second.base_url is None else JudgeConfig()
    own = {
        "use": second.use,
        "base_url": second.base_url or sibling_url(beside.base_url, second.use, os.environ),
        "api_key_env": second.api_key_env or beside.api_key_env,
        "api_key": second.api_key or (None if second.api_key_env else beside.api_key),
        "tls": second.tls or config.tls,
        "headers": shared.headers if second.headers is None else second.headers,
        "extra_body": shared.extra_body if second.extra_body is None else second.extra_body,
        "timeout": second.timeout or config.timeout,
        "max_concurrency": config.max_concurrency,
        "cache": config.cache,
        "calibration": None,
        "second": None,
        "cheaper": None,
    }
    return beside.model_copy(update=own)


def embedder_of(
    config: JudgeConfig, *, around: Callable[[Embedder], Embedder] | None = None
) -> Embedder | None:
    """Build the configured embedder, if there is one.

    Raises:
        ConfigError: there is no such embedder, or its key is missing.
    """
    if config.embedder is None:
        return None
    beside = config if _kind(config.embedder) == _kind(config.use) else JudgeConfig()
    return open_embedder(
        config.embedder,
        base_url=sibling_url(beside.base_url, config.embedder, os.environ),
        api_key_env=beside.api_key_env,
        timeout_s=config.timeout.total_seconds(),
        max_concurrency=config.max_concurrency,
        around=around,
        environ=_environ(beside),
        tls=config.tls.opened() if config.tls else None,
        headers=_plain(beside.headers),
    )


def _check_embedder(metrics: Sequence[Metric], embedder: Embedder | None) -> None:
    lacking = next((each.name for each in metrics if "questions" in getattr(each, "uses", ())), None)
    if embedder is None and lacking is not None:
        raise ConfigError(
            f"`evaluate.metrics` names {lacking!r}, which compares embeddings: set `judge.embedder` to"
            " openai:MODEL or wordllama"
        )


def verify_settings_of(config: JudgeConfig, judge: JudgeIdentity) -> VerifySettings:
    """Return the configured way to ask a judge for verdicts.

    Raises:
        ConfigError: its calibration cannot be read.
    """
    measured = read_calibration(config.calibration).settings(judge) if config.calibration else None
    return replace(
        measured or VerifySettings(),
        form=VerifyForm(config.verify),
        second_look=config.second_look,
        sentinel_rate=config.sentinel_rate,
    )


def _pass_at(config: JudgeConfig) -> Mapping[str, float]:
    measured = read_calibration(config.calibration).answer_threshold if config.calibration else None
    return {} if measured is None else {"faithfulness": measured}


def _kind(spec: str) -> str:
    return spec.partition(":")[0]
