"""Judges labeled claims as `evaluate` would, without the extraction step.

The verify step judges each claim without seeing its label, so every verdict has a human label to compare
with. Further runs change the order of chunks and claims, since a verdict must not depend on it. End to end,
the judge extracts the claims of whole answers itself.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel

from ragtrace.judge_forms import YesNoInput
from ragtrace.labeled_data import LabeledAnswer
from ragtrace.metrics import metric_named
from ragtrace.metrics.session import StepSession
from ragtrace.metrics.settings import StepLimits, VerifyForm, VerifySettings
from ragtrace.model import (
    Claim,
    JudgeIdentity,
    MetricFailure,
    MetricOutcome,
    RagRecord,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, Metric, YesProbability

ReplyT = TypeVar("ReplyT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCandidate:
    """A judge, its form of requests, and the number of runs."""

    judge: Judge
    form: VerifyForm
    runs: int = 1
    """Number of runs; the first one keeps the order of the data."""
    end_to_end: bool = False
    """Whether to judge whole answers too, with claims that the judge extracts."""
    is_floor: bool = False

    @property
    def name(self) -> str:
        """The judge and its form."""
        identity = self.judge.identity
        form = "" if identity.computes else f", {self.form}"
        return f"{identity.name}{form}"

    @property
    def limits(self) -> StepLimits:
        """The limits of the steps, without canary claims: here every claim has a known verdict."""
        return StepLimits(verify=VerifySettings(form=self.form, sentinel_rate=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRun:
    """The result of one run of a candidate on one answer."""

    verdicts: tuple[Verdict, ...] = ()
    """One verdict per labeled claim, in order; empty if the run failed."""
    support: tuple[float | None, ...] = ()
    """P(yes, the chunks support the claim) of each claim, if the form gives it."""
    failure: str | None = None
    """The type of the error, if it failed."""
    skipped: str | None = None
    """Why there was nothing to judge, if so."""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """The result of the whole metric on the answer."""

    score: float | None = None
    failure: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswer:
    """All measurements of one answer."""

    answer: LabeledAnswer
    position: int
    """Position in the sample."""
    runs: tuple[tuple[CandidateRun, ...], ...]
    """By candidate."""
    end_to_end: tuple[EndToEnd | None, ...] = ()
    """By candidate."""


async def measure_all(
    answers: Sequence[LabeledAnswer],
    candidates: Sequence[JudgeCandidate],
    *,
    concurrency: int,
    seed: int,
    done: Callable[[MeasuredAnswer], None],
) -> None:
    """Measure each answer with each candidate, and pass on each answer when it is complete.

    Answers are passed on only if complete, so that candidates are comparable even after an interrupted run.
    """
    waiting = iter(enumerate(answers))

    async def work() -> None:
        for position, answer in waiting:
            done(await _measure(answer, position, candidates, seed))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(answers))):
            group.create_task(work())


async def _measure(
    answer: LabeledAnswer, position: int, candidates: Sequence[JudgeCandidate], seed: int
) -> MeasuredAnswer:
    runs: list[tuple[CandidateRun, ...]] = []
    whole: list[EndToEnd | None] = []
    for candidate in candidates:
        runs.append(tuple([await _run(answer, candidate, n, seed) for n in range(candidate.runs)]))
        whole.append(await _whole(answer, candidate) if candidate.end_to_end else None)
    return MeasuredAnswer(answer=answer, position=position, runs=tuple(runs), end_to_end=tuple(whole))


def _order(answer: LabeledAnswer, number: int, seed: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the order of the chunks and claims of a run; the first run keeps that of the data."""
    chunks, claims = range(len(answer.record.chunks)), range(len(answer.claims))
    if number == 0:
        return chunks, claims
    drawn = random.Random(f"{seed}:{number}:{answer.record.id}")
    return drawn.sample(chunks, len(chunks)), drawn.sample(claims, len(claims))


async def _run(answer: LabeledAnswer, candidate: JudgeCandidate, number: int, seed: int) -> CandidateRun:
    of_chunks, of_claims = _order(answer, number, seed)
    chunks = tuple(answer.record.chunks[at] for at in of_chunks)
    claims = tuple(replace(answer.claims[at], index=place) for place, at in enumerate(of_claims))
    listening = _Listening(candidate.judge)
    started = time.perf_counter()
    record = replace(answer.record, chunks=chunks)
    if answer.of_criteria:
        outcome, usage = await _criteria_outcome(record, claims, candidate)
    else:
        outcome, usage = await _outcome(record, _GivenClaims(claims), listening, candidate.limits)
    seconds = time.perf_counter() - started
    if isinstance(outcome, MetricFailure):
        return CandidateRun(failure=outcome.error_type, usage=usage, seconds=seconds)
    if not outcome.verdicts:
        return CandidateRun(skipped=str(outcome.skip_reason), usage=usage, seconds=seconds)
    in_order = sorted(zip(of_claims, outcome.verdicts, strict=True), key=lambda pair: pair[0])
    return CandidateRun(
        verdicts=tuple(verdict for _, verdict in in_order),
        support=tuple(listening.support.get(claim.text) for claim in answer.claims),
        usage=usage,
        seconds=seconds,
    )


async def _criteria_outcome(
    record: RagRecord, criteria: Sequence[Claim], candidate: JudgeCandidate
) -> tuple[MetricOutcome, Usage]:
    """Return one outcome with the verdicts on all criteria, or the failure of the call that they share."""
    metrics = [metric_named(f"criterion_{claim.index}", criterion=claim.text) for claim in criteria]
    evaluation = await evaluate(record, metrics=metrics, judge=candidate.judge, limits=candidate.limits)
    if evaluation.failures:
        return evaluation.failures[0], evaluation.usage
    verdicts = tuple(verdict for result in evaluation.results for verdict in result.verdicts)
    return replace(evaluation.results[0], verdicts=verdicts), evaluation.usage


async def _whole(answer: LabeledAnswer, candidate: JudgeCandidate) -> EndToEnd:
    outcome, usage = await _outcome(
        answer.record, metric_named("faithfulness"), candidate.judge, candidate.limits
    )
    if isinstance(outcome, MetricFailure):
        return EndToEnd(failure=outcome.error_type, usage=usage)
    return EndToEnd(score=outcome.score, usage=usage)


async def _outcome(
    record: RagRecord, metric: Metric, judge: Judge, limits: StepLimits
) -> tuple[MetricOutcome, Usage]:
    evaluation = await evaluate(record, metrics=[metric], judge=judge, limits=limits)
    return evaluation.outcomes[0], evaluation.usage


class _Listening:
    """A judge that records P(yes) of support for each claim; a verdict keeps less."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.support: dict[str, float] = {}
        """By claim; the highest one, if there were several packs of chunks."""

    @property
    def identity(self) -> JudgeIdentity:
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        reply = await self._judge.ask(request)
        if isinstance(request.inputs, YesNoInput) and isinstance(reply.value, YesProbability):
            claim, question = request.inputs.claim, request.inputs.question
            if question == "support":
                self.support[claim] = max(reply.value.p_yes, self.support.get(claim, 0.0))
        return reply

    async def aclose(self) -> None:
        await self._judge.aclose()


class _GivenClaims:
    """Faithfulness of given claims, without the extraction step."""

    def __init__(self, claims: tuple[Claim, ...]) -> None:
        self._claims = claims
        self._metric = metric_named("faithfulness")
        self.name = self._metric.name
        self.profile = self._metric.profile
        self.version = self._metric.version
        self.threshold = self._metric.threshold
        self.direction = self._metric.direction
        self.pass_when = None
        self.needs = self._metric.needs
        self.uses = None
        self.prompts = self._metric.prompts

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricOutcome:
        await steps.take_claims(self._claims)
        return await self._metric.measure(record, steps)


def judged_supported(verdict: Verdict) -> bool | None:
    """Return the binary label of a verdict; ``None`` if the judge left it open."""
    if verdict.label is VerdictLabel.UNJUDGED:
        return None
    return verdict.label in (VerdictLabel.SUPPORTED, VerdictLabel.MET)


def draw(answers: Sequence[LabeledAnswer], limit: int | None, *, seed: int) -> list[LabeledAnswer]:
    """Return at most ``limit`` answers in a random order, half of them with an unsupported claim.

    If one half has too few, the other fills up. The order is random, so that an interrupted run is a sample
    too. If the two halves have different rates, results must be weighted: see
    [`results`][ragtrace.calibration.summary].
    """
    drawn = random.Random(seed)
    flawed = [answer for answer in answers if answer.has_unsupported]
    clean = [answer for answer in answers if not answer.has_unsupported]
    size = len(answers) if limit is None else min(limit, len(answers))
    of_flawed = max(min(len(flawed), (size + 1) // 2), size - len(clean)) if limit else len(flawed)
    chosen = drawn.sample(flawed, of_flawed) + drawn.sample(clean, size - of_flawed)
    return drawn.sample(chosen, size)
