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
import math
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeRefused, JudgeUnable
from ragtrace.extras import install_command
from ragtrace.judge.lexical import abstaining, sentences_as_claims
from ragtrace.judge.nli_model import FAMILIES, FamilyName, Finding, ModelFolder, Verifier, Window, WindowPair
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
from ragtrace.sentences import split_sentences

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_WHOLE: Final = ("window", "threads", "batch")
_SHARES: Final = ("supported", "unsupported", "contradicted")
_SETTINGS: Final = ("file", "family", "labels", *_WHOLE, *_SHARES)
_PACKAGES: Final = ("onnxruntime", "tokenizers", "numpy", "huggingface_hub")
_LEAST_WINDOW: Final = 32
_OVERLAP: Final = 4
"""The next window begins within the last quarter of the one before."""
_QUOTE_CHARS: Final = 1000
_NOVEL_FROM: Final = 0.5
"""From this probability on, a token is named as unsupported."""
_NO_WORTH: Final = "a verifier of claims does not tell what it is worth to the question"


@dataclass(frozen=True, slots=True, kw_only=True)
class NliAddress:
    """Which model, and how it is run. A setting that is ``None`` is chosen by the model's own files."""

    where: str
    """A folder, or the name of a repository on the hub."""
    file: str | None = None
    """The ONNX file, relative to the folder."""
    family: FamilyName | None = None
    labels: tuple[str, ...] = ()
    """The names of its outputs, in order."""
    window: int | None = None
    """The most tokens that the model reads at once: chunk, claim and marks."""
    threads: int | None = None
    batch: int = 8
    """Pairs of window and claim that the model reads at once."""
    supported: float = 0.6
    """*supported* from this probability of support. Between this and the next, the judge abstains."""
    unsupported: float = 0.4
    """Below this, *contradicted* or *unsupported*."""
    contradicted: float = 0.9
    """*contradicted* from this probability of contradiction."""

    @property
    def verdict_settings(self) -> str:
        """What changes verdicts: part of the judge's identity."""
        shares = (self.supported, self.unsupported, self.contradicted)
        return repr((self.family, self.labels, self.window, shares))

    @classmethod
    def parse(cls, argument: str) -> NliAddress:
        """Parse what is behind the colon: a model, with settings like a URL's query.

        Raises:
            ConfigError: there is no model, or a setting is unknown or out of range.
        """
        where, _, query = argument.partition("?")
        if not where:
            raise ConfigError("the judge `nli` needs a model: write `nli:FOLDER` or `nli:ORG/NAME`")
        given: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
        for name, value in given.items():
            wrong = f"the judge `nli`: {name}={value!r}"
            if name not in _SETTINGS:
                raise ConfigError(
                    f"the judge `nli` has no setting {name!r}: choose among {', '.join(_SETTINGS)}"
                )
            if name == "family" and value not in FAMILIES:
                raise ConfigError(f"{wrong} is none of {', '.join(FAMILIES)}")
            is_outside = value.startswith("/") or ".." in value.split("/") or not value.endswith(".onnx")
            if name == "file" and is_outside:
                raise ConfigError(f"{wrong} is not an .onnx file inside the model's folder")
            if name == "labels":
                given[name] = tuple(label.strip() for label in value.split(",") if label.strip())
            if name in _WHOLE:
                if not (value.isascii() and value.isdigit() and 0 < int(value[:9]) <= 2**20):
                    raise ConfigError(f"{wrong} is not a whole number above 0")
                given[name] = int(value)
            if name in _SHARES:
                given[name] = _share(value)
                if not 0 <= given[name] <= 1:
                    raise ConfigError(f"{wrong} is not a probability from 0 to 1")
        address = cls(where=where, **given)
        if address.unsupported > address.supported:
            raise ConfigError(
                f"the judge `nli`: a claim would be both: unsupported below {address.unsupported:g},"
                f" supported from {address.supported:g}"
            )
        return address


def _share(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


class NliJudge:
    """Judges claims by a verifier, which the first request loads in a thread."""

    least_timeout_s = 600.0
    """Long contexts have many windows."""
    most_at_once = 1
    """One request keeps all threads busy."""

    def __init__(self, folder: ModelFolder, address: NliAddress) -> None:
        """Raises ConfigError if the window is too short, or longer than the model's."""
        self._folder = folder
        self._address = address
        most = folder.positions or max(folder.family.window, address.window or 0)
        if address.window and address.window > most:
            raise ConfigError(
                f"the judge `nli`: window={address.window} is more than the {most} tokens of {folder.name}"
            )
        self._window = address.window or min(most, folder.family.window)
        if self._window < _LEAST_WINDOW:
            raise ConfigError(
                f"the judge `nli`: a window of {self._window} tokens is too short: give at least"
                f" {_LEAST_WINDOW}"
            )
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
            contradicts=self._folder.family.contradiction is not None,
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
        lengths = {claim.number: verifier.claim_length(claim.text) for claim in given.claims}
        pairs = await asyncio.to_thread(_pairs, given, verifier, lengths)
        pairs.sort(key=lambda pair: len(pair.ids))  # the shorter ones of a batch are padded
        found: dict[int, Finding] = {}
        for start in range(0, len(pairs), self._address.batch):
            some = pairs[start : start + self._address.batch]
            for finding in await asyncio.to_thread(verifier.read, some):
                number = finding.supporting.claim
                found[number] = found[number].joined(finding) if number in found else finding
        verdicts: list[GivenVerdict] = []
        notes: dict[int, str] = {}
        for claim in given.claims:
            if lengths[claim.number] > verifier.longest_claim:
                notes[claim.number] = (
                    f"the claim has {lengths[claim.number]} tokens, and the model takes"
                    f" {verifier.longest_claim}: half of its window"
                )
                continue
            decided = self._decide(claim, found.get(claim.number))
            if isinstance(decided, str):
                notes[claim.number] = decided
            else:
                verdicts.append(decided)
        return JudgeReply(
            value=VerifyReply(verdicts=verdicts),
            usage=Usage(calls=1),
            abstained=frozenset(notes),
            notes=notes,
            support={number: finding.support for number, finding in found.items()},
        )

    async def _loaded(self) -> Verifier:
        async with self._loading:
            if self._refusal:
                raise JudgeRefused(str(self._refusal))
            if self._verifier is None:
                threads = self._address.threads or _cores()
                try:
                    self._verifier = await asyncio.to_thread(
                        Verifier.load, self._folder, window=self._window, threads=threads
                    )
                except JudgeRefused as exc:
                    self._refusal = exc
                    raise
            return self._verifier

    def _decide(self, claim: NumberedText, found: Finding | None) -> GivenVerdict | str:
        cuts = self._address
        if found is None:
            return "no chunk has text"
        if found.support >= cuts.supported:
            return _verdict(claim, "supported", found.supporting.window)
        if found.support >= cuts.unsupported:
            return f"the model is undecided: probability of support {found.support:.2f}"
        if found.contradiction >= cuts.contradicted:
            return _verdict(claim, "contradicted", found.contradicting.window)
        places = [at for at, novel in enumerate(found.novel) if novel >= _NOVEL_FROM]
        parts = found.supporting.parts(claim.text, places)
        reason = f"not in the chunks: {', '.join(map(repr, parts))}"[:400] if parts else ""
        return GivenVerdict(id=claim.number, chunks=[], quote="", label="not_mentioned", reason=reason)


def open_nli(settings: JudgeSettings) -> Judge:
    """Open ``nli:FOLDER`` or ``nli:ORG/NAME``, with settings such as ``?file=onnx/model.onnx&threads=2``.

    Raises:
        ConfigError: the extra or a file is missing, the model is for another task, its labels are unknown, or
            a setting is unknown.
    """
    if any(find_spec(name) is None for name in _PACKAGES):
        raise ConfigError(f"the judge `nli` needs the extra of that name: {install_command('nli')}")
    address = NliAddress.parse(settings.argument)
    folder = ModelFolder.open(address.where, file=address.file, family=address.family, labels=address.labels)
    return NliJudge(folder, address)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pairs(given: VerifyInput, verifier: Verifier, lengths: Mapping[int, int]) -> list[WindowPair]:
    chunks = [(chunk, verifier.tokens_of(chunk.text)) for chunk in given.chunks]
    by_room: dict[int, list[Window]] = {}
    made = []
    for claim in given.claims:
        if lengths[claim.number] > verifier.longest_claim:
            continue
        room = verifier.room_beside(lengths[claim.number])
        if room not in by_room:
            by_room[room] = [
                window
                for chunk, tokens in chunks
                for window in windows_of(chunk.number, chunk.text, tokens, room)
            ]
        made += [verifier.pair(claim.number, claim.text, window) for window in by_room[room]]
    return made


def windows_of(chunk: int, text: str, tokens: Sequence[tuple[int, int]], size: int) -> Iterator[Window]:
    """Yield the windows of a chunk: runs of whole sentences that overlap. Takes linear time.

    Args:
        chunk: The chunk's number.
        text: Its text.
        tokens: Start and end of each of its tokens, in characters.
        size: The most tokens of a window.
    """
    if len(tokens) <= size:
        if text.strip():
            yield Window(chunk=chunk, text=text)
        return
    starts = [start for start, _ in tokens]
    # how many tokens there are up to the end of each sentence
    ends = sorted(
        {*(bisect_left(starts, sentence.end) for sentence in split_sentences(text)), len(tokens)} - {0}
    )
    first = 0
    while first < len(tokens):
        at = bisect_left(ends, first + size + 1) - 1
        # the last sentence that fits, or as many tokens as fit if none does
        last = ends[at] if at >= 0 and ends[at] > first else first + size
        yield Window(chunk=chunk, text=text[tokens[first][0] : tokens[last - 1][1]].strip())
        if last >= len(tokens):
            return
        # the beginning of a sentence in the last quarter, or that quarter if it holds none
        earliest = last - max(0, (last - first) // _OVERLAP)
        at = bisect_left(ends, earliest)
        begin = ends[at] if at < len(ends) else last
        first = max(begin if begin < last else earliest, first + 1)


def quote_of(text: str, near: str) -> str:
    """Return up to 1000 characters of whole sentences, around the one with most words of another text."""
    if len(text) <= _QUOTE_CHARS:
        return text
    sentences, words = split_sentences(text), {*near.lower().split()}
    if not sentences:
        return text[:_QUOTE_CHARS]
    best = max(range(len(sentences)), key=lambda at: len(words & {*sentences[at].text.lower().split()}))
    first = last = best
    while last + 1 < len(sentences) and sentences[last + 1].end - sentences[first].start <= _QUOTE_CHARS:
        last += 1
    while first and sentences[last].end - sentences[first - 1].start <= _QUOTE_CHARS:
        first -= 1
    return text[sentences[first].start : sentences[last].end]


def _verdict(claim: NumberedText, label: Any, window: Window) -> GivenVerdict:
    quote = quote_of(window.text, claim.text)
    return GivenVerdict(id=claim.number, chunks=[window.chunk], quote=quote, label=label, reason="")
