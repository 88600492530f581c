"""A judge that repeats what the sample's annotators said, as verdicts: what a true verdict looks like.

It knows the answers of the sample, and abstains from any other text. Each sentence that the annotators
labeled is a claim. They marked what is wrong, and did not say which passage a conflict is with: that quote
is ragtrace's own, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from ragtrace.cli.demo.traffic import DemoAnswer, LabeledSentence, load_sample
from ragtrace.errors import JudgeUnable
from ragtrace.judge.spec import JudgeSettings
from ragtrace.judge_forms import (
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenVerdict,
    NumberedText,
    VerdictWord,
    VerifyInput,
    VerifyReply,
)
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import split_sentences

ReplyT = TypeVar("ReplyT", bound=BaseModel)

PEOPLE: Final = JudgeIdentity(provider="human", model="ragtruth", computes=True, is_human=True)
PEOPLE_NAME: Final = f"{PEOPLE.provider}:{PEOPLE.model}"
PEOPLE_JUDGE: Final = "ragtrace.cli.demo.people:open_people"
"""What a collector's `judge.use` calls it."""
_WORDS: Final[Mapping[str, VerdictWord]] = {
    "supported": "supported",
    "contradicted": "contradicted",
    "neutral": "not_mentioned",
}
_UNKNOWN: Final = "the annotators did not see this sentence"


def open_people(settings: JudgeSettings) -> Judge:
    """Open the judge; there is nothing to set."""
    return PeopleJudge(load_sample())


@dataclass(frozen=True, slots=True)
class PeopleJudge:
    """Repeats the labels of these answers."""

    sample: Sequence[DemoAnswer]
    identity: JudgeIdentity = field(default=PEOPLE, init=False)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer from the labels.

        Raises:
            JudgeUnable: the annotators were not asked this.
        """
        reply: JudgeReply[Any]
        match request.inputs:
            case ExtractInput() as given if request.reply_type is ExtractReply:
                reply = JudgeReply(value=self._claims(given.sentences), usage=Usage(calls=1))
            case VerifyInput() as given if request.reply_type is VerifyReply:
                reply = self._verdicts(given)
            case _:
                raise JudgeUnable(
                    f"the annotators labeled claims: they have no answer to the step {request.step!r}",
                    usage=Usage(),
                )
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _claims(self, sentences: Sequence[NumberedText]) -> ExtractReply:
        labeled = next((answer for answer in self.sample if _has(answer, sentences)), None)
        asked = {sentence.number for sentence in sentences}
        found = _covered(labeled) if labeled else ()
        claims = [
            ExtractedClaim(id=number, sentence_ids=sorted(covered & asked), text=text, kind="factual")
            for number, (text, covered) in enumerate(found, start=1)
            if covered & asked
        ]
        return ExtractReply(claims=claims, refusal=False)

    def _verdicts(self, given: VerifyInput) -> JudgeReply[VerifyReply]:
        shown = {chunk.text: chunk.number for chunk in given.chunks}
        labeled = next((a for a in self.sample if shown.keys() & {chunk.text for chunk in a.chunks}), None)
        said = {_flat(sentence.text): sentence for sentence in labeled.sentences} if labeled else {}
        numbers = {chunk.id: shown.get(chunk.text or "") for chunk in labeled.chunks} if labeled else {}
        known = {claim.number: said[_flat(claim.text)] for claim in given.claims if _flat(claim.text) in said}
        unknown = {claim.number for claim in given.claims} - known.keys()
        return JudgeReply(
            value=VerifyReply(verdicts=[_verdict(number, known[number], numbers) for number in known]),
            usage=Usage(calls=1),
            abstained=frozenset(unknown),
            notes=dict.fromkeys(unknown, _UNKNOWN),
        )


def _has(answer: DemoAnswer, sentences: Iterable[NumberedText]) -> bool:
    own = {part.number: part.text for part in split_sentences(answer.answer)}
    return all(own.get(sentence.number) == sentence.text for sentence in sentences)


def _covered(answer: DemoAnswer) -> Iterator[tuple[str, set[int]]]:
    """Yield the labeled sentences, with the numbers of ours that each overlaps."""
    parts, at = split_sentences(answer.answer), 0
    for labeled in answer.sentences:
        start = answer.answer.index(labeled.text, at)
        at = start + len(labeled.text)
        yield labeled.text, {part.number for part in parts if part.start < at and part.end > start}


def _verdict(number: int, said: LabeledSentence, chunks: Mapping[str, int | None]) -> GivenVerdict:
    evidence = said.evidence
    cited = chunks.get(evidence.context) if evidence else None
    return GivenVerdict(
        id=number,
        chunks=[] if cited is None else [cited],
        quote=evidence.quote if evidence else "",
        label=_WORDS[said.label],
        reason=_reason(said),
    )


def _reason(said: LabeledSentence) -> str:
    if not said.marked:
        return ""
    marked = " and ".join(f"“{_cut(part.text)}” ({part.type})" for part in said.marked)
    quote = " They named no passage: ragtrace's authors looked up the quote." if said.evidence else ""
    return f"The annotators marked {marked}.{quote}"[:400]


def _cut(text: str, longest: int = 80) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _flat(text: str) -> str:
    return " ".join(text.split())
