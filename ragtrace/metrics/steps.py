"""The judge steps that metrics share, each run once a record.

Step A (*extract*) asks for the claims of the answer, step B (*verify*) for a verdict on each. The judge
answers in numbers that code gave out, and everything it says is checked before it becomes a value:

- Claims that cite no sentence they were shown are rejected, and counted. Sentences that no statement cites
  are asked about again once: small models list the first claim and stop.
- Verdict ids must be exactly the ids asked for. Missing and repeated ids are asked for again once, then stay
  unjudged; unknown ids are rejected, and counted. Ids the judge abstained from are not asked for again.
- Chunk numbers that were not shown are dropped. A quote must be found in a chunk it cites, and what goes on
  is the chunk's own text. A verdict whose quote is not found keeps its label, without the quote.
- A reply that was cut off is asked for again in halves.
- A context too long for one call is laid in packs: supported if any pack supports, contradicted if one
  contradicts and none supports, not mentioned only if every pack says so.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ragtrace.errors import JudgeCompromised, JudgeError
from ragtrace.metrics.asking import Metered
from ragtrace.metrics.extract import Extraction, extract_claims
from ragtrace.metrics.fence import fence_code
from ragtrace.metrics.prompt import Prompt, built_in_prompt, content_sha256
from ragtrace.metrics.sentences import split_sentences
from ragtrace.metrics.verify import Context, Verification, verify_claims
from ragtrace.metrics.verify_settings import VerifySettings
from ragtrace.model import JudgeIdentity, RagRecord, Usage
from ragtrace.ports import Embedder, Judge, Metric

__all__ = ["Extraction", "Prompts", "StepLimits", "Steps", "Verification"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """How much goes into one call, and how much is judged at all."""

    sentences_per_call: int = 60
    claims_per_call: int = 20
    context_chars: int = 60_000
    """Characters of chunks in one call; longer contexts are packed into several."""
    max_sentences: int = 300
    """Sentences of an answer beyond this are not judged, and the evaluation says so."""
    max_packs: int = 8
    """Chunks beyond this many packs are not shown; claims that need them are unjudged."""
    verify: VerifySettings = field(default_factory=VerifySettings)
    """In which form claims are asked about, and what is planted among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The instructions of the steps."""

    extract: Prompt
    verify: Prompt
    verify_yes_no: Prompt
    """Instead of ``verify`` where claims are asked about one by one."""
    verify_again: Prompt
    """Instead of ``verify`` for a second look."""

    @classmethod
    def built_in(cls) -> Prompts:
        """Return the prompts that come with ragtrace."""
        return cls(
            extract=built_in_prompt("extract.v2.md"),
            verify=built_in_prompt("verify.v1.md"),
            verify_yes_no=built_in_prompt("verify_yes_no.v1.md"),
            verify_again=built_in_prompt("verify_again.v1.md"),
        )

    @property
    def sha256(self) -> str:
        """Of all prompts together."""
        prompts = (self.extract, self.verify, self.verify_yes_no, self.verify_again)
        return hashlib.sha256("".join(prompt.sha256 for prompt in prompts).encode()).hexdigest()


class Steps:
    """The judge steps for one record: metrics that share a step share its calls.

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
    ) -> None:
        self.prompts = prompts or Prompts.built_in()
        self.limits = limits or StepLimits()
        self.judge: JudgeIdentity = judge.identity
        self.second_judge: JudgeIdentity | None = second_judge.identity if second_judge else None
        """Who is asked a whole step again where the judge got a planted claim wrong."""
        self.embedder = embedder
        self.input_sha256 = content_sha256(record)
        """Digest of what the judge can see."""
        self._record = record
        self._sentences = split_sentences(record.answer or "")
        self._context = Context(
            record.chunks, pack_chars=self.limits.context_chars, max_packs=self.limits.max_packs
        )
        self._judges = (judge, second_judge) if second_judge else (judge,)
        self._shared: dict[str, _Once[Any]] = {}
        self.asked: set[str] = set()
        """Keys of the shared steps that were asked for through this view."""

    @property
    def usage(self) -> Usage:
        """What the judge was asked so far, by whichever metric."""
        return sum((step.spent for step in self._shared.values()), Usage())

    async def shared(self, key: str, run: Callable[[Judge], Awaitable[T]]) -> T:
        """Run a step once a record: whoever asks for the same key gets the same value, or the same error.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        self.asked.add(key)
        once: _Once[T] = self._shared.setdefault(key, _Once(self._judges, run))
        return await once.get()

    def for_one_metric(self) -> Steps:
        """Return the same steps, keeping apart who judged the ones that are asked for here."""
        view = copy.copy(self)
        view.asked = set()
        return view

    @property
    def stand_in(self) -> JudgeIdentity | None:
        """The second judge, if a step that was asked for here rests on it."""
        return self.second_judge if self.asked & self._on_second else None

    @property
    def compromised(self) -> bool:
        """Whether the judge got a planted claim wrong in any step."""
        return any(step.compromised for step in self._shared.values())

    @property
    def _on_second(self) -> set[str]:
        return {key for key, step in self._shared.items() if step.compromised}

    def spent_on(self, *keys: str) -> Usage:
        """Return what the judge was asked in these steps."""
        return sum((step.spent for key, step in self._shared.items() if key in keys), Usage())

    @property
    def cut(self) -> bool:
        """Whether the limits keep a part of the record from the judge."""
        return self._context.cut or len(self._sentences) > self.limits.max_sentences

    async def extract(self) -> Extraction:
        """Return the claims of the answer.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        return await self.shared("extract", self._extract)

    async def verify(self) -> Verification:
        """Return a verdict on each claim of the answer.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        return await self.shared("verify", self._verify)

    def version_of(self, metric: Metric) -> str:
        """Name what gives a result: another metric, threshold, prompt, judge or limit gives another name."""
        identity = [
            [metric.name, metric.profile, metric.version, metric.threshold, metric.direction],
            [[judge.identity.provider, judge.identity.model] for judge in self._judges],
            self.prompts.sha256,
            repr(self.limits),
        ]
        return f"{metric.version}+{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]}"

    async def _extract(self, judge: Judge) -> Extraction:
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
            settings=self.limits.verify,
            yes_no=self.prompts.verify_yes_no,
            again=self.prompts.verify_again,
        )

    @property
    def _fence_code(self) -> str:
        return fence_code(self.input_sha256)


class _Once(Generic[T]):
    """Runs a step for whoever asks first; everyone gets its value, or its error."""

    def __init__(self, judges: Sequence[Judge], run: Callable[[Judge], Awaitable[T]]) -> None:
        self._judges = [Metered(judge) for judge in judges]
        self._run = run
        self._lock = asyncio.Lock()  # two metrics that need the same step would both ask the judge
        self._outcome: T | JudgeError | None = None
        self.compromised = False
        """Whether the first judge got a planted claim wrong: the second, if any, was asked it all again."""

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

    async def _attempt(self, judge: Judge, *others: Judge) -> T | JudgeError:
        try:
            return await self._run(judge)
        except JudgeCompromised as failed:
            self.compromised = True
            return await self._attempt(*others) if others else failed
        except JudgeError as failed:
            return failed
