"""An evaluator, opened, and its settings: what is measured, who is asked, and how.

The collector's configuration, the options of the commands and Python programs all make an `EvaluatorSpec`, so
the same settings give the same evaluator version, and the same ids of carriers, everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from ragtrace.budget.prices import Prices, load_prices
from ragtrace.errors import ConfigError
from ragtrace.judge.spec import JudgeSpec
from ragtrace.metrics import Prompts, StepLimits, metric_named
from ragtrace.metrics.judge_card import Calibration, JudgeCard, check_card, read_calibration, read_card
from ragtrace.metrics.registry import OWN_PROFILE, tool_metric_named
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import Evaluation, JudgeIdentity, RagRecord, content_sha256
from ragtrace.pipeline.evaluation import by_card, evaluate, evaluator_set, evaluator_version
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace.scoring.blame import blame_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Evaluates records. What it is made of decides its version, and so the ids of its carriers.

    Stateless: one evaluator serves concurrent records.
    """

    metrics: Sequence[Metric]
    judge: Judge
    second_judge: Judge | None = None
    embedder: Embedder | None = None
    limits: StepLimits = field(default_factory=StepLimits)
    prompts: Prompts | None = None
    prices: Prices = field(default_factory=load_prices)
    cards: tuple[JudgeCard, ...] = ()
    """What was measured of judges, beside the package's own cards."""

    @property
    def set(self) -> str:
        """The names of the metrics and profiles: ``faithfulness/ragtrace``."""
        return evaluator_set(self.metrics)

    @property
    def version(self) -> str:
        """Changes with metrics, thresholds, prompts, models and limits; stable otherwise."""
        return evaluator_version(
            self.metrics,
            self.judge,
            prompts=self.prompts,
            limits=self.limits,
            second_judge=self.second_judge,
            embedder=self.embedder,
            cards=self.cards,
        )

    @property
    def id(self) -> Mapping[str, str]:
        """What the ids of carriers derive from: ``evaluator_set`` and ``evaluator_version``."""
        return {"evaluator_set": self.set, "evaluator_version": self.version}

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The judge, and the second judge if there is one."""
        return (self.judge,) if self.second_judge is None else (self.judge, self.second_judge)

    @property
    def identities(self) -> tuple[JudgeIdentity, ...]:
        """Everyone who may be asked: judges, then the embedder."""
        judges = tuple(judge.identity for judge in self.judges)
        return (*judges, self.embedder.identity) if self.embedder else judges

    async def evaluate(
        self, record: RagRecord, *, clock: Clock | None = None, earlier: Evaluation | None = None
    ) -> Evaluation:
        """Evaluate the record; results of an earlier attempt at the same record are not judged again."""
        if earlier is not None and not self._may_continue(earlier, record):
            earlier = None
        found = {(result.metric, result.profile) for result in earlier.results} if earlier else set()
        evaluation = await evaluate(
            record,
            metrics=[metric for metric in self.metrics if (metric.name, metric.profile) not in found],
            judge=self.judge,
            clock=clock,
            prompts=self.prompts,
            limits=self.limits,
            embedder=self.embedder,
            second_judge=self.second_judge,
            cards=self.cards,
        )
        return self._joined(earlier, evaluation, record) if earlier else evaluation

    def cost_usd(self, evaluation: Evaluation) -> float | None:
        """Return what an evaluation cost in US dollars, or ``None`` if that is not known."""
        return self.prices.cost_of(evaluation)

    async def aclose(self) -> None:
        """Release the sockets and files of all models, even if one cannot be closed."""
        async with AsyncExitStack() as closing:
            for model in (*self.judges, self.embedder):
                if model is not None:
                    closing.push_async_callback(model.aclose)

    def _may_continue(self, earlier: Evaluation, record: RagRecord) -> bool:
        return earlier.input_sha256 == content_sha256(record) and earlier.judge == self.judge.identity

    def _joined(self, earlier: Evaluation, later: Evaluation, record: RagRecord) -> Evaluation:
        """Merge the results of two attempts at the same record into one evaluation."""
        outcomes = {
            (outcome.metric, outcome.profile): outcome for outcome in (*earlier.outcomes, *later.outcomes)
        }
        joined = replace(
            later,
            outcomes=tuple(outcomes[metric.name, metric.profile] for metric in self.metrics),
            evaluator_set=self.set,
            evaluator_version=self.version,
            run_id=earlier.run_id,
            started_at_ns=earlier.started_at_ns,
            duration_ms=earlier.duration_ms + later.duration_ms,
            usage=earlier.usage + later.usage,
            compromised=earlier.compromised or later.compromised,
        )
        return replace(joined, blame=blame_of(record, joined))


_CALIBRATED: Final = ("faithfulness", OWN_PROFILE)
"""The metric whose threshold a calibration measures."""

JudgeAround: TypeAlias = Callable[[Judge], Judge]
EmbedderAround: TypeAlias = Callable[[Embedder], Embedder]


class JudgeRole(StrEnum):
    """Who a model is for an evaluator."""

    JUDGE = "judge"
    SECOND = "second"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric, when it passes, and what else it takes."""

    name: str
    profile: str = OWN_PROFILE
    threshold: float | None = None
    pass_when: str | None = None
    uses_tool_prompts: bool = False
    """Ask as the tool of the profile asks, instead of scoring ragtrace's verdicts by its rules."""
    prompts: Mapping[str, Any] = field(default_factory=dict)
    """Paths or texts, by the names of the prompts that they replace."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, calibration: Calibration | None = None) -> Metric:
        """Make the metric. Faithfulness without a rule of its own passes at a calibration's threshold.

        Raises:
            ConfigError: there is no such metric or profile, or it does not take an option.
        """
        if self.uses_tool_prompts:
            return tool_metric_named(
                self.name, profile=self.profile, options=self.options, threshold=self.threshold
            )
        options = dict(self.options)
        if self.prompts:
            options["prompts"] = dict(self.prompts)
        return metric_named(
            self.name,
            profile=self.profile,
            threshold=self._threshold(calibration),
            pass_when=self.pass_when,
            **options,
        )

    def _threshold(self, calibration: Calibration | None) -> float | None:
        has_rule = self.threshold is not None or self.pass_when is not None
        if calibration is None or has_rule or (self.name, self.profile) != _CALIBRATED:
            return self.threshold
        return calibration.answer_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySpec:
    """How a judge is asked for verdicts on claims."""

    form: str = "auto"
    """``json``, ``logprobs``, or ``auto``: what the calibration recommends, else ``json``."""
    second_look: bool = False
    """Ask again about claims that are not supported."""
    canary_rate: float = 1.0
    """The share of the records whose requests contain canary claims."""
    claims_per_call: int = 20

    def limits(self, judge: JudgeIdentity, calibration: Calibration | None) -> StepLimits:
        """Return the limits of the steps.

        Raises:
            ConfigError: another judge was calibrated.
        """
        measured = calibration.settings(judge) if calibration else StepLimits().verify
        verify = replace(
            measured,
            form=VerifyForm(self.form),
            second_look=self.second_look,
            sentinel_rate=self.canary_rate,
        )
        return StepLimits(claims_per_call=self.claims_per_call, verify=verify)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSpec:
    """The settings of an evaluator."""

    metrics: tuple[MetricSpec, ...] = (MetricSpec(name="faithfulness"),)
    judge: JudgeSpec = field(default_factory=JudgeSpec.of_environment)
    second: JudgeSpec | None = None
    """Asked if the first judge fails a canary claim."""
    embedder: JudgeSpec | None = None
    verify: VerifySpec = field(default_factory=VerifySpec)
    calibration: Path | None = None
    """What `ragtrace calibrate --save` wrote about the judge."""
    cards: tuple[Path, ...] = ()
    """What `ragtrace calibrate --card` wrote about the judges."""
    require_card: bool = False
    """Open only with judges that were measured, and found better than one lexical feature."""
    prices: Path | None = None
    """Prices that override the built-in ones."""

    def open(
        self,
        *,
        around: Callable[[JudgeRole, JudgeSpec], JudgeAround | None] | None = None,
        around_embedder: EmbedderAround | None = None,
        prices: Prices | None = None,
    ) -> Evaluator:
        """Open the evaluator. No model is asked yet; close it with `Evaluator.aclose`.

        Args:
            around: Returns one more layer for a judge, which sees every attempt to ask it.
            around_embedder: The same for the embedder.
            prices: Prices, if they were read before.

        Raises:
            ConfigError: a metric, judge, embedder, calibration or price table cannot be used.
        """
        layer = around or _no_layer
        calibration = self._calibration()
        metrics = self.open_metrics(calibration)
        cards = tuple(map(read_card, self.cards))
        judge = by_card(self.judge.open(layer(JudgeRole.JUDGE, self.judge)), cards)
        second = self.second.open(layer(JudgeRole.SECOND, self.second)) if self.second else None
        if self.require_card:
            for each in filter(None, (judge, second)):
                check_card(each.identity, cards)
        return Evaluator(
            metrics=metrics,
            judge=judge,
            second_judge=by_card(second, cards) if second else None,
            embedder=self.embedder.open_embedder(around_embedder) if self.embedder else None,
            limits=self.verify.limits(judge.identity, calibration),
            prices=load_prices(self.prices) if prices is None else prices,
            cards=cards,
        )

    def limits(self, judge: JudgeIdentity) -> StepLimits:
        """Return the limits of the steps, and how this judge is asked for verdicts.

        Raises:
            ConfigError: the calibration cannot be read, or is of another judge.
        """
        return self.verify.limits(judge, self._calibration())

    def open_metrics(self, calibration: Calibration | None = None) -> tuple[Metric, ...]:
        """Make the metrics.

        Raises:
            ConfigError: there is no such metric, two have one name, or one lacks the embedder.
        """
        metrics = tuple(metric.open(calibration) for metric in self.metrics)
        names = Counter((metric.name, metric.profile) for metric in metrics)
        for (name, profile), number in names.items():
            if number > 1:
                raise ConfigError(
                    f"{name!r} ({profile}) is named twice: both would write the same attributes"
                )
        lacking = next((metric.name for metric in metrics if "questions" in (metric.uses or ())), None)
        if self.embedder is None and lacking is not None:
            raise ConfigError(
                f"the metric {lacking!r} compares embeddings: set `judge.embedder` (--set) to"
                " openai:MODEL or wordllama"
            )
        return metrics

    def _calibration(self) -> Calibration | None:
        return read_calibration(self.calibration) if self.calibration else None


def _no_layer(role: JudgeRole, spec: JudgeSpec) -> None:
    """Add nothing to a judge."""
