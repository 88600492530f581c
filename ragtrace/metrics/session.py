"""Runs the judge steps once for a record, and shares their results among metrics."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from ragtrace.errors import JudgeCompromised, JudgeError, JudgeUnable
from ragtrace.judge_steps import (
    LATER,
    ClaimExtraction,
    Grading,
    Prompt,
    PromptName,
    Regeneration,
    Statement,
    Verification,
    VerifyForm,
)
from ragtrace.metrics._evidence import NumberedContext
from ragtrace.metrics.asking import Material, MeteredJudge, Step
from ragtrace.metrics.fence import fence_code
from ragtrace.metrics.settings import Prompts, StepLimits
from ragtrace.metrics.steps import (
    CHUNKS,
    CRITERIA,
    EXTRACT,
    QUESTIONS,
    RELEVANCE,
    STEPS,
    check_criteria,
    grade_and_recall,
    grade_chunks,
    prompts_of,
)
from ragtrace.metrics.verify import RECALL, VERIFY, reference_claims, verify_claims
from ragtrace.model import (
    Chunk,
    Claim,
    JudgeIdentity,
    RagRecord,
    StepRun,
    Usage,
    Verdict,
    content_sha256,
)
from ragtrace.ports import Clock, Embedder, Judge, Metric
from ragtrace.process import SystemClock
from ragtrace.sentences import split_sentences

T = TypeVar("T")
ResultT = TypeVar("ResultT")


class StepSession:
    """The judge steps for one record. Metrics that use the same step share its calls.

    Concurrent metrics get the same value from one run of a step, or the same ``JudgeError``, which a step
    raises if the judge gave no usable answer.
    """

    def __init__(
        self,
        record: RagRecord,
        judge: Judge,
        *,
        prompts: Prompts | None = None,
        limits: StepLimits | None = None,
        embedder: Embedder | None = None,
        second_judge: Judge | None = None,
        wanted: Collection[str] = (),
        criteria: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.prompts = prompts or Prompts.built_in()
        self.limits = limits or StepLimits()
        self.judge: JudgeIdentity = judge.identity
        self.second_judge: JudgeIdentity | None = second_judge.identity if second_judge else None
        """The judge that repeats a whole step if the first judge failed a canary claim."""
        self.embedder = embedder
        self.wanted = frozenset(wanted)
        """Steps that the metrics will use: two that show the same chunks can share a call."""
        self.criteria = tuple(dict.fromkeys(criteria))
        """Criteria that the metrics will ask about: they share a call."""
        self.input_sha256 = content_sha256(record)
        """Digest of everything that the judge sees."""
        self._record = record
        self._sentences = split_sentences(record.answer or "")
        self._reference = split_sentences(record.reference or "")
        self._context = NumberedContext(
            record.chunks, pack_chars=self.limits.context_chars, max_packs=self.limits.max_packs
        )
        self._judges = (judge, second_judge) if second_judge else (judge,)
        self._clock = clock or SystemClock()
        self._shared: dict[str, _Once[Any]] = {}
        self.asked: set[str] = set()
        """Keys of the shared steps that this view used."""

    @property
    def usage(self) -> Usage:
        """The judge's usage so far, over all metrics."""
        return sum((step.spent for step in self._shared.values()), Usage())

    async def shared(self, key: str, run: Callable[[MeteredJudge], Awaitable[T]]) -> T:
        """Run a step once per record: all callers with the same key get the same value or error."""
        self.asked.add(key)
        once: _Once[T] = self._shared.setdefault(key, _Once(self._judges, run, self._clock))
        return await once.get()

    def for_one_metric(self) -> StepSession:
        """Return a view of the same steps that tracks the judges of the steps it uses."""
        view = copy.copy(self)
        view.asked = set()
        return view

    @property
    def substitute(self) -> JudgeIdentity | None:
        """The second judge, if it answered a step of this view."""
        return self.second_judge if self.asked & self._on_second else None

    @property
    def compromised(self) -> bool:
        """Whether the judge failed a canary claim in any step."""
        return any(step.compromised for step in self._shared.values())

    @property
    def _on_second(self) -> set[str]:
        return {key for key, step in self._shared.items() if step.compromised}

    @property
    def runs(self) -> tuple[StepRun, ...]:
        """The steps that this view used, in the order of the table; those of other tools come as asked."""
        used = (step for key, step in self._shared.items() if key in self.asked)
        return tuple(
            sorted(
                (run for step in used for run in step.runs),
                key=lambda run: _PLACES.get(run.step, len(_PLACES)),
            )
        )

    def spent_on(self, *keys: str) -> Usage:
        """Return the judge's usage in these steps."""
        return sum((step.spent for key, step in self._shared.items() if key in keys), Usage())

    @property
    def cut(self) -> bool:
        """Whether the limits exclude a part of the record."""
        longest = max(len(self._sentences), len(self._reference))
        return self._context.cut or longest > self.limits.max_sentences

    async def extract(self) -> ClaimExtraction:
        """Return the statements of the answer, and the claims among them."""
        return await self._result(EXTRACT)

    async def take_claims(self, claims: Sequence[Claim]) -> None:
        """Set the claims of the answer instead of asking the judge. Call it before `extract`."""
        statements = (Statement(claim=c, sentences=()) for c in claims)
        given = ClaimExtraction(
            claims=tuple(claims),
            statements=tuple(statements),
            refusal=False,
            sentence_coverage=None,
            rejected=0,
        )

        async def hand_over(judge: Judge) -> ClaimExtraction:
            return given

        await self.shared(self._key(EXTRACT), hand_over)

    async def relevance(self) -> tuple[Verdict, ...]:
        """Return the relevance of each statement of the answer to the question."""
        return await self._result(RELEVANCE)

    async def verify(self) -> Verification:
        """Return a verdict on each claim of the answer."""
        return await self._result(VERIFY)

    async def verify_in(self, claims: Sequence[Claim], texts: Sequence[Chunk]) -> Verification:
        """Return a verdict on each claim from these texts alone, which may be others than the chunks."""
        told = [[claim.text for claim in claims], [[text.id, text.text] for text in texts]]
        key = f"{self._key(VERIFY)} in {hashlib.sha256(json.dumps(told).encode()).hexdigest()}"
        limits = self.limits
        context = NumberedContext(texts, pack_chars=limits.context_chars, max_packs=limits.max_packs)

        async def verify(judge: Judge) -> Verification:
            material = replace(self._material(judge), context=context)
            return await verify_claims(VERIFY, claims, material, second_look=material.verify.second_look)

        return await self.shared(key, verify)

    async def verify_by_reference(self) -> tuple[Verdict, ...]:
        """Return a verdict on each claim of the answer from the reference alone."""
        claims = (await self.extract()).claims
        return (await self.verify_in(claims, [_as_chunk("reference", self._record.reference)])).verdicts

    async def recall_by_answer(self) -> tuple[Verdict, ...]:
        """Return a verdict on each sentence of the reference from the answer alone."""
        sentences = reference_claims(self._reference[: self.limits.max_sentences])
        return (await self.verify_in(sentences, [_as_chunk("answer", self._record.answer)])).verdicts

    async def chunks(self) -> Grading:
        """Return a grade on each chunk: its relevance to the question."""
        if self._is_bundled:
            return (await self._retrieval())[0]
        return await self._result(CHUNKS)

    async def chunks_by_answer(self) -> Grading:
        """Return a grade on each chunk: how much it holds of what the answer, not a reference, states."""
        record = replace(self._record, reference=self._record.answer)
        key = f"answer in {self._key(CHUNKS)}"
        return await self.shared(
            key, lambda judge: grade_chunks(replace(self._material(judge), record=record))
        )

    async def recall(self) -> Verification:
        """Return a verdict on each sentence of the reference."""
        if self._is_bundled:
            return (await self._retrieval())[1]
        return await self._result(RECALL)

    async def criterion(self, text: str) -> Verdict:
        """Return whether the answer meets a criterion. One that was not announced is asked about alone."""
        asked = self.criteria if text in self.criteria else (text,)
        key = f"{self._key(CRITERIA)} {asked}"
        return (await self.shared(key, lambda judge: check_criteria(self._material(judge), asked)))[text]

    async def questions(self) -> Regeneration:
        """Return questions that the answer would answer."""
        return await self._result(QUESTIONS)

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Return a vector for each text, and count the usage.

        Raises:
            JudgeUnable: there is no embedder.
            JudgeError: the embedder gave no usable answer.
        """
        embedder = self.checked_embedder()
        digest = hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()
        return await self.shared(f"embed {digest}", lambda judge: judge.embed(embedder, texts))

    def checked_embedder(self) -> Embedder:
        """Return the embedder.

        Raises:
            JudgeUnable: there is none.
        """
        if self.embedder is None:
            what = (
                "this metric compares embeddings: give an embedder, such as `wordllama` of the extra `local`"
            )
            raise JudgeUnable(what, usage=Usage())
        return self.embedder

    def using(self, prompts: Mapping[PromptName, Prompt]) -> StepSession:
        """Return the same steps with other prompts. A step whose prompts stay the same is still shared."""
        view = copy.copy(self)
        view.prompts = self.prompts.replaced(prompts)
        return view

    @property
    def spent_here(self) -> Usage:
        """The judge's usage in the steps of this view."""
        return self.spent_on(*self.asked)

    def version_of(self, metric: Metric) -> str:
        """Return the evaluator version: it changes with metric, threshold, prompts, judge and limits."""
        judges = tuple(judge.identity.named for judge in self._judges)
        bundled = self._may_bundle and not _BUNDLED.isdisjoint(self._steps_of(metric))
        further = (*self._embedder_of(metric), *(("retrieval",) if bundled else ()))
        passes = metric.threshold if metric.pass_when is None else metric.pass_when
        about = [metric.name, metric.profile, metric.version, passes, metric.direction]
        identity = [about, judges, self.prompt_sha256_of(metric), repr(self.limits), *further]
        return f"{metric.version}+{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]}"

    def prompt_sha256_of(self, metric: Metric) -> str:
        """Return the digest of a metric's prompts; of all prompts if it does not declare them."""
        prompts = self.prompts.replaced(metric.prompts)
        return prompts.sha256_of(prompts_of(*self._steps_of(metric)))

    def _steps_of(self, metric: Metric) -> tuple[str, ...]:
        return _UNDECLARED if metric.uses is None else metric.uses

    def _embedder_of(self, metric: Metric) -> Iterator[tuple[str, str]]:
        if self.embedder and "questions" in (metric.uses or ()):
            yield self.embedder.identity.provider, self.embedder.identity.model

    async def _result(self, step: Step[Any, Any, ResultT]) -> ResultT:
        self.asked.update(self._key(STEPS[name]) for name in step.after)
        return await self.shared(self._key(step), lambda judge: step.run(self._material(judge)))

    async def _retrieval(self) -> tuple[Grading, Verification]:
        key = self._key(CHUNKS, RECALL)
        return await self.shared(key, lambda judge: grade_and_recall(self._material(judge)))

    def _key(self, *steps: Step[Any, Any, Any]) -> str:
        names = [step.name for step in steps]
        given = [name for step in steps for name in step.after]
        return f"{'+'.join(names)} {self.prompts.sha256_of(prompts_of(*given, *names))}"

    def _material(self, judge: Judge) -> Material:
        # the calibration of the judge does not apply to the second
        settings, limits = self.limits.verify, self.limits
        return Material(
            record=self._record,
            sentences=self._sentences[: limits.max_sentences],
            reference=self._reference[: limits.max_sentences],
            context=self._context,
            limits=limits,
            verify=settings if judge.identity == self.judge else settings.uncalibrated,
            prompts=self.prompts,
            fence_code=fence_code(self.input_sha256),
            judge=judge,
            extraction=self.extract,
        )

    @property
    def _is_bundled(self) -> bool:
        """Whether steps C and D fit into one call."""
        limits = self.limits
        return (
            self._may_bundle
            and len(self._context.packs) == 1
            and len(self._context.packs[0]) <= limits.chunks_per_call
            and 0 < len(self._reference) <= limits.claims_per_call
            and bool((self._record.question or "").strip())
        )

    @property
    def _may_bundle(self) -> bool:
        """Whether both are needed, from a language model, with built-in prompts."""
        return (
            self.limits.retrieval == "merged"
            and self.wanted >= _BUNDLED
            and not self.judge.computes
            and self.limits.verify.first_form is VerifyForm.JSON
            and self.prompts.is_built_in("chunks", "recall")
        )


def _as_chunk(name: str, text: str | None) -> Chunk:
    return Chunk(id=name, text=text)


_PLACES: Mapping[str, int] = {name: place for place, name in enumerate(STEPS)}
_UNDECLARED = tuple(name for name in STEPS if name not in LATER)
"""The steps of a metric that does not declare any: those that there were before it had to."""
_BUNDLED: frozenset[str] = frozenset({"chunks", "recall"})


class _Once(Generic[T]):
    """Runs a step for the first caller; all callers get its value or error."""

    def __init__(
        self, judges: Sequence[Judge], run: Callable[[MeteredJudge], Awaitable[T]], clock: Clock
    ) -> None:
        self._judges = [MeteredJudge(judge, clock) for judge in judges]
        self._run: Callable[[MeteredJudge], Awaitable[T]] | None = run
        self._lock = asyncio.Lock()  # two metrics that need the same step must not both ask the judge
        self._outcome: T | JudgeError | None = None
        self.compromised = False
        """Whether the first judge failed a canary claim; then the second, if any, repeated the step."""

    @property
    def runs(self) -> Iterator[StepRun]:
        return (run for judge in self._judges for run in judge.runs)

    @property
    def spent(self) -> Usage:
        return sum((judge.spent for judge in self._judges), Usage())

    async def get(self) -> T:
        async with self._lock:
            if self._run is not None:
                self._outcome = await self._attempt(self._run, *self._judges)
                self._run = None  # it holds the session, which holds this: a cycle outlives its record
        if isinstance(self._outcome, JudgeError):
            raise self._outcome
        return cast("T", self._outcome)

    async def _attempt(
        self, run: Callable[[MeteredJudge], Awaitable[T]], judge: MeteredJudge, *others: MeteredJudge
    ) -> T | JudgeError:
        try:
            return await run(judge)
        except JudgeCompromised as failed:
            self.compromised = True
            return await self._attempt(run, *others) if others else failed
        except JudgeError as failed:
            return failed
