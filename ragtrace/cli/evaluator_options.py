"""The options that name an evaluator: of `evaluate`, of `backfill`, or a collector's configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, CardOptions, EmbedderOptions, JudgeOptions, SecondJudgeOption
from ragtrace.cli.render import talk
from ragtrace.cli.settings import given_options_of, group, option

if TYPE_CHECKING:
    from ragtrace.conversations.settings import SessionSettings
    from ragtrace.pipeline.spec import EvaluatorSpec, MetricSpec, VerifySpec
    from ragtrace.traces.attach import AttachOptions
    from ragtrace.traces.extract import ExtractRules

VERIFY_FORMS: Final = ("auto", "json", "logprobs")
"""The values of `ragtrace.metrics.verify_settings.VerifyForm`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How the judge is asked about claims."""

    claims_per_call: int = option(
        "--batch-size",
        type=click.IntRange(1, 200),
        default=20,
        show_default=True,
        metavar="N",
        help="Claims in one request; use fewer for models with short replies.",
    )
    form: str = option(
        "--verify",
        type=click.Choice(VERIFY_FORMS),
        default="auto",
        show_default=True,
        help="How verdicts are requested: json (batches, with quotes), logprobs (P(Yes) of one claim), or"
        " auto (from --calibration, else json).",
    )
    canary_rate: float = option(
        "--sentinel-rate",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        metavar="SHARE",
        help="The share of records whose requests contain canary claims: claims with known verdicts.",
    )
    second_look: bool = option(
        "--second-look", is_flag=True, help="Ask again about claims that are not supported."
    )

    def verify_spec(self) -> VerifySpec:
        """Return how the judge is asked for verdicts."""
        from ragtrace.pipeline.spec import VerifySpec

        return VerifySpec(
            form=self.form,
            second_look=self.second_look,
            canary_rate=self.canary_rate,
            claims_per_call=self.claims_per_call,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEvaluator:
    """The evaluator that the options name, not opened yet."""

    spec: EvaluatorSpec
    rules: ExtractRules | None = None
    """How a collector's configuration reads RAG calls; ``None`` without one."""
    attach: AttachOptions | None = None
    """What its carriers look like; ``None`` without one."""
    sessions: SessionSettings | None = None
    """How it judges sessions; ``None`` without one."""
    judges_sessions: bool = False
    """Whether it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorOptions:
    """Who judges, and how."""

    config: Path | None = option(
        "--config",
        type=EXISTING_FILE,
        metavar="FILE",
        help="A collector's configuration: judge by its metrics, judge and settings, with the same ids.",
    )
    judge: JudgeOptions = group(JudgeOptions)
    second: SecondJudgeOption = group(SecondJudgeOption)
    calibration: Path | None = option(
        "--calibration",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="What `ragtrace calibrate --save` wrote about this judge: how to ask it, and its threshold.",
    )
    cards: CardOptions = group(CardOptions)
    embedder: EmbedderOptions = group(EmbedderOptions)
    verify: VerifyOptions = group(VerifyOptions)

    def chosen(
        self,
        metrics: Callable[[], tuple[MetricSpec, ...]],
        *,
        metric_options: Collection[type],
        max_concurrency: int,
    ) -> ChosenEvaluator:
        """Return the evaluator of the configuration, or of the options and these metrics.

        ``metric_options`` are the settings dataclasses that ``metrics`` reads.

        Raises:
            ConfigError: the configuration is wrong.
            UsageError: it is given, and an option too that it would override.
        """
        if self.config is None:
            return ChosenEvaluator(spec=self._spec(metrics(), max_concurrency))
        self._refuse_beside_config(metric_options)
        with needs_extra("collector"):
            from ragtrace_collector.config import load_config
            from ragtrace_collector.judge.live import attach_options_of
            from ragtrace_collector.judge.spec import evaluator_spec_of

        config = load_config(self.config)
        live_only = {
            "judge.cheaper": config.judge.cheaper is not None,
            "attach.mode: hold": config.attach.mode == "hold",
        }
        if any(live_only.values()):
            named = ", ".join(name for name, is_set in live_only.items() if is_set)
            talk(f"for live traffic only, not used here: {named}")
        return ChosenEvaluator(
            spec=_with_concurrency(evaluator_spec_of(config), max_concurrency),
            rules=config.extract.opened(),
            attach=attach_options_of(config),
            sessions=config.sessions.opened(tenant=config.sample.tenant),
            judges_sessions=config.sessions.enabled,
        )

    def _spec(self, metrics: tuple[MetricSpec, ...], max_concurrency: int) -> EvaluatorSpec:
        from ragtrace.pipeline.spec import EvaluatorSpec

        judge = self.judge.judge_spec(max_concurrency=max_concurrency)
        return EvaluatorSpec(
            metrics=metrics,
            judge=judge,
            second=judge.sibling(self.second.spec) if self.second.spec else None,
            embedder=self.embedder.embedder_spec(judge),
            verify=self.verify.verify_spec(),
            calibration=self.calibration,
            cards=self.cards.files,
            require_card=self.cards.are_required,
            prices=Path(self.judge.prices_file) if self.judge.prices_file else None,
        )

    def _refuse_beside_config(self, metric_options: Collection[type]) -> None:
        kinds = {JudgeOptions, SecondJudgeOption, CardOptions, EmbedderOptions, VerifyOptions}
        given = list(given_options_of(click.get_current_context(), kinds | set(metric_options)))
        if self.calibration is not None:
            given.append("--calibration")
        if given:
            raise click.UsageError(
                f"--config names the whole evaluator: leave out {', '.join(dict.fromkeys(given))}"
            )


def _with_concurrency(spec: EvaluatorSpec, max_concurrency: int) -> EvaluatorSpec:
    """Let as many requests run at once as answers: the collector's number is for its own traffic."""
    return replace(
        spec,
        judge=replace(spec.judge, max_concurrency=max_concurrency),
        second=replace(spec.second, max_concurrency=max_concurrency) if spec.second else None,
    )
