"""An opened evaluator: metrics with the models that they ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from ragtrace.budget.prices import Prices, load_prices
from ragtrace.metrics import Prompts, StepLimits
from ragtrace.metrics.judge_card import JudgeCard
from ragtrace.model import Evaluation, JudgeIdentity, RagRecord, content_sha256
from ragtrace.pipeline.evaluation import evaluate, evaluator_set, evaluator_version
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
