"""Reads the settings of the evaluator from the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr

from ragtrace.judge import CacheSettings
from ragtrace.judge.spec import JudgeSpec
from ragtrace.pipeline import EvaluatorSpec, MetricSpec, VerifySpec
from ragtrace_collector.config import CollectorConfig, JudgeConfig, MetricConfig, SecondJudgeConfig


def evaluator_spec_of(config: CollectorConfig) -> EvaluatorSpec:
    """Return the settings of the evaluator that a configuration names."""
    judge = judge_spec_of(config.judge)
    return EvaluatorSpec(
        metrics=tuple(map(_metric, config.evaluate.metrics)),
        judge=judge,
        second=_sibling(judge, config.judge.second) if config.judge.second else None,
        embedder=judge.sibling(config.judge.embedder) if config.judge.embedder else None,
        verify=_verify(config.judge),
        calibration=config.judge.calibration,
        cards=config.judge.card,
        require_card=config.judge.require_card,
        prices=config.judge.prices,
    )


def judge_spec_of(config: JudgeConfig) -> JudgeSpec:
    """Return the settings of the judge."""
    cache = config.cache
    return JudgeSpec(
        use=config.use,
        screen=config.screen_spec(),
        base_url=config.base_url,
        api_key_env=config.api_key_env,
        api_key=config.api_key.get_secret_value() if config.api_key else None,
        tls=config.tls.opened() if config.tls else None,
        headers=_plain(config.headers),
        extra_body=config.extra_body,
        timeout_s=config.timeout.total_seconds(),
        max_concurrency=config.max_concurrency,
        cache=CacheSettings(path=cache) if cache else None,
    )


def _sibling(judge: JudgeSpec, config: SecondJudgeConfig) -> JudgeSpec:
    own = {"api_key_env": config.api_key_env} if config.api_key_env else {}
    return judge.sibling(config.use, base_url=config.base_url, **own)


def _verify(config: JudgeConfig) -> VerifySpec:
    return VerifySpec(
        form=config.verify,
        second_look=config.second_look,
        canary_rate=config.sentinel_rate,
        claims_per_call=config.batch_size,
    )


def _metric(config: MetricConfig) -> MetricSpec:
    return MetricSpec(
        name=config.name,
        profile=config.profile,
        threshold=config.threshold,
        pass_when=config.pass_when,
        uses_tool_prompts=config.peer_prompts,
        prompts=config.prompts,
        options=config.options
        if config.criterion is None
        else {**config.options, "criterion": config.criterion},
    )


def _plain(headers: Mapping[str, SecretStr]) -> Mapping[str, str]:
    return {name: value.get_secret_value() for name, value in headers.items()}
