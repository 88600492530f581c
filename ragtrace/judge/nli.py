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
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Annotated, Any, Final, Self, TypeAlias
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ragtrace.errors import ConfigError, JudgeRefused
from ragtrace.extras import install_command
from ragtrace.judge.lexical import ComparingJudge
from ragtrace.judge.nli_model import FamilyName, Finding, ModelFolder, Verifier, Window, WindowPair
from ragtrace.judge.spec import JudgeSettings
from ragtrace.judge_forms import GivenVerdict, NumberedText, VerifyInput, VerifyReply
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge, JudgeReply
from ragtrace.sentences import split_sentences
from ragtrace.text import in_words

_PACKAGES: Final = ("onnxruntime", "tokenizers", "numpy")
_PAIRS_AT_ONCE: Final = 8
_OVERLAP: Final = 4
"""The next window begins within the last quarter of the one before."""
_QUOTE_CHARS: Final = 1000
_NOVEL_FROM: Final = 0.5
"""From this probability on, a token is named as unsupported."""
_Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class NliSettings(BaseModel):
    """How a model is run. A setting that is ``None`` is chosen by the model's own files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str | None = None
    """The ONNX file, relative to the folder."""
    family: FamilyName | None = None
    labels: Annotated[tuple[str, ...], BeforeValidator(lambda names: names.split(","))] = ()
    """The names of its outputs, in order."""
    threads: int = Field(default=0, ge=0)
    """0: as the runtime chooses."""
    supported: _Share = 0.6
    """*supported* from this probability of support. Between this and the next, the judge abstains."""
    unsupported: _Share = 0.4
    """Below this, *contradicted* or *unsupported*."""
    contradicted: _Share = 0.9
    """*contradicted* from this probability of contradiction."""

    @model_validator(mode="after")
    def _decides_once(self) -> Self:
        if self.unsupported > self.supported:
            raise ValueError("`unsupported` must not be above `supported`: a claim would be both")
        return self

    @property
    def verdict_settings(self) -> str:
        """What changes verdicts: part of the judge's identity."""
        shares = (self.supported, self.unsupported, self.contradicted)
        return repr((self.family, self.labels, None, shares))


class NliJudge(ComparingJudge):
    """Judges claims by a verifier, which the first request loads in a thread."""

    least_timeout_s = 600.0
    """Long contexts have many windows."""
    most_at_once = 1
    """One request keeps all threads busy."""

    no_worth = "a verifier of claims does not tell what it is worth to the question"

    def __init__(self, folder: ModelFolder, settings: NliSettings) -> None:
        told = f"{folder.digest} {folder.onnx.name} {settings.verdict_settings}"
        self.identity = JudgeIdentity(
            provider="nli",
            model=folder.name,
            computes=True,
            contradicts=folder.family.contradiction is not None,
            parameters=hashlib.sha256(told.encode()).hexdigest()[:16],
        )
        self._folder = folder
        self._settings = settings
        self._verifier: Verifier | None = None
        self._refusal: JudgeRefused | None = None
        self._loading = asyncio.Lock()  # two concurrent first requests would both load it

    async def aclose(self) -> None:
        """Let go of the model."""
        self._verifier = None

    async def verify(self, given: VerifyInput) -> JudgeReply[VerifyReply]:
        """Let the model read each claim beside each window; the first request waits until it is loaded.

        Raises:
            JudgeRefused: the model cannot be used; the message names the file.
            JudgeNonsense: the model gave no numbers.
        """
        verifier = await self._loaded()
        lengths = {claim.number: verifier.claim_length(claim.text) for claim in given.claims}
        pairs = await asyncio.to_thread(_pairs, given, verifier, lengths)
        pairs.sort(key=lambda pair: len(pair.ids))  # the shorter ones of a batch are padded
        found: dict[int, Finding] = {}
        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            for finding in await asyncio.to_thread(verifier.read, pairs[start : start + _PAIRS_AT_ONCE]):
                number = finding.supporting.claim
                found[number] = found[number].joined(finding) if number in found else finding
        findings = {
            claim.number: self._decide(claim, found.get(claim.number))
            if lengths[claim.number] <= verifier.longest_claim
            else f"the claim has {lengths[claim.number]} tokens, and the model takes"
            f" {verifier.longest_claim}: half of its window"
            for claim in given.claims
        }
        return self._found(findings, {number: finding.support for number, finding in found.items()})

    async def _loaded(self) -> Verifier:
        async with self._loading:
            if self._refusal:
                raise JudgeRefused(str(self._refusal))
            if self._verifier is None:
                try:
                    self._verifier = await asyncio.to_thread(
                        Verifier.load, self._folder, self._settings.threads
                    )
                except JudgeRefused as exc:
                    self._refusal = exc
                    raise
            return self._verifier

    def _decide(self, claim: NumberedText, found: Finding | None) -> GivenVerdict | str:
        cuts = self._settings
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
    """Open ``nli:FOLDER``, with settings such as ``?file=onnx/model.onnx&threads=2``.

    Raises:
        ConfigError: the extra or a file is missing, the model is for another task, its labels are unknown, or
            a setting is unknown or out of range.
    """
    if any(find_spec(name) is None for name in _PACKAGES):
        raise ConfigError(f"the judge `nli` needs the extra of that name: {install_command('nli')}")
    where, _, query = settings.argument.partition("?")
    if not where:
        raise ConfigError("the judge `nli` needs a model: write `nli:FOLDER`")
    try:
        chosen = NliSettings.model_validate(dict(parse_qsl(query, keep_blank_values=True)))
    except ValidationError as exc:
        fault = exc.errors(include_url=False)[0]
        name = "".join(f"`{part}`: " for part in fault["loc"][:1])
        raise ConfigError(
            f"the judge `nli`: {name}{in_words(fault)} (settings: {', '.join(NliSettings.model_fields)})"
        ) from None
    folder = ModelFolder.open(where, file=chosen.file, family=chosen.family, labels=chosen.labels)
    return NliJudge(folder, chosen)


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


def _verdict(claim: NumberedText, label: Any, window: Window) -> GivenVerdict:
    quote, words = window.text, {*claim.text.lower().split()}
    if len(quote) > _QUOTE_CHARS:  # then the sentence with most words of the claim
        sentences = [sentence.text for sentence in split_sentences(quote)] or [quote]
        quote = max(sentences, key=lambda text: len(words & {*text.lower().split()}))[:_QUOTE_CHARS]
    return GivenVerdict(id=claim.number, chunks=[window.chunk], quote=quote, label=label, reason="")
