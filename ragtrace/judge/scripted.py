"""A judge that follows a script, for tests of everything around the judge."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from ragtrace import judge_forms as forms
from ragtrace.errors import (
    ConfigError,
    JudgeCutOff,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnable,
    JudgeUnavailable,
)
from ragtrace.judge.phrases import claim_kind, is_refusal
from ragtrace.judge.spec import JudgeSettings
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import split_sentences
from ragtrace.text import in_words

ReplyT = TypeVar("ReplyT", bound=BaseModel)
ScriptedT = TypeVar("ScriptedT")
Responder: TypeAlias = "Callable[[JudgeRequest[Any]], BaseModel | JudgeReply[Any]]"
"""Answers a request, or raises a ``JudgeError``."""

_LONG_WORD = 4
_BEST_GRADE = 2
_CITATION = re.compile(r"\s*(?:\[[^\[\]]*\]|【[^【】]*】)")
_ERRORS = {
    error.error_type: error
    for error in (JudgeError, JudgeUnavailable, JudgeTimeout, JudgeRefused, JudgeNonsense, JudgeCutOff)
}


class _Scripted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedClaim(_Scripted):
    """A statement that the judge finds in an answer."""

    text: str
    sentences: list[int] = [1]
    kind: forms.ClaimKind = "factual"
    relevance: forms.Relevance = "direct"


def _asked_for(value: object) -> object:
    """Accept the verdict's public word instead of the word in judge replies."""
    return "not_mentioned" if value == "unsupported" else value


_Word: TypeAlias = Annotated[forms.VerdictWord, BeforeValidator(_asked_for)]


class ScriptedAnswer(_Scripted):
    """The claims of an answer, or the error that the judge raises (``judge_timeout``, …)."""

    claims: list[str | ScriptedClaim] = []
    refusal: bool = False
    error: str | None = None


class ScriptedVerdict(_Scripted):
    """The verdict on a claim."""

    label: _Word = "not_mentioned"
    chunks: list[int] = []
    quote: str = ""
    reason: str = ""
    material: bool = True


class ScriptedCriterion(_Scripted):
    """Whether answers meet a criterion."""

    met: bool = False
    quote: str = ""
    reason: str = ""


class Script(_Scripted):
    """The replies of a scripted judge. Texts that the script does not mention are compared by words.

    Without a script, each sentence is a claim and answers the question. A claim, or a sentence of a
    reference, is supported if a chunk contains it verbatim, contradicted if a sentence of a chunk differs
    from it only in numbers, else unsupported. A chunk is relevant if it contains half of the question's
    longer words, partly relevant with some, else irrelevant. An answer meets a criterion if it contains half
    of its longer words. The question generated from an answer is its
    first sentence.
    """

    answers: dict[str, ScriptedAnswer] = {}
    """Key: a text in the answer. Case, punctuation and white space are ignored."""
    claims: dict[str, _Word | ScriptedVerdict] = {}
    """Key: the text of the claim, compared in the same way. ``supported`` alone quotes the first chunk."""
    chunks: dict[str, forms.ChunkRelevance] = {}
    """Key: a text in the chunk, compared in the same way."""
    questions: dict[str, list[str]] = {}
    """Generated questions. Key: a text in the answer."""
    criteria: dict[str, bool | ScriptedCriterion] = {}
    """Whether answers meet a criterion. Key: its text, compared in the same way."""
    error: str | None = None
    """Raised on every request."""


class ScriptedJudge:
    """Answers from a script or a function. Equal requests always get equal replies.

    Example:
        ```python
        judge = ScriptedJudge(Script(claims={"Refunds take 30 days.": "contradicted"}))
        ```
    """

    def __init__(
        self, script: Script | Responder | None = None, *, gate: asyncio.Event | None = None
    ) -> None:
        self._script = script if isinstance(script, Script) else Script()
        self._respond: Responder = self.reply_to if script is None or isinstance(script, Script) else script
        self._gate = gate
        self.requests: list[JudgeRequest[Any]] = []
        """All requests so far, in order."""
        self.asked = asyncio.Event()
        """Set by the first request."""
        self.closed = False

    @classmethod
    def from_file(cls, path: str | Path) -> ScriptedJudge:
        """Read a `Script` from a JSON file.

        Raises:
            ConfigError: the file cannot be read, or is not a script.
        """
        try:
            return cls(Script.model_validate_json(Path(path).read_bytes()))
        except OSError as exc:
            raise ConfigError(f"the judge's script {str(path)!r} cannot be read: {exc.strerror}") from exc
        except ValidationError as exc:
            fault = exc.errors(include_input=False)[0]
            where = ".".join(map(str, fault["loc"])) or "the top"
            raise ConfigError(
                f"the judge's script {str(path)!r} is wrong at {where}: {in_words(fault)}"
            ) from exc

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return JudgeIdentity(provider="scripted", model="scripted", computes=True)

    @property
    def calls(self) -> Counter[str]:
        """The number of requests, by step."""
        return Counter(request.step for request in self.requests)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer by the script, after the ``gate`` (if there is one) opens."""
        self.requests.append(request)
        self.asked.set()
        if self._gate:
            await self._gate.wait()
        answer = self._respond(request)
        if isinstance(answer, JudgeReply):
            return answer
        value = request.reply_type.model_validate(answer.model_dump())
        usage = Usage(
            calls=1,
            input_tokens=len(request.system + request.user) // 4,
            output_tokens=len(value.model_dump_json()) // 4,
        )
        return JudgeReply(value=value, usage=usage)

    async def aclose(self) -> None:
        """Record that it was closed."""
        self.closed = True

    def reply_to(self, request: JudgeRequest[Any]) -> BaseModel:
        """Return the script's reply, for functions that modify it."""
        _raise(self._script.error)
        match request.inputs:
            case forms.ExtractInput() as given if request.reply_type is forms.ExtractReply:
                return self._extract(given)
            case forms.VerifyInput() as given if request.reply_type is forms.VerifyReply:
                return forms.VerifyReply(
                    verdicts=[self._verdict(claim, given.chunks) for claim in given.claims]
                )
            case forms.ChunksInput() as given:
                return forms.ChunksReply(
                    chunks=[self._grade(chunk, given.question) for chunk in given.chunks]
                )
            case forms.RetrievalInput() as given:
                return forms.RetrievalReply(
                    chunks=[self._grade(chunk, given.question) for chunk in given.chunks],
                    verdicts=[self._verdict(claim, given.chunks) for claim in given.claims],
                )
            case forms.RelevanceInput() as given:
                return forms.RelevanceReply(
                    statements=[self._relevance(statement) for statement in given.statements]
                )
            case forms.CriteriaInput() as given:
                return forms.CriteriaReply(criteria=[self._criterion(each, given) for each in given.criteria])
            case forms.QuestionsInput() as given:
                return self._questions(given)
        raise JudgeUnable(
            f"a scripted judge cannot answer the step {request.step!r} in this form", usage=Usage()
        )

    def _extract(self, given: forms.ExtractInput) -> forms.ExtractReply:
        shown = sorted((*given.sentences, *given.surroundings), key=lambda sentence: sentence.number)
        scripted = _found(self._script.answers, " ".join(sentence.text for sentence in shown))
        if scripted is None:
            kinds = [claim_kind(sentence.text) for sentence in given.sentences]
            claims = [
                forms.ExtractedClaim(id=number, sentence_ids=[sentence.number], text=sentence.text, kind=kind)
                for number, (sentence, kind) in enumerate(zip(given.sentences, kinds, strict=True), start=1)
            ]
            return forms.ExtractReply(claims=claims, refusal="refusal" in kinds and "factual" not in kinds)
        _raise(scripted.error)
        around = {sentence.number for sentence in given.surroundings}
        found = [ScriptedClaim(text=claim) if isinstance(claim, str) else claim for claim in scripted.claims]
        claims = [
            forms.ExtractedClaim(id=number, sentence_ids=claim.sentences, text=claim.text, kind=claim.kind)
            for number, claim in enumerate(found, start=1)
            if not around.intersection(claim.sentences)
        ]
        return forms.ExtractReply(claims=claims, refusal=scripted.refusal)

    def _verdict(
        self, claim: forms.NumberedText, chunks: tuple[forms.NumberedText, ...]
    ) -> forms.GivenVerdict:
        scripted = _of_text(self._script.claims, claim.text)
        if scripted is None:
            return _by_words(claim, chunks)
        if isinstance(scripted, str):
            scripted = _with_evidence(scripted, chunks)
        return forms.GivenVerdict(id=claim.number, **scripted.model_dump())

    def _grade(self, chunk: forms.NumberedText, question: str) -> forms.GivenGrade:
        scripted = _found(self._script.chunks, chunk.text)
        grade = _shared_words(question, chunk.text) if scripted is None else scripted
        return forms.GivenGrade(id=chunk.number, reason="", relevance=grade)

    def _relevance(self, statement: forms.NumberedText) -> forms.GivenRelevance:
        scripted = (claim for answer in self._script.answers.values() for claim in answer.claims)
        said: Mapping[str, forms.Relevance] = {
            claim.text: claim.relevance for claim in scripted if isinstance(claim, ScriptedClaim)
        }
        relevance = _of_text(said, statement.text) or "direct"
        return forms.GivenRelevance(id=statement.number, relevance=relevance)

    def _criterion(self, criterion: forms.NumberedText, given: forms.CriteriaInput) -> forms.GivenCriterion:
        scripted = _of_text(self._script.criteria, criterion.text)
        if scripted is None:
            scripted = _shared_words(criterion.text, given.answer) == _BEST_GRADE
        if isinstance(scripted, bool):
            scripted = ScriptedCriterion(met=scripted)
        return forms.GivenCriterion(id=criterion.number, **scripted.model_dump())

    def _questions(self, given: forms.QuestionsInput) -> forms.QuestionsReply:
        questions = _found(self._script.questions, given.answer)
        if questions is not None:
            return forms.QuestionsReply(questions=questions, noncommittal=False)
        first = next((sentence.text for sentence in split_sentences(given.answer)), "")
        return forms.QuestionsReply(questions=[first.rstrip(".!") + "?"], noncommittal=is_refusal(first))


def open_scripted(settings: JudgeSettings) -> Judge:
    """Open ``scripted:PATH``; without a path, the judge compares words.

    Raises:
        ConfigError: the file cannot be read, or is not a script.
    """
    return ScriptedJudge.from_file(settings.argument) if settings.argument else ScriptedJudge()


def _raise(error_type: str | None) -> None:
    if error_type is None:
        return
    if error_type not in _ERRORS:
        raise ConfigError(f"the script's `error` {error_type!r} is not one of {', '.join(sorted(_ERRORS))}")
    raise _ERRORS[error_type](f"the script says {error_type}")


def _found(scripted: Mapping[str, ScriptedT], text: str) -> ScriptedT | None:
    """Return what the script says of the first of its texts that is in this one."""
    words = _words(text)
    return next((said for part, said in scripted.items() if _words(part) in words), None)


def _of_text(scripted: Mapping[str, ScriptedT], text: str) -> ScriptedT | None:
    """Return what the script says of a text as a whole."""
    words = _words(text)
    return next((said for whole, said in scripted.items() if _words(whole) == words), None)


def _with_evidence(label: _Word, chunks: tuple[forms.NumberedText, ...]) -> ScriptedVerdict:
    first = next((chunk for chunk in chunks if chunk.text.strip()), None)
    if label != "supported" or first is None:
        return ScriptedVerdict(label=label)
    return ScriptedVerdict(
        label=label, chunks=[first.number], quote=split_sentences(first.text)[0].text[:1000]
    )


def _by_words(claim: forms.NumberedText, chunks: tuple[forms.NumberedText, ...]) -> forms.GivenVerdict:
    def given(
        label: forms.VerdictWord, reason: str = "", cited: Sequence[int] = (), quote: str = ""
    ) -> forms.GivenVerdict:
        return forms.GivenVerdict(id=claim.number, chunks=[*cited], quote=quote, label=label, reason=reason)

    bare = _CITATION.sub("", claim.text).strip(" .!")
    for chunk in chunks:
        if at := re.search(re.escape(bare), chunk.text, re.IGNORECASE):
            return given("supported", cited=[chunk.number], quote=at[0])
    masked = _masked(bare)
    for chunk in chunks:
        if masked != _words(bare) and (quote := _by_masked(chunk.text).get(masked)):
            return given("contradicted", "the numbers differ", [chunk.number], quote)
    return given("not_mentioned")


@lru_cache(maxsize=256)
def _by_masked(text: str) -> Mapping[str, str]:
    return {_masked(sentence.text): sentence.text for sentence in split_sentences(text)}


def _shared_words(question: str, text: str) -> forms.ChunkRelevance:
    wanted = {word for word in _words(question).split() if len(word) >= _LONG_WORD}
    there = wanted.intersection(_words(text).split())
    return 0 if not there else 2 if 2 * len(there) >= len(wanted) else 1


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _masked(text: str) -> str:
    return re.sub(r"\d+", "#", _words(text))
