"""The judge steps that metrics share; each one runs once per record.

Step A (*extract*) asks for the statements of the answer, step B (*verify*) for a verdict on each factual
claim among them, step R (*relevance*) for the relevance of each statement to the question, step C (*chunks*)
for a grade on each chunk, step D (*recall*) for a verdict on each sentence of the reference, step Q
(*questions*) for questions that the answer would answer. B and R need the result of A; the others start at
once. Code assigns the numbers that the judge refers to, and checks every reply:

- Claims that cite no shown sentence are rejected and counted. The step asks once more about sentences that no
  statement cites: small models list the first claim and stop.
- Verdict ids must be exactly the requested ids. Missing and repeated ids are requested once more, then stay
  unjudged. Unknown ids are rejected and counted. If the judge abstains from an id, it is not asked again.
- Chunk numbers that were not shown are dropped. A quote must be found in a chunk that the verdict cites; the
  chunk's own text replaces it. If it is not found, the verdict keeps its label without the quote.
- A truncated reply is requested again in halves.
- A context that is too long for one call is divided into packs: supported if any pack supports, contradicted
  if one contradicts and none supports, unsupported only if every pack says so.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from ragtrace.errors import JudgeCompromised, JudgeError, JudgeUnable
from ragtrace.judge_steps import (
    STEPS,
    ClaimExtraction,
    Grading,
    Prompt,
    PromptName,
    Regeneration,
    Statement,
    StepName,
    Verification,
    VerifyForm,
)
from ragtrace.metrics._context import NumberedContext
from ragtrace.metrics.fence import fence_code
from ragtrace.metrics.judge_calls import MeteredJudge, both
from ragtrace.metrics.prompt import Prompts, content_sha256
from ragtrace.metrics.steps.chunks import grade_chunks
from ragtrace.metrics.steps.extract import extract_claims
from ragtrace.metrics.steps.questions import regenerate_questions
from ragtrace.metrics.steps.relevance import grade_statements
from ragtrace.metrics.steps.retrieval import Bundle
from ragtrace.metrics.steps.verify import verify_claims
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import Claim, Direction, JudgeIdentity, RagRecord, Usage, Verdict
from ragtrace.ports import Embedder, Judge, Metric
from ragtrace.sentences import split_sentences

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """Limits of a call and of the judged part of a record."""

    sentences_per_call: int = 60
    claims_per_call: int = 20
    """Also limits the sentences of a reference."""
    chunks_per_call: int = 40
    statements_per_call: int = 60
    context_chars: int = 60_000
    """Characters of chunks in one call; longer contexts need several calls."""
    max_sentences: int = 300
    """Further sentences of an answer or a reference are not judged; the evaluation reports it."""
    max_packs: int = 8
    """Chunks in further packs are not shown; claims that need them are unjudged."""
    retrieval: Literal["merged", "separate"] = "merged"
    """Whether steps C and D share one call if both are needed."""
    verify: VerifySettings = field(default_factory=VerifySettings)
    """The form of verify requests, and their canary claims."""


class StepSession:
    """The judge steps for one record. Metrics that use the same step share its calls.

    Concurrent metrics get the same value, or the same ``JudgeError``, from one run of a step.
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
    ) -> None:
        self.prompts = prompts or Prompts.built_in()
        self.limits = limits or StepLimits()
        self.judge: JudgeIdentity = judge.identity
        self.second_judge: JudgeIdentity | None = second_judge.identity if second_judge else None
        """The judge that repeats a whole step if the first judge failed a canary claim."""
        self.embedder = embedder
        self.wanted = frozenset(wanted)
        """Steps that the metrics will use: two that show the same chunks can share a call."""
        self.input_sha256 = content_sha256(record)
        """Digest of everything that the judge sees."""
        self._record = record
        self._sentences = split_sentences(record.answer or "")
        self._reference = split_sentences(record.reference or "")
        self._context = NumberedContext(
            record.chunks, pack_chars=self.limits.context_chars, max_packs=self.limits.max_packs
        )
        self._judges = (judge, second_judge) if second_judge else (judge,)
        self._shared: dict[str, _Once[Any]] = {}
        self.asked: set[str] = set()
        """Keys of the shared steps that this view used."""

    @property
    def usage(self) -> Usage:
        """The judge's usage so far, over all metrics."""
        return sum((step.spent for step in self._shared.values()), Usage())

    async def shared(self, key: str, run: Callable[[MeteredJudge], Awaitable[T]]) -> T:
        """Run a step once per record: all callers with the same key get the same value or error.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        self.asked.add(key)
        once: _Once[T] = self._shared.setdefault(key, _Once(self._judges, run))
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

    def spent_on(self, *keys: str) -> Usage:
        """Return the judge's usage in these steps."""
        return sum((step.spent for key, step in self._shared.items() if key in keys), Usage())

    @property
    def cut(self) -> bool:
        """Whether the limits exclude a part of the record."""
        longest = max(len(self._sentences), len(self._reference))
        return self._context.cut or longest > self.limits.max_sentences

    async def extract(self) -> ClaimExtraction:
        """Return the statements of the answer, and the claims among them.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        return await self.shared(self._key("extract"), self._extract)

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

        await self.shared(self._key("extract"), hand_over)

    async def relevance(self) -> tuple[Verdict, ...]:
        """Return the relevance of each statement of the answer to the question.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        self.asked.add(self._key("extract"))
        return await self.shared(self._key("relevance"), self._relevance)

    async def verify(self) -> Verification:
        """Return a verdict on each claim of the answer.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        self.asked.add(self._key("extract"))
        return await self.shared(self._key("verify"), self._verify)

    async def chunks(self) -> Grading:
        """Return a grade on each chunk: its relevance to the question.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        if self._is_bundled:
            return (await self.shared(self._key("chunks", "recall"), self._retrieval))[0]
        return await self.shared(self._key("chunks"), self._chunks)

    async def recall(self) -> Verification:
        """Return a verdict on each sentence of the reference.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        if self._is_bundled:
            return (await self.shared(self._key("chunks", "recall"), self._retrieval))[1]
        return await self.shared(self._key("recall"), self._recall)

    async def questions(self) -> Regeneration:
        """Return questions that the answer would answer.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        return await self.shared(self._key("questions"), self._questions)

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
        about = (metric.name, metric.profile, metric.version, passes, metric.direction)
        digest = _digest(*about, judges, self.prompt_sha256_of(metric), self.limits, further)
        return f"{metric.version}+{digest}"

    def prompt_sha256_of(self, metric: Metric) -> str:
        """Return the digest of a metric's prompts; of all prompts if it does not declare them."""
        prompts = self.prompts.replaced(metric.prompts)
        return prompts.sha256_of(self._steps_of(metric))

    def _steps_of(self, metric: Metric) -> tuple[str, ...]:
        return STEPS if metric.uses is None else metric.uses

    def _embedder_of(self, metric: Metric) -> Iterator[tuple[str, str]]:
        if self.embedder and "questions" in (metric.uses or ()):
            yield self.embedder.identity.provider, self.embedder.identity.model

    def _key(self, *steps: StepName) -> str:
        # the results of these depend on step A
        given: tuple[StepName, ...] = ("extract",) if {"verify", "relevance"} & set(steps) else ()
        return f"{'+'.join(steps)} {self.prompts.sha256_of((*given, *steps))}"

    async def _extract(self, judge: Judge) -> ClaimExtraction:
        return await extract_claims(
            self._sentences[: self.limits.max_sentences],
            question=self._record.question,
            judge=judge,
            prompt=self.prompts.extract,
            fence_code=self._fence_code,
            sentences_per_call=self.limits.sentences_per_call,
        )

    async def _verify(self, judge: Judge) -> Verification:
        return await verify_claims(
            (await self.extract()).claims,
            self._context,
            judge=judge,
            prompt=self.prompts.verify,
            fence_code=self._fence_code,
            claims_per_call=self.limits.claims_per_call,
            settings=self._settings_for(judge),
            yes_no=self.prompts.verify_yes_no,
            again=self.prompts.verify_again,
        )

    async def _relevance(self, judge: Judge) -> tuple[Verdict, ...]:
        return await grade_statements(
            (await self.extract()).statements,
            question=self._record.question or "",
            judge=judge,
            prompt=self.prompts.relevance,
            fence_code=self._fence_code,
            statements_per_call=self.limits.statements_per_call,
        )

    async def _chunks(self, judge: Judge) -> Grading:
        return await grade_chunks(
            self._record.chunks,
            question=self._record.question or "",
            reference=(self._record.reference or "").strip() or None,
            judge=judge,
            prompt=self.prompts.chunks,
            fence_code=self._fence_code,
            pack_chars=self.limits.context_chars,
            max_packs=self.limits.max_packs,
            chunks_per_call=self.limits.chunks_per_call,
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

    async def _retrieval(self, judge: Judge) -> tuple[Grading, Verification]:
        if judge.identity.computes:  # the second judge may be such a one; it has no combined request
            return await both(self._chunks(judge), self._recall(judge))
        bundle = Bundle(judge, prompt=self.prompts.retrieval, fence_code=self._fence_code)
        return await both(self._chunks(bundle), self._recall(bundle))

    async def _recall(self, judge: Judge) -> Verification:
        sentences = self._reference[: self.limits.max_sentences]
        return await verify_claims(
            [Claim(index=i, text=each.text, kind="reference") for i, each in enumerate(sentences)],
            self._context,
            judge=judge,
            prompt=self.prompts.recall,
            fence_code=self._fence_code,
            claims_per_call=self.limits.claims_per_call,
            step="recall",
            settings=self._settings_for(judge),
            yes_no=self.prompts.verify_yes_no,
        )

    async def _questions(self, judge: Judge) -> Regeneration:
        shown = self._sentences[: self.limits.max_sentences]
        return await regenerate_questions(
            (self._record.answer or "")[: shown[-1].end] if shown else "",
            judge=judge,
            prompt=self.prompts.questions,
            fence_code=self._fence_code,
        )

    def _settings_for(self, judge: Judge) -> VerifySettings:
        # the calibration of the judge does not apply to the second
        settings = self.limits.verify
        return settings if judge.identity == self.judge else settings.uncalibrated

    @property
    def _fence_code(self) -> str:
        return fence_code(self.input_sha256)


_BUNDLED: frozenset[str] = frozenset({"chunks", "recall"})


@lru_cache(maxsize=256, typed=True)  # typed: the thresholds 1 and 1.0 have different texts
def _digest(
    name: str,
    profile: str,
    version: str,
    passes: str | float | None,
    direction: Direction,
    judges: tuple[tuple[str, str], ...],
    prompts: str,
    limits: StepLimits,
    further: tuple[object, ...],
) -> str:
    identity = [[name, profile, version, passes, direction], judges, prompts, repr(limits), *further]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


class _Once(Generic[T]):
    """Runs a step for the first caller; all callers get its value or error."""

    def __init__(self, judges: Sequence[Judge], run: Callable[[MeteredJudge], Awaitable[T]]) -> None:
        self._judges = [MeteredJudge(judge) for judge in judges]
        self._run = run
        self._lock = asyncio.Lock()  # two metrics that need the same step must not both ask the judge
        self._outcome: T | JudgeError | None = None
        self.compromised = False
        """Whether the first judge failed a canary claim; then the second, if any, repeated the step."""

    @property
    def spent(self) -> Usage:
        return sum((judge.spent for judge in self._judges), Usage())

    async def get(self) -> T:
        async with self._lock:
            if self._outcome is None:
                self._outcome = await self._attempt(*self._judges)
        if isinstance(self._outcome, JudgeError):
            raise self._outcome
        return self._outcome

    async def _attempt(self, judge: MeteredJudge, *others: MeteredJudge) -> T | JudgeError:
        try:
            return await self._run(judge)
        except JudgeCompromised as failed:
            self.compromised = True
            return await self._attempt(*others) if others else failed
        except JudgeError as failed:
            return failed
