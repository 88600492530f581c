"""The middle of ragtrace: a record becomes an evaluation, and an evaluation a carrier.

Live traffic, back-fill, rejudging and `ragtrace evaluate` all go through it. Metrics run concurrently, and
failures are values. The collector's configuration, the options of the commands and Python programs all make
an `EvaluatorSpec`, so the same settings give the same evaluator version, and the same ids of carriers,
everywhere.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from ragtrace import semconv
from ragtrace.budget.prices import Prices, load_prices
from ragtrace.errors import ConfigError, JudgeError, RagtraceError
from ragtrace.judge import open_embedder, open_judge
from ragtrace.judge.layers import folding_contradicted
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.judge.spec import JudgeSpec
from ragtrace.metrics import Prompts, StepLimits, metric_named
from ragtrace.metrics.answers import Criterion
from ragtrace.metrics.asking import together
from ragtrace.metrics.faithfulness import Faithfulness
from ragtrace.metrics.judge_card import (
    Calibration,
    JudgeCard,
    card_of,
    card_state,
    check_card,
    read_calibration,
    read_card,
)
from ragtrace.metrics.registry import OWN_PROFILE, problem_in, tool_metric_named, valid_metric
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import VerifyForm
from ragtrace.model import (
    Direction,
    Evaluation,
    Gap,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    Sample,
    SkipReason,
    content_sha256,
    evaluator_set_of,
    version_of_set,
)
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace.process import SystemClock
from ragtrace.scoring.blame import blame_of
from ragtrace.traces.attach import AttachOptions, Mode, carrier, deserves_carrier
from ragtrace.traces.trace import Span

__all__ = ["Evaluator", "EvaluatorSpec", "MetricSpec", "VerifySpec"]

ModelT = TypeVar("ModelT", Judge, Embedder)

_log = logging.getLogger(__name__)


async def evaluate(
    record: object,
    *,
    metrics: Sequence[Metric | str] = ("faithfulness",),
    judge: Judge | str = "lexical",
    run_id: str | None = None,
    clock: Clock | None = None,
    prompts: Prompts | None = None,
    limits: StepLimits | None = None,
    embedder: Embedder | str | None = None,
    second_judge: Judge | str | None = None,
    cards: Sequence[JudgeCard] = (),
) -> Evaluation:
    """Run each metric on the record; judges and embedders given by name are opened and closed here.

    The record may be whatever `RagRecord.of` makes one of, such as another tool's sample.

    Every error while measuring becomes a ``MetricFailure``, never a score. If the judge fails a canary claim,
    the second judge repeats the whole step, and the results name it. ``cards`` say what was measured of
    judges, beside the package's own cards: one whose *contradicted* is mostly wrong by its card has it folded
    into *unsupported*.

    Raises:
        ConfigError: no metric, judge or embedder has that name, it lacks a setting, or the judge cannot
            answer a criterion.
        TypeError: it has none of the parts of a record, or one that cannot be read.
    """
    record = RagRecord.of(record)
    chosen = [
        metric_named(metric) if isinstance(metric, str) else valid_metric(metric, named=type(metric).__name__)
        for metric in metrics
    ]
    async with AsyncExitStack() as opened:
        evaluator = Evaluator(
            metrics=chosen,
            judge=await _opened(judge, open_judge, opened),
            second_judge=await _opened(second_judge, open_judge, opened) if second_judge else None,
            embedder=await _opened(embedder, open_embedder, opened) if embedder else None,
            limits=limits or StepLimits(),
            prompts=prompts,
            cards=tuple(cards),
        )
        return await evaluator.evaluate(record, clock=clock, run_id=run_id)


def evaluator_set(metrics: Sequence[Metric]) -> str:
    """Return the names of the metrics and profiles, sorted: ``faithfulness/ragtrace``."""
    return evaluator_set_of((metric.name, metric.profile) for metric in metrics)


def by_card(judge: Judge, cards: Sequence[JudgeCard]) -> Judge:
    """Return the judge as far as its card says that it can be believed."""
    card = card_of(judge.identity, cards)
    return judge if card is None or card.contradicts_reliably else folding_contradicted(judge)


async def _opened(model: ModelT | str, open_model: Callable[[str], ModelT], opened: AsyncExitStack) -> ModelT:
    if isinstance(model, str):
        return await opened.enter_async_context(aclosing(open_model(model)))
    return model


async def _measure_all(
    metrics: Sequence[Metric], record: RagRecord, steps: StepSession, clock: Clock
) -> tuple[MetricOutcome, ...]:
    if gap := no_rag_call(metrics, record):
        return tuple(_skipped(metric, steps, gap) for metric in metrics)
    start_ns = clock.now_ns()
    return tuple(
        await together(_timed(metric, record, steps.for_one_metric(), clock, start_ns) for metric in metrics)
    )


def no_rag_call(metrics: Sequence[Metric], record: RagRecord) -> Gap | None:
    """Return why these metrics do not apply to a record from a trace, or ``None`` if they do.

    Agents and chats answer without a retrieval in the same traces. If one metric needs the context, the set
    is about RAG calls, and the other metrics must not spend calls on plain chats.
    """
    gap = record.gap(Part.CONTEXT)
    if record.target is None or gap is None or gap.reason is not SkipReason.NO_RETRIEVAL:
        return None
    return gap if any(Part.CONTEXT in metric.needs for metric in metrics) else None


def _skipped(metric: Metric, steps: StepSession, gap: Gap) -> MetricResult:
    return MetricResult(
        metric=metric.name,
        profile=metric.profile,
        score=None,
        threshold=metric.threshold,
        direction=metric.direction,
        evaluator_version=steps.version_of(metric),
        skip_reason=gap.reason,
        explanation=gap.detail,
    )


async def _timed(
    metric: Metric, record: RagRecord, steps: StepSession, clock: Clock, start_ns: int
) -> MetricOutcome:
    """Measure, and take the time since all metrics started: a step that two metrics share is within both."""
    outcome = _with_threshold(await _measure(metric, record, steps))
    return replace(outcome, duration_ms=_ms_since(start_ns, clock), steps=steps.runs)


def _with_threshold(outcome: MetricOutcome) -> MetricOutcome:
    if not isinstance(outcome, MetricResult) or outcome.score is None or outcome.threshold is None:
        return outcome
    compared = f"score {round(outcome.score, 4):g}, threshold {outcome.threshold:g}"
    if outcome.direction is Direction.LOWER_IS_BETTER:
        compared += " at most"
    return replace(outcome, explanation="; ".join(filter(None, (outcome.explanation, compared))))


def _ms_since(started_ns: int, clock: Clock) -> int:
    return max(0, clock.now_ns() - started_ns) // 1_000_000


async def _measure(metric: Metric, record: RagRecord, steps: StepSession) -> MetricOutcome:
    try:
        result = await metric.measure(record, steps)
    except JudgeError as exc:
        return _failure(metric, steps, exc.error_type, str(exc), retryable=exc.retryable)
    except Exception as exc:  # noqa: BLE001 one metric's failure must not stop the others
        return _failure(metric, steps, type(exc).__name__, _whereabouts(metric, exc))
    fault = problem_in(result, metric)
    if fault:
        return _failure(metric, steps, "metric_invalid", fault)
    if isinstance(result, MetricResult) and result.judge != steps.substitute:
        return replace(result, judge=steps.substitute)
    return result


def _whereabouts(metric: Metric, exc: Exception) -> str:
    # an unexpected exception's message may hold text under judgment: report only its type and place
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    message = f"{type(exc).__name__} in {frame.name} (line {frame.lineno})"
    _log.error("metric %s failed: %s", metric.name, message)
    return message


def _failure(
    metric: Metric, steps: StepSession, error_type: str, message: str, *, retryable: bool = False
) -> MetricFailure:
    return MetricFailure(
        metric=metric.name,
        profile=metric.profile,
        error_type=error_type,
        message=message,
        evaluator_version=steps.version_of(metric),
        retryable=retryable,
        usage=steps.spent_here,
    )


def _judged(outcomes: Sequence[MetricOutcome]) -> bool:
    return any(isinstance(outcome, MetricResult) and outcome.counts.total for outcome in outcomes)


def _is_truncated(record: RagRecord) -> bool:
    noted = any(gap.reason is SkipReason.TRUNCATED for gap in record.gaps)
    return noted or any(chunk.truncated for chunk in record.chunks)


_COMPARING: Final = ("lexical", "nli")
"""Providers of judges that look claims up, and answer no question about an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Evaluates records. What it is made of decides its version, and so the ids of its carriers.

    Stateless: one evaluator serves concurrent records.

    Raises:
        ConfigError: the judge cannot answer a criterion.
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
    asked_with: Sequence[Metric] | None = None
    """The metrics whose requests are shared, if they are not these: to repeat what others asked."""

    def __post_init__(self) -> None:
        provider = self.judge.identity.provider
        if provider in _COMPARING and any(isinstance(metric, Criterion) for metric in self.metrics):
            raise ConfigError(
                f"the judge `{provider}` compares texts and cannot answer a criterion: name a language model,"
                " --judge openai:MODEL or `judge.use`, or leave the criterion out"
            )

    @property
    def set(self) -> str:
        """The names of the metrics and profiles: ``faithfulness/ragtrace``."""
        return evaluator_set(self.metrics)

    @property
    def version(self) -> str:
        """The version before any record is judged.

        It changes with metrics, thresholds, prompts, models and limits, and is stable otherwise: a new
        evaluation of a target can be told from a repeated one.
        """
        nothing = RagRecord(id="", question=None, chunks=(), answer=None)
        steps = self._steps(nothing, self.metrics, None)
        return version_of_set([steps.version_of(metric) for metric in self.metrics])

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
        self,
        record: RagRecord,
        *,
        clock: Clock | None = None,
        run_id: str | None = None,
        earlier: Evaluation | None = None,
    ) -> Evaluation:
        """Evaluate the record; results of an earlier attempt at the same record are not judged again."""
        if earlier is not None and not self._may_continue(earlier, record):
            earlier = None
        found = {(result.metric, result.profile) for result in earlier.results} if earlier else set()
        metrics = [metric for metric in self.metrics if (metric.name, metric.profile) not in found]
        clock = clock or SystemClock()
        started_at_ns = clock.now_ns()
        steps = self._steps(record, metrics if self.asked_with is None else self.asked_with, clock)
        outcomes = await _measure_all(metrics, record, steps, clock)
        evaluation = Evaluation(
            record_id=record.id,
            outcomes=outcomes,
            judge=steps.judge,
            evaluator_set=evaluator_set(metrics),
            evaluator_version=version_of_set([outcome.evaluator_version for outcome in outcomes]),
            run_id=run_id or uuid4().hex,
            started_at_ns=started_at_ns,
            duration_ms=_ms_since(started_at_ns, clock),
            input_sha256=steps.input_sha256,
            input_truncated=_judged(outcomes) and (steps.cut or _is_truncated(record)),
            usage=steps.usage,
            compromised=steps.compromised,
            judge_card="" if steps.judge.is_human else card_state(steps.judge, self.cards).value,
        )
        if earlier:
            evaluation = self._joined(earlier, evaluation)
        return replace(evaluation, blame=blame_of(record, evaluation))

    def _steps(self, record: RagRecord, sharing: Sequence[Metric], clock: Clock | None) -> StepSession:
        """Begin a session in which these metrics share requests."""
        return StepSession(
            record,
            by_card(self.judge, self.cards),
            prompts=self.prompts,
            limits=self.limits,
            embedder=self.embedder,
            second_judge=by_card(self.second_judge, self.cards) if self.second_judge else None,
            wanted={step for metric in sharing for step in metric.uses or ()},
            criteria=[metric.criterion for metric in sharing if isinstance(metric, Criterion)],
            clock=clock,
        )

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

    def _joined(self, earlier: Evaluation, later: Evaluation) -> Evaluation:
        """Merge the results of two attempts at the same record into one evaluation."""
        outcomes = {
            (outcome.metric, outcome.profile): outcome for outcome in (*earlier.outcomes, *later.outcomes)
        }
        return replace(
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


_SCREEN: Final = Evaluator(metrics=(Faithfulness(),), judge=LexicalJudge())


async def suspicion_of(record: RagRecord) -> float | None:
    """Return how likely an unsupported claim is in the answer, from 0 to 1: it ranks answers.

    It is what ``lexical`` writes as ``ragtrace.suspicion``. ``None`` if there is nothing to judge: no answer,
    no context, no claim.
    """
    return (await _SCREEN.evaluate(record)).suspicion


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
            measured, form=VerifyForm(self.form), second_look=self.second_look, sentinel_rate=self.canary_rate
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
            ConfigError: a metric, judge, embedder, calibration or price table cannot be used, or the judge
                cannot answer a criterion.
        """
        layer = around or (lambda role, spec: None)
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


def attach(
    evaluation: Evaluation,
    record: RagRecord,
    *,
    sample: Sample,
    options: AttachOptions,
    now_ns: int,
    mode: Mode = "append",
    replaces: str | None = None,
    earlier: Iterable[Span] = (),
    is_revision: bool = False,
    cost_usd: float | None = None,
) -> Span | None:
    """Return the carrier of an evaluation, or ``None`` if it gets none.

    An answer without a retrieval gets none, unless the application marks it as that of a RAG call, or in
    place of another carrier: without a new one, an earlier verdict would stay valid.

    Args:
        evaluation: The verdicts.
        record: What was judged.
        sample: How the record was chosen.
        options: The content and the time of the carrier.
        now_ns: Unix time in nanoseconds.
        mode: Who attaches it.
        replaces: Span id of the carrier that this one supersedes, if the work store knows it.
        earlier: Carriers of the same answer by other evaluators; the last one with the same metrics is
            superseded.
        is_revision: The superseded carrier has the same target and evaluator, but another record.
        cost_usd: What the judge's tokens cost in US dollars, if that is known.

    Raises:
        InputError: the record does not come from a trace.
    """
    if not (deserves_carrier(evaluation) or record.is_marked or replaces):
        return None

    def make(supersedes: str | None) -> Span:
        return carrier(
            evaluation,
            record,
            sample=sample,
            mode=mode,
            options=options,
            now_ns=now_ns,
            supersedes=supersedes,
            is_revision=is_revision,
            cost_usd=cost_usd,
        )

    span = make(replaces)
    superseded = None if replaces else superseded_by(span, earlier)
    return make(superseded) if superseded else span


def superseded_by(span: Span, earlier: Iterable[Span]) -> str | None:
    """Return the id of the carrier that this one supersedes: the last one with the same metrics."""
    rivals = [rival for rival in earlier if metrics_on(rival) == metrics_on(span)]
    replaced = {rival.attributes.get(semconv.EVAL_SUPERSEDES) for rival in rivals}
    latest = [rival for rival in rivals if rival.span_id not in replaced]
    last = max(latest, key=lambda rival: str(rival.attributes.get(semconv.EVAL_STARTED_AT)), default=None)
    return last.span_id if last else None


def metrics_on(span: Span) -> frozenset[str]:
    """Return the attribute keys of the labels that a carrier has, one for each metric and profile."""
    return frozenset(key for key in span.attributes if key.startswith(semconv.LABEL_PREFIX))


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_WINDOW: Final = 4
"""Items held per concurrent slot, so that one slow item does not idle the other slots at once."""


async def map_in_order(
    items: AsyncIterable[ItemT],
    work: Callable[[ItemT], Awaitable[ResultT]],
    emit: Callable[[ResultT], Awaitable[None]],
    *,
    concurrency: int,
) -> None:
    """Work on up to ``concurrency`` items at once and emit the results in the order of the items.

    It reads items only when there is room, so an endless source needs bounded memory.

    Raises:
        RagtraceError: the source failed; all earlier items were processed and emitted.
        Exception: the first failure of ``work`` or ``emit``, unwrapped; the rest was cancelled.
    """
    window: asyncio.Queue[asyncio.Task[ResultT] | None] = asyncio.Queue(_WINDOW * concurrency)
    gate = asyncio.Semaphore(concurrency)

    async def one(item: ItemT) -> ResultT:
        async with gate:
            return await work(item)

    async def feed() -> RagtraceError | None:
        failure = None
        try:
            async for item in items:
                await window.put(tasks.create_task(one(item)))
        except RagtraceError as exc:
            failure = exc
        await window.put(None)
        return failure

    try:
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(feed())
            while (task := await window.get()) is not None:
                await emit(await task)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    if failure := feeding.result():
        raise failure
