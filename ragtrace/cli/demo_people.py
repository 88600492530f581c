"""A judge that repeats what the sample's annotators said, as verdicts: what a true verdict looks like.

It knows the answers of the sample, and abstains from any other text. Each sentence that the annotators
labeled is a claim. They marked what is wrong, and did not say which passage a conflict is with: that quote
is ragtrace's own, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from ragtrace.cli.render import shortened
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
from ragtrace.model import Chunk, JudgeIdentity, RagRecord, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import split_sentences

ReplyT = TypeVar("ReplyT", bound=BaseModel)

PEOPLE: Final = JudgeIdentity(provider="human", model="ragtruth", computes=True, is_human=True)
PEOPLE_NAME: Final = f"{PEOPLE.provider}:{PEOPLE.model}"
PEOPLE_JUDGE: Final = "ragtrace.cli.demo_people:open_people"
"""What a collector's `judge.use` calls it."""
_WORDS: Final[Mapping[str, VerdictWord]] = {
    "supported": "supported",
    "contradicted": "contradicted",
    "neutral": "not_mentioned",
}
_UNKNOWN: Final = "the annotators did not see this sentence"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class AnnotatedText(_Frozen):
    """What the annotators marked in a sentence."""

    text: str
    type: str
    """Their word for it: ``Evident Conflict``, ``Subtle Baseless Info``, …"""


class SampleEvidence(_Frozen):
    """What contradicts a sentence; not the annotators', but ragtrace's own."""

    context: str
    """The passage's id."""
    quote: str


class LabeledSentence(_Frozen):
    """A sentence of an answer, with what the annotators said of it."""

    text: str
    label: Literal["supported", "contradicted", "neutral"]
    marked: tuple[AnnotatedText, ...] = ()
    evidence: SampleEvidence | None = None


class _Passage(_Frozen):
    id: str
    text: str


class DemoAnswer(_Frozen):
    """A question, the passages retrieved for it, a model's answer, and what people said of it.

    `ragtrace calibrate` reads the same rows.
    """

    id: str
    question: str
    contexts: tuple[_Passage, ...]
    answer: str
    model: str
    claims: tuple[LabeledSentence, ...]
    """What the annotators labeled, in the order of the answer."""

    @property
    def record(self) -> RagRecord:
        """What a judge sees."""
        chunks = tuple(Chunk(id=one.id, text=one.text, rank=at) for at, one in enumerate(self.contexts))
        return RagRecord(id=self.id, question=self.question, chunks=chunks, answer=self.answer)

    @property
    def marked_sentences(self) -> tuple[str, ...]:
        """The sentences with a mark: without one, the answer is faithful."""
        return tuple(sentence.text for sentence in self.claims if sentence.label != "supported")


def load_sample() -> tuple[DemoAnswer, ...]:
    """Read the sample of RAGTruth that is shipped with ragtrace."""
    text = (files("ragtrace.cli") / "data" / "ragtruth_qa_sample.jsonl").read_text("utf-8")
    return tuple(map(DemoAnswer.model_validate_json, text.splitlines()))


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
        given = {(sentence.number, sentence.text) for sentence in sentences}
        own = ({(each.number, each.text) for each in split_sentences(one.answer)} for one in self.sample)
        labeled = next((one for one, parts in zip(self.sample, own, strict=True) if given <= parts), None)
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
        labeled = next((a for a in self.sample if shown.keys() & {each.text for each in a.contexts}), None)
        said = {" ".join(each.text.split()): each for each in labeled.claims} if labeled else {}
        numbers = {each.id: shown.get(each.text) for each in labeled.contexts} if labeled else {}
        asked = {claim.number: " ".join(claim.text.split()) for claim in given.claims}
        known = {number: said[text] for number, text in asked.items() if text in said}
        unknown = asked.keys() - known.keys()
        return JudgeReply(
            value=VerifyReply(verdicts=[_verdict(number, known[number], numbers) for number in known]),
            usage=Usage(calls=1),
            abstained=frozenset(unknown),
            notes=dict.fromkeys(unknown, _UNKNOWN),
        )


def _covered(answer: DemoAnswer) -> Iterator[tuple[str, set[int]]]:
    """Yield the labeled sentences, with the numbers of ours that each overlaps."""
    parts, at = split_sentences(answer.answer), 0
    for labeled in answer.claims:
        start = answer.answer.index(labeled.text, at)
        at = start + len(labeled.text)
        yield labeled.text, {part.number for part in parts if part.start < at and part.end > start}


def _verdict(number: int, said: LabeledSentence, chunks: Mapping[str, int | None]) -> GivenVerdict:
    evidence = said.evidence
    cited = chunks.get(evidence.context) if evidence else None
    marked = " and ".join(f"“{shortened(part.text, 80)}” ({part.type})" for part in said.marked)
    looked_up = " They named no passage: ragtrace's authors looked up the quote." if evidence else ""
    return GivenVerdict(
        id=number,
        chunks=[] if cited is None else [cited],
        quote=evidence.quote if evidence else "",
        label=_WORDS[said.label],
        reason=f"The annotators marked {marked}.{looked_up}"[:400] if marked else "",
    )
