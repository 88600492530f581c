"""The judge steps that metrics share: listed in `STEPS`.

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
- A truncated reply is requested again in halves (`ragtrace.metrics.asking`).
- A context that is too long for one call is divided into packs: supported if any pack supports, contradicted
  if one contradicts and none supports, unsupported only if every pack says so.

Steps C and D show the judge the same chunks, which are most of the cost of a request. A `Bundle` wraps the
judge of the two steps: it holds back the first request of each until it has both, asks once, and returns to
each step its part of the reply. The steps check their parts as usual; their further requests pass through
unchanged. Asking for the relevance of statements in step A would save a call but costs accuracy (ADR 0004).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeError, JudgeNonsense
from ragtrace.judge_forms import (
    ChunkRelevance,
    ChunksInput,
    ChunksReply,
    CriteriaInput,
    CriteriaReply,
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    GivenCriterion,
    GivenGrade,
    GivenRelevance,
    NumberedText,
    QuestionsInput,
    QuestionsReply,
    Relevance,
    RelevanceInput,
    RelevanceReply,
    RetrievalInput,
    RetrievalReply,
    TurnText,
    VerifyInput,
    VerifyReply,
)
from ragtrace.judge_steps import (
    ClaimExtraction,
    Grading,
    Prompt,
    PromptName,
    Regeneration,
    Statement,
    StepName,
    Verification,
)
from ragtrace.metrics._evidence import FoldedText, pack_chunks
from ragtrace.metrics.asking import (
    ItemReplies,
    Material,
    PartialAnswers,
    Step,
    ask_each,
    ask_items,
    batches,
    both,
    chunk_sections,
    numbered_section,
    one_a_number,
    output_tokens,
    together,
)
from ragtrace.metrics.fence import Section, fenced
from ragtrace.metrics.verify import RECALL, VERIFY, verify_reference
from ragtrace.model import (
    OF_CRITERION,
    Chunk,
    ChunkVerdict,
    Claim,
    JudgeIdentity,
    Usage,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.sentences import Sentence, is_heading

_MIN_REPEATED_CHARS = 10
_EARLIER: Final = "earlier turns: only to see what words stand for, list nothing from them"


async def extract_claims(material: Material) -> ClaimExtraction:
    """Ask for the claims of an answer."""
    parts = batches(material.sentences, material.limits.sentences_per_call)
    answers = await together(
        ask_items(part, partial(_ask_statements, material), _fail_whole) for part in parts
    )
    return _join([part for found in answers for part in found.parts], material.sentences)


async def _ask_statements(
    material: Material, part: Sequence[Sentence], surroundings: Sequence[Sentence], again: bool
) -> _Found:
    answer = material.record.answer or ""
    given = ExtractInput(
        question=material.record.question,
        sentences=_numbered(part),
        headings=frozenset(sentence.number for sentence in part if is_heading(answer, sentence)),
        surroundings=_numbered(surroundings),
        earlier=tuple(
            TurnText(question=turn.question, answer=turn.answer) for turn in material.record.earlier_turns
        ),
    )
    reply = await material.judge.ask(EXTRACT.request(given, material, again=again))
    return _Found((_Part.check(reply.value, asked=part, shown=(*part, *surroundings)),))


def _fail_whole(part: Sequence[Sentence], error: JudgeCutOff) -> _Found:
    # claims that nobody sees would make the score better
    raise error


def _render_extract(given: ExtractInput, code: str) -> str:
    around = [numbered_section("surroundings", given.surroundings)] if given.surroundings else []
    asked = ("question", [given.question or "(not recorded)"])
    before = [(_EARLIER, [*_lines(given.earlier)])] if given.earlier else []
    return fenced(code, [*before, asked, *around, numbered_section("answer", given.sentences)])


def _lines(turns: Iterable[TurnText]) -> Iterator[str]:
    for turn in turns:
        if turn.question:
            yield f"question: {' '.join(turn.question.split())}"
        yield f"answer: {' '.join(turn.answer.split())}"


EXTRACT: Final = Step(
    name="extract",
    prompts=("extract",),
    reply=ExtractReply,
    render=_render_extract,
    output_tokens=lambda given: output_tokens([sentence.text for sentence in given.sentences]),
    run=extract_claims,
)


@dataclass(frozen=True, slots=True)
class _Found(PartialAnswers[Sentence]):
    """The statements of several replies."""

    parts: tuple[_Part, ...]

    def joined(self, other: _Found) -> _Found:
        """Add the statements of a further reply; those of one that cites unknown sentences go."""
        return _Found((*(part for part in self.parts if not part.rejected), *other.parts))

    def missing(self, items: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return the sentences that no statement cites; none if the answer is a refusal.

        If a statement cites no sentence that exists, the reply's numbers may all be shifted.
        """
        if any(part.rejected for part in self.parts):
            return items
        cited = {number for part in self.parts for number in part.cited}
        left_out = [sentence for sentence in items if sentence.number not in cited]
        return () if all(part.refusal for part in self.parts) else left_out

    def without_missing(self, items: Sequence[Sentence]) -> _Found:
        """Leave it at that: a sentence may state nothing.

        Raises:
            JudgeNonsense: a statement cites no sentence that exists, again.
        """
        if any(part.rejected for part in self.parts):
            raise JudgeNonsense(
                "the judge cites sentences that the answer does not have, twice", usage=Usage()
            )
        return self


def _numbered(sentences: Iterable[Sentence]) -> tuple[NumberedText, ...]:
    return tuple(NumberedText(number=sentence.number, text=sentence.text) for sentence in sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One checked reply."""

    stated: tuple[Statement, ...]
    """With the asked sentences that they cite, not yet numbered."""
    rejected: int
    refusal: bool

    @property
    def cited(self) -> set[int]:
        return {number for statement in self.stated for number in statement.sentences}

    @classmethod
    def check(cls, reply: ExtractReply, *, asked: Sequence[Sentence], shown: Sequence[Sentence]) -> _Part:
        texts = {sentence.number: _bare(sentence.text) for sentence in shown}
        cited = [(_sources(claim, texts), claim) for claim in reply.claims if claim.text.strip()]
        known = [(numbers, claim) for numbers, claim in cited if numbers & texts.keys()]
        stated = []
        for numbers, claim in known:
            if sources := [sentence for sentence in asked if sentence.number in numbers]:
                text, (start, end) = " ".join(claim.text.split()), (sources[0].start, sources[-1].end)
                stated.append(
                    Statement(
                        claim=Claim(index=0, text=text, start=start, end=end, kind=claim.kind),
                        sentences=tuple(sentence.number for sentence in sources),
                    )
                )
        return cls(stated=tuple(stated), rejected=len(reply.claims) - len(known), refusal=reply.refusal)


def _sources(claim: ExtractedClaim, texts: Mapping[int, str]) -> set[int]:
    """Return the sentences that the claim cites; a sentence that it repeats takes precedence."""
    cited, repeated = {*claim.sentence_ids}, _bare(claim.text)
    if len(repeated) < _MIN_REPEATED_CHARS:
        return cited
    repeating = [number for number, text in texts.items() if repeated in text]
    return {repeating[0]} if repeating and cited.isdisjoint(repeating) else cited


def _bare(text: str) -> str:
    return " ".join(text.split()).rstrip(" .!").casefold()


def _join(parts: Sequence[_Part], sentences: Sequence[Sentence]) -> ClaimExtraction:
    # a repeated statement must count once
    once = dict.fromkeys(statement for part in parts for statement in part.stated)
    statements = tuple(
        replace(statement, claim=replace(statement.claim, index=index))
        for index, statement in enumerate(sorted(once, key=lambda one: one.sentences[0]))
    )
    factual = (statement.claim for statement in statements if statement.claim.kind == "factual")
    covered = {number for part in parts for number in part.cited}
    return ClaimExtraction(
        claims=tuple(replace(claim, index=index) for index, claim in enumerate(factual)),
        statements=statements,
        refusal=bool(parts) and all(part.refusal for part in parts),
        sentence_coverage=len(covered) / len(sentences) if sentences else None,
        rejected=sum(part.rejected for part in parts),
    )


_RELEVANCES: Mapping[Relevance, VerdictLabel] = {
    "direct": VerdictLabel.RELEVANT,
    "supporting": VerdictLabel.PARTLY_RELEVANT,
    "irrelevant": VerdictLabel.IRRELEVANT,
}


async def grade_statements(material: Material) -> tuple[Verdict, ...]:
    """Ask for the relevance of each statement."""
    statements = (await material.extraction()).statements
    numbered = [
        NumberedText(number=statement.claim.index + 1, text=statement.claim.text) for statement in statements
    ]
    question = material.record.question or ""
    replies: ItemReplies[GivenRelevance] = await ask_each(
        RELEVANCE,
        material,
        numbered,
        material.limits.statements_per_call,
        lambda some: RelevanceInput(question=question, statements=some),
    )
    return tuple(
        Verdict(claim=statement.claim, label=_RELEVANCES[found.relevance])
        if (found := replies.found.get(item.number))
        else replies.unjudged(statement.claim)
        for statement, item in zip(statements, numbered, strict=True)
    )


RELEVANCE: Final[Step[RelevanceInput, RelevanceReply, tuple[Verdict, ...]]] = Step(
    name="relevance",
    prompts=("relevance",),
    after=("extract",),
    reply=RelevanceReply,
    render=lambda given, code: fenced(
        code, [("question", [given.question]), numbered_section("statements", given.statements)]
    ),
    output_tokens=lambda given: output_tokens([""] * len(given.statements)),
    items="statements",
    run=grade_statements,
)


_GRADES: Mapping[ChunkRelevance, VerdictLabel] = {
    2: VerdictLabel.RELEVANT,
    1: VerdictLabel.PARTLY_RELEVANT,
    0: VerdictLabel.IRRELEVANT,
}
_BEST: ChunkRelevance = 2


async def grade_chunks(material: Material) -> Grading:
    """Ask for a grade on each chunk. The fence code seeds the order of the chunks.

    A chunk that is too long for one call is graded in pieces, and gets the best grade of its pieces.
    """
    chunks, limits = material.record.chunks, material.limits
    reference = (material.record.reference or "").strip() or None
    packs = _packs(chunks, material.fence_code, limits.context_chars)
    question = material.record.question or ""
    answers: list[ItemReplies[GivenGrade]] = await together(
        ask_each(
            CHUNKS,
            material,
            pack,
            limits.chunks_per_call,
            lambda some: ChunksInput(question=question, reference=reference, chunks=some),
        )
        for pack in packs[: limits.max_packs]
    )
    pieces = Counter(piece.number for pack in packs for piece in pack)
    ranked = sorted(enumerate(chunks, start=1), key=lambda numbered: numbered[1].rank)
    return Grading(
        verdicts=tuple(
            _chunk_verdict(chunk.id, rank, number, pieces[number], answers)
            for rank, (number, chunk) in enumerate(ranked)
        ),
        rejected=sum(answer.rejected for answer in answers),
        with_reference=reference is not None,
    )


def _render_chunks(given: ChunksInput, code: str) -> str:
    reference: list[Section] = [("reference", [given.reference])] if given.reference else []
    return fenced(code, [("question", [given.question]), *reference, *chunk_sections(given.chunks)])


CHUNKS: Final = Step(
    name="chunks",
    prompts=("chunks", "retrieval"),
    reply=ChunksReply,
    render=_render_chunks,
    output_tokens=lambda given: output_tokens([""] * len(given.chunks)),
    items="chunks",
    run=grade_chunks,
)


def _packs(chunks: Sequence[Chunk], seed: str, pack_chars: int) -> list[list[NumberedText]]:
    # numbered as for the other steps, and shuffled: judges prefer what they read first
    numbered = (NumberedText(number=n, text=chunk.text or "") for n, chunk in enumerate(chunks, start=1))
    shown = [chunk for chunk in numbered if chunk.text.strip()]
    random.Random(seed).shuffle(shown)
    return [one_a_number(pack) for pack in pack_chunks(shown, pack_chars)]


def _chunk_verdict(
    chunk_id: str, rank: int, number: int, pieces: int, answers: Sequence[ItemReplies[GivenGrade]]
) -> ChunkVerdict:
    """Return the best grade among the pieces of a chunk, or why there is none."""
    grades = [answer.found[number] for answer in answers if number in answer.found]
    best = max(grades, key=lambda grade: grade.relevance, default=None)
    if best and (best.relevance == _BEST or len(grades) == pieces):
        reason = best.reason.strip() or None
        return ChunkVerdict(chunk_id=chunk_id, rank=rank, label=_GRADES[best.relevance], reason=reason)
    given_up = (answer.given_up[number] for answer in answers if number in answer.given_up)
    why = next(given_up, "the context is too long to show all of the chunk")
    return ChunkVerdict(
        chunk_id=chunk_id,
        rank=rank,
        label=VerdictLabel.UNJUDGED,
        reason=why if pieces else "the chunk has no text",
        omitted=any(number in answer.omitted for answer in answers),
    )


ReplyT = TypeVar("ReplyT", bound=BaseModel)


async def grade_and_recall(material: Material) -> tuple[Grading, Verification]:
    """Run both steps, with one request if the judge takes it."""
    if not material.judge.identity.computes:  # a second judge may be such a one; it has no combined request
        bundle = Bundle(material.judge, prompt=material.prompts.retrieval, fence_code=material.fence_code)
        material = replace(material, judge=bundle)
    return await both(grade_chunks(material), verify_reference(material))


class Bundle:
    """A judge for one run of the steps ``chunks`` and ``recall``, both of which must ask."""

    def __init__(self, judge: Judge, *, prompt: Prompt, fence_code: str) -> None:
        self._judge = judge
        self._prompt = prompt
        self._fence_code = fence_code
        self._combined: set[str] = set()
        """The steps whose first requests were taken."""
        self._first: dict[str, JudgeRequest[Any]] = {}
        """Those requests, until they are sent: they hold the material, which holds this."""
        self._reply: asyncio.Future[JudgeReply[RetrievalReply] | None] = asyncio.Future()

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; the first requests of the two steps are combined.

        If the judge cannot answer the combined request, each is asked separately.
        """
        if request.step in self._combined:
            return await self._judge.ask(request)
        self._combined.add(request.step)
        self._first[request.step] = request
        if len(self._first) == 2:
            await self._ask_both()
        reply = await self._reply
        if reply is None:
            return await self._judge.ask(request)
        part = getattr(reply.value, _PARTS[request.step])
        value = request.reply_type.model_construct(**{_PARTS[request.step]: part})
        return JudgeReply(value=value, usage=reply.usage)

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()

    async def _ask_both(self) -> None:
        try:
            both = self._request()
            self._first.clear()
            self._reply.set_result(await self._judge.ask(both))
        except JudgeNonsense:
            self._reply.set_result(None)
        except JudgeError as failed:
            self._reply.set_exception(failed)
        except BaseException:
            self._reply.cancel()
            raise

    def _request(self) -> JudgeRequest[RetrievalReply]:
        chunks, recall = self._first["chunks"], self._first["recall"]
        graded, verified = cast(ChunksInput, chunks.inputs), cast(VerifyInput, recall.inputs)
        given = RetrievalInput(question=graded.question, chunks=graded.chunks, claims=verified.claims)

        def check(reply: RetrievalReply) -> None:
            if recall.check:
                recall.check(VerifyReply(verdicts=reply.verdicts))

        return JudgeRequest(
            step="retrieval",
            system=self._prompt.text,
            user=_render_retrieval(given, self._fence_code),
            reply_type=RetrievalReply,
            inputs=given,
            max_output_tokens=chunks.max_output_tokens + recall.max_output_tokens,
            check=check,
        )


_PARTS: Final = {"chunks": "chunks", "recall": "verdicts"}
"""The part of the combined reply that is the reply to a step."""


def _render_retrieval(given: RetrievalInput, code: str) -> str:
    claims = numbered_section("claims", given.claims)
    return fenced(code, [("question", [given.question]), *chunk_sections(given.chunks), claims])


_QUESTION_TOKENS = 512
_ROUNDING = 1e-9


async def regenerate_questions(material: Material) -> Regeneration:
    """Ask for questions that the answer would answer; the judge does not see the real one."""
    shown = material.sentences
    given = QuestionsInput(answer=(material.record.answer or "")[: shown[-1].end] if shown else "")
    reply = await material.judge.ask(QUESTIONS.request(given, material))
    worded = (" ".join(question.split()) for question in reply.value.questions)
    questions = dict.fromkeys(question for question in worded if question)
    return Regeneration(questions=tuple(questions), noncommittal=reply.value.noncommittal)


QUESTIONS: Final[Step[QuestionsInput, QuestionsReply, Regeneration]] = Step(
    name="questions",
    prompts=("questions",),
    reply=QuestionsReply,
    render=lambda given, code: fenced(code, [("answer", [given.answer])]),
    output_tokens=lambda given: _QUESTION_TOKENS,
    run=regenerate_questions,
)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors, in [-1, 1].

    Raises:
        JudgeNonsense: a length is 0 or not finite, or the dimensions differ.
    """
    if len(one) != len(other):
        raise JudgeNonsense(f"the embedder gave vectors of {len(one)} and {len(other)} dimensions")
    lengths = math.hypot(*one) * math.hypot(*other)
    if not lengths or not math.isfinite(lengths):
        raise JudgeNonsense("the embedder gave a vector whose length is 0 or not finite")
    value = math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths
    return math.copysign(1.0, value) if 1 < abs(value) < 1 + _ROUNDING else value  # a rounding error


async def check_criteria(material: Material, criteria: Sequence[str]) -> Mapping[str, Verdict]:
    """Ask whether the answer meets each of these criteria."""
    shown, question = material.sentences, material.record.question
    answer = (material.record.answer or "")[: shown[-1].end] if shown else ""
    numbered = [NumberedText(number=number, text=text) for number, text in enumerate(criteria, start=1)]
    replies: ItemReplies[GivenCriterion] = await ask_each(
        CRITERIA,
        material,
        numbered,
        material.limits.claims_per_call,
        lambda some: CriteriaInput(criteria=some, question=question, answer=answer),
    )
    folded = FoldedText(answer)
    return {item.text: _criterion_verdict(item, replies, folded) for item in numbered}


def _render_criteria(given: CriteriaInput, code: str) -> str:
    """Put the criteria, which are the operator's words, first and outside of the fence."""
    name, lines = numbered_section("criteria", given.criteria)
    question = [("question", [given.question])] if given.question else []
    return "\n".join([f"{name}:", *lines, fenced(code, [*question, ("answer", [given.answer])])])


CRITERIA: Final = Step(
    name="criteria",
    prompts=("criteria",),
    reply=CriteriaReply,
    render=_render_criteria,
    output_tokens=lambda given: output_tokens([criterion.text for criterion in given.criteria]),
    items="criteria",
    run=partial(check_criteria, criteria=()),
)


def _criterion_verdict(
    item: NumberedText, replies: ItemReplies[GivenCriterion], answer: FoldedText
) -> Verdict:
    claim = Claim(index=item.number - 1, text=item.text, kind=OF_CRITERION)
    found = replies.found.get(item.number)
    if found is None:
        return replies.unjudged(claim)
    quote = answer.find(found.quote)
    return Verdict(
        claim=claim,
        label=VerdictLabel.MET if found.met else VerdictLabel.NOT_MET,
        reason=found.reason.strip() or None,
        quote=quote,
        quote_verified=quote is not None,
    )


STEPS: Final[Mapping[StepName, Step[Any, Any, Any]]] = {
    step.name: step for step in (EXTRACT, RELEVANCE, VERIFY, CHUNKS, RECALL, QUESTIONS, CRITERIA)
}


@cache
def prompts_of(*steps: str) -> tuple[PromptName, ...]:
    """Return the names of the prompts that these steps may use, in the order of the steps."""
    used = (step for step in STEPS.values() if step.name in steps)
    return tuple(dict.fromkeys(name for step in used for name in step.prompts))
