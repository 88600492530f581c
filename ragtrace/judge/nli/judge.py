"""``nli:FOLDER``: small local verifiers in ONNX files judge claims. No key, no endpoint (extra ``nli``).

Each sentence of an answer is a claim. The model reads it beside every window of the chunks, and the window
that supports it most decides (max-pooling). There is a verdict only beyond cuts, else the judge abstains:

- *supported*: the highest probability of support is high; the evidence is its window;
- *contradicted*: it is low, and some window contradicts the claim almost surely;
- *unsupported*: it is low otherwise.

It abstains from relevance to the question: verifiers are not trained for that.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeRefused, JudgeUnable
from ragtrace.extras import install_command
from ragtrace.judge.lexical import abstaining, sentences_as_claims
from ragtrace.judge.nli._address import Cuts, NliAddress
from ragtrace.judge.nli._families import Family, family_of
from ragtrace.judge.nli._folder import ModelFolder
from ragtrace.judge.nli._verifier import PairFinding, Verifier, WindowPair
from ragtrace.judge.nli._windows import Window, windows_of, words_of
from ragtrace.judge.spec import JudgeSettings
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
    ExtractInput,
    ExtractReply,
    GivenVerdict,
    NumberedText,
    RelevanceInput,
    RelevanceReply,
    VerifyInput,
    VerifyReply,
)
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_PACKAGES: Final = ("onnxruntime", "tokenizers", "numpy", "huggingface_hub")
_LEAST_TIMEOUT_S: Final = 600.0
_LEAST_WINDOW: Final = 32
_NOVEL_FROM: Final = 0.5
"""From this probability on, a token is named as unsupported."""
_NO_WORTH: Final = "a verifier of claims does not tell what it is worth to the question"


class NliJudge:
    """Judges claims by a verifier, which the first request loads in a thread."""

    least_timeout_s = _LEAST_TIMEOUT_S
    """Long contexts have many windows."""
    most_at_once = 1
    """One request keeps all threads busy."""

    def __init__(self, folder: ModelFolder, family: Family, address: NliAddress) -> None:
        self._folder = folder
        self._family = family
        self._address = address
        self._verifier: Verifier | None = None
        self._refusal: JudgeRefused | None = None
        self._loading = asyncio.Lock()  # two concurrent first requests would both load it

    @property
    def identity(self) -> JudgeIdentity:
        """Provider, model, and a digest of its files and settings."""
        told = f"{self._folder.digest} {self._folder.onnx.name} {self._address.verdict_settings}"
        return JudgeIdentity(
            provider="nli",
            model=self._folder.name,
            computes=True,
            contradicts=self._family.contradiction is not None,
            parameters=hashlib.sha256(told.encode()).hexdigest()[:16],
        )

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; the first one for verdicts waits until the model is loaded.

        Raises:
            JudgeRefused: the model cannot be used; the message names the file.
            JudgeNonsense: the model gave no numbers.
            JudgeUnable: a verifier cannot answer it.
        """
        reply: JudgeReply[Any]
        match request.inputs:
            case ExtractInput() as given if request.reply_type is ExtractReply:
                reply = sentences_as_claims(given)
            case VerifyInput() as given if request.reply_type is VerifyReply:
                reply = await self._verify(given)
            case ChunksInput() as given:
                numbers = (chunk.number for chunk in given.chunks)
                reply = abstaining(ChunksReply(chunks=[]), numbers, _NO_WORTH)
            case RelevanceInput() as given:
                numbers = (statement.number for statement in given.statements)
                reply = abstaining(RelevanceReply(statements=[]), numbers, _NO_WORTH)
            case _:
                what = f"the judge `nli` cannot answer the step {request.step!r} in this form"
                raise JudgeUnable(what, usage=Usage())
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Let go of the model."""
        self._verifier = None

    async def _verify(self, given: VerifyInput) -> JudgeReply[Any]:
        verifier = await self._loaded()
        reading = _Reading.of(given, verifier)
        pairs = await asyncio.to_thread(reading.pairs)
        for batch in _batches(pairs, self._address.batch):
            reading.add(await asyncio.to_thread(verifier.read, batch))
        return reading.reply(self._address.cuts)

    async def _loaded(self) -> Verifier:
        async with self._loading:
            if self._refusal:
                raise JudgeRefused(str(self._refusal))
            if self._verifier is None:
                try:
                    self._verifier = await asyncio.to_thread(self._load)
                except JudgeRefused as exc:
                    self._refusal = exc
                    raise
            return self._verifier

    def _load(self) -> Verifier:
        return Verifier.load(
            self._folder,
            self._family,
            window=_window(self._address, self._family, self._folder),
            threads=self._address.threads or _cores(),
        )


def open_nli(settings: JudgeSettings) -> Judge:
    """Open ``nli:FOLDER`` or ``nli:ORG/NAME``, with settings such as ``?file=onnx/model.onnx&threads=2``.

    Raises:
        ConfigError: the extra or a file is missing, the model is for another task, its labels are unknown, or
            a setting is unknown.
    """
    if any(find_spec(name) is None for name in _PACKAGES):
        raise ConfigError(f"the judge `nli` needs the extra of that name: {install_command('nli')}")
    address = NliAddress.parse(settings.argument)
    folder = ModelFolder.open(address)
    family = family_of(folder.described, named=address.family, labels=address.labels)
    _window(address, family, folder)
    return NliJudge(folder, family, address)


def _window(address: NliAddress, family: Family, folder: ModelFolder) -> int:
    """Return how many tokens the model reads at once."""
    most = folder.positions or max(family.window, address.window or 0)
    if address.window and address.window > most:
        raise ConfigError(
            f"the judge `nli`: window={address.window} is more than the {most} tokens of {folder.name}"
        )
    window = address.window or min(most, family.window)
    if window < _LEAST_WINDOW:
        raise ConfigError(
            f"the judge `nli`: a window of {window} tokens is too short: give at least {_LEAST_WINDOW}"
        )
    return window


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batches(pairs: Sequence[WindowPair], size: int) -> Iterator[Sequence[WindowPair]]:
    """Yield batches of pairs of about the same length: the shorter ones are padded."""
    ordered = sorted(pairs, key=lambda pair: len(pair.ids))
    return (ordered[start : start + size] for start in range(0, len(ordered), size))


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The claims of a request beside the windows of its chunks."""

    given: VerifyInput
    verifier: Verifier
    too_long: dict[int, int]
    """Claims that the window has no room for, with their tokens."""
    found: dict[int, _Pooled] = field(default_factory=dict)

    @classmethod
    def of(cls, given: VerifyInput, verifier: Verifier) -> _Reading:
        """Set claims aside that are too long."""
        lengths = {claim.number: verifier.claim_length(claim.text) for claim in given.claims}
        most = verifier.longest_claim
        return cls(
            given=given,
            verifier=verifier,
            too_long={number: length for number, length in lengths.items() if length > most},
        )

    def pairs(self) -> list[WindowPair]:
        """Return every claim beside every window."""
        chunks = [(chunk, self.verifier.tokens_of(chunk.text)) for chunk in self.given.chunks]
        by_room: dict[int, list[Window]] = {}
        made = []
        for claim in self.given.claims:
            if claim.number in self.too_long:
                continue
            room = self.verifier.room_beside(self.verifier.claim_length(claim.text))
            if room not in by_room:
                by_room[room] = [
                    window
                    for chunk, tokens in chunks
                    for window in windows_of(chunk.number, chunk.text, tokens, room)
                ]
            made += [self.verifier.pair(claim.number, claim.text, window) for window in by_room[room]]
        return made

    def add(self, findings: Iterable[PairFinding]) -> None:
        """Pool what the model says of some pairs."""
        for finding in findings:
            number = finding.pair.claim
            before = self.found.get(number)
            self.found[number] = _Pooled.of(finding) if before is None else before.joined(finding)

    def reply(self, cuts: Cuts) -> JudgeReply[Any]:
        """Return the verdicts."""
        decided = {claim.number: self._decide(claim, cuts) for claim in self.given.claims}
        notes = {number: verdict for number, verdict in decided.items() if isinstance(verdict, str)}
        verdicts = [verdict for verdict in decided.values() if isinstance(verdict, GivenVerdict)]
        return JudgeReply(
            value=VerifyReply(verdicts=verdicts),
            usage=Usage(calls=1),
            abstained=frozenset(notes),
            notes=notes,
            support={number: pooled.support for number, pooled in self.found.items()},
        )

    def _decide(self, claim: NumberedText, cuts: Cuts) -> GivenVerdict | str:
        """Return a verdict, or the reason for abstaining."""
        if length := self.too_long.get(claim.number):
            return (
                f"the claim has {length} tokens, and the model takes {self.verifier.longest_claim}: half"
                " of its"
                " window"
            )
        pooled = self.found.get(claim.number)
        if pooled is None:
            return "no chunk has text"
        if pooled.support >= cuts.supported:
            return _verdict(claim, "supported", pooled.supporting.window)
        if pooled.support >= cuts.unsupported:
            return f"the model is undecided: probability of support {pooled.support:.2f}"
        if pooled.contradiction >= cuts.contradicted:
            return _verdict(claim, "contradicted", pooled.contradicting.window)
        return GivenVerdict(
            id=claim.number, chunks=[], quote="", label="not_mentioned", reason=self._lacking(claim, pooled)
        )

    @staticmethod
    def _lacking(claim: NumberedText, pooled: _Pooled) -> str:
        places = [at for at, novel in enumerate(pooled.novel) if novel >= _NOVEL_FROM]
        parts = pooled.supporting.parts(claim.text, places)
        return f"not in the chunks: {', '.join(map(repr, parts))}"[:400] if parts else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pooled:
    """What the windows say of a claim, together."""

    support: float
    contradiction: float
    supporting: WindowPair
    contradicting: WindowPair
    best: float
    """The support of the window that supports it most."""
    novel: tuple[float, ...]
    """By token: the probability that no window supports it."""

    @classmethod
    def of(cls, finding: PairFinding) -> _Pooled:
        """Begin with a window."""
        return cls(
            support=finding.support,
            contradiction=finding.contradiction,
            supporting=finding.pair,
            contradicting=finding.pair,
            best=finding.support,
            novel=finding.novel,
        )

    def joined(self, finding: PairFinding) -> _Pooled:
        """Add a window. A token is supported if any window supports it, and a claim if all its tokens are."""
        novel = tuple(map(min, self.novel, finding.novel))
        is_better, is_worse = finding.support > self.best, finding.contradiction > self.contradiction
        best = max(self.best, finding.support)
        return _Pooled(
            support=1 - max(novel) if novel else best,
            contradiction=max(self.contradiction, finding.contradiction),
            supporting=finding.pair if is_better else self.supporting,
            contradicting=finding.pair if is_worse else self.contradicting,
            best=best,
            novel=novel,
        )


def _verdict(claim: NumberedText, label: Any, window: Window) -> GivenVerdict:
    quote = window.quote(words_of(claim.text))
    return GivenVerdict(id=claim.number, chunks=[window.chunk], quote=quote, label=label, reason="")
