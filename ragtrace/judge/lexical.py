"""The embedded judge: ranks claims by the words they share with the chunks. It needs no key and no download.

A logistic regression over lexical features gives each claim the probability that the chunks support it. It
ranks answers of RAG systems by suspicion; it is no judge: words that are all there and say something else
pass it. So there is a verdict only beyond cuts whose precision was measured, else it abstains:

- *unsupported*: the probability is below a cut, which it always is if no chunk has a number of the claim;
- *supported*: the probability is above another, a passage of a few sentences covers nearly all content words
  of the claim, and no number or name is missing;
- never *contradicted*: that needs understanding.

The relevance of a statement or chunk to the question needs understanding too: shared words explain why a
chunk was retrieved, not whether it helps. The judge abstains from relevance, so that there is no score, and
generates no questions.

It was trained on English answers (RAGTruth). German, French, Spanish, Chinese, Japanese and Arabic chunks are
compared by rules for their words, numbers and negations, under the same weights: there it ranks by coverage.
A claim in a language that no chunk is in is left open, without a probability.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from ragtrace.errors import JudgeUnable
from ragtrace.judge._support_features import (
    WINDOW_SENTENCES,
    BestWindow,
    ClaimedWords,
    best_windows,
    support_features,
)
from ragtrace.judge._support_model import SupportModel, shipped_model
from ragtrace.judge._word_index import PassageSentence, WordIndex
from ragtrace.judge._words import word_count
from ragtrace.judge.layers import limited
from ragtrace.judge.phrases import SENTENCE_ENDS, is_meta, without_source
from ragtrace.judge.refusals import declines, requests
from ragtrace.judge.spec import JudgeSettings
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
    ClaimKind,
    ExtractedClaim,
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

SUPPORT_COVERAGE = 0.8
MIN_CONTENT_WORDS = 2
_NO_WORTH = "comparing words does not tell what it is worth to the question"


class LexicalJudge:
    """Ranks claims by comparing words, names and numbers; decides only beyond measured cuts."""

    identity = JudgeIdentity(provider="lexical", model="lexical-v3", computes=True, contradicts=False)

    def __init__(self, model: SupportModel | None = None) -> None:
        """``model`` is by default that of the package."""
        self._model = model or shipped_model()

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request by computing.

        Raises:
            JudgeUnable: comparing words cannot answer it.
        """
        reply: JudgeReply[Any]
        match request.inputs:
            case ExtractInput() as given if request.reply_type is ExtractReply:
                reply = sentences_as_claims(given)
            case VerifyInput() as given if request.reply_type is VerifyReply:
                reply = await _verify(given, self._model)
            case ChunksInput() as given:
                reply = abstaining(ChunksReply(chunks=[]), (chunk.number for chunk in given.chunks))
            case RelevanceInput() as given:
                reply = abstaining(
                    RelevanceReply(statements=[]), (statement.number for statement in given.statements)
                )
            case _:
                what = f"the lexical judge cannot answer the step {request.step!r} in this form"
                raise JudgeUnable(what, usage=Usage())
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def open_lexical(settings: JudgeSettings) -> Judge:
    """Open ``lexical``."""
    return limited(LexicalJudge(), 1)  # concurrency makes it no faster and blocks the event loop longer


def sentences_as_claims(given: ExtractInput) -> JudgeReply[Any]:
    """Take each sentence for a claim: what judges do that cannot rephrase."""
    kinds = [claim_kind(sentence.text) for sentence in given.sentences]
    if "refusal" in kinds:
        told = zip(kinds, given.sentences, strict=True)
        kinds = ["meta" if requests(sentence.text) else kind for kind, sentence in told]
    claims = [
        ExtractedClaim(
            id=number, sentence_ids=[sentence.number], text=without_source(sentence.text), kind=kind
        )
        for number, (kind, sentence) in enumerate(zip(kinds, given.sentences, strict=True), start=1)
    ]
    reply = ExtractReply(claims=claims, refusal="refusal" in kinds and "factual" not in kinds)
    return JudgeReply(value=reply, usage=Usage(calls=1))


def abstaining(value: BaseModel, items: Iterable[int], why: str = _NO_WORTH) -> JudgeReply[Any]:
    """Return a reply that abstains from these items' relevance to the question."""
    abstained = frozenset(items)
    notes = dict.fromkeys(abstained, why)
    return JudgeReply(value=value, usage=Usage(calls=1), abstained=abstained, notes=notes)


def claim_kind(sentence: str) -> ClaimKind:
    """Classify a sentence by its wording: does it state something that can be checked?"""
    if declines(sentence):
        return "refusal"
    return "meta" if is_meta(sentence) or _is_heading(sentence) else "factual"


def _is_heading(sentence: str) -> bool:
    return word_count(sentence) <= 4 and sentence.strip(" *_")[-1:] not in SENTENCE_ENDS


async def _verify(given: VerifyInput, model: SupportModel) -> JudgeReply[VerifyReply]:
    passages = await WordIndex.of(given.chunks)
    verdicts: list[GivenVerdict] = []
    notes: dict[int, str] = {}
    support: dict[int, float] = {}
    words = [ClaimedWords.of(claim.text, passages.grammar) for claim in given.claims]
    sequences = passages.sequences(stem for claimed in words for stem in claimed.order)
    for claim, claimed in zip(given.claims, words, strict=True):
        await asyncio.sleep(0)  # long answers must not block the event loop
        probability, finding = _decide(claim, claimed, passages, sequences, model)
        if probability is not None:
            support[claim.number] = probability
        if isinstance(finding, str):
            notes[claim.number] = finding
        else:
            verdicts.append(finding)
    return JudgeReply(
        value=VerifyReply(verdicts=verdicts),
        usage=Usage(calls=1),
        abstained=frozenset(notes),
        notes=notes,
        support=support,
    )


def _decide(
    claim: NumberedText,
    claimed: ClaimedWords,
    passages: WordIndex,
    sequences: Set[tuple[str | None, ...]],
    model: SupportModel,
) -> tuple[float | None, GivenVerdict | str]:
    """Return the probability of support, and a verdict or the reason for abstaining."""
    if not _share_words(claimed, passages) and (language := passages.foreign(claim.text)):
        return None, f"the claim is in {language} and no chunk is: words cannot be compared"
    windows = best_windows(claimed, passages)
    support = model.support(support_features(claimed, passages, windows, sequences))
    if support < model.unsupported_below:
        return support, _silent(claim, _lacking(claimed, passages))
    passage = _passage(claimed, passages, windows)
    if isinstance(passage, str):
        return support, passage
    if support < model.supported_from:
        return support, "the words of the claim are there, but not as they are in supported claims"
    quote = _nearest(claimed, passages, passage).text
    return support, GivenVerdict(
        id=claim.number, chunks=[passage.chunk], quote=quote, label="supported", reason=""
    )


def _share_words(claimed: ClaimedWords, passages: WordIndex) -> bool:
    found = sum(held in passages.places for held in claimed.content)
    return found > 0 and found * 2 >= len(claimed.content)


def may_be_supported(claimed: ClaimedWords, passages: WordIndex, windows: Mapping[int, BestWindow]) -> bool:
    """Return whether the verdict *supported* is possible: nothing is missing, the words stand together."""
    return isinstance(_passage(claimed, passages, windows), BestWindow)


def _passage(
    claimed: ClaimedWords, passages: WordIndex, windows: Mapping[int, BestWindow]
) -> BestWindow | str:
    """Return the sentences that may support the claim, or what speaks against *supported*."""
    if strange := claimed.missing_names(passages):
        return f"no chunk names {', '.join(strange)}, but that may be another word for the same"
    if len(claimed.content) < MIN_CONTENT_WORDS:
        return "too few content words to compare"
    length = WINDOW_SENTENCES
    best = windows[length]
    if not passages.holds(best.window, claimed.numbers):
        best = best_windows(claimed, passages, (length,), with_numbers=True)[length]
    if best.covered < SUPPORT_COVERAGE * len(claimed.stems):
        share = best.covered / len(claimed.stems)
        return f"at best {share:.0%} of the words stand together: neither clearly there nor clearly missing"
    if claimed.negated != passages.negates(_nearest(claimed, passages, best)):
        return "the words stand together, but only one side negates"
    return best


def _nearest(claimed: ClaimedWords, passages: WordIndex, best: BestWindow) -> PassageSentence:
    sentences, content = [passages.sentences[at][1] for at in best.window], claimed.content
    return max(sentences, key=lambda sentence: len(content & sentence.stems))


def _lacking(claimed: ClaimedWords, passages: WordIndex) -> str:
    """Say what the chunks lack."""
    if absent := passages.lacking(claimed.numbers):
        return f"no chunk has the number {', '.join(sorted(first.lstrip('=#') for first, *_ in absent))}"
    if strange := claimed.missing_names(passages):
        return f"no chunk names {', '.join(strange)}"
    missing = sum(held not in passages.places for held in claimed.content)
    return (
        f"no chunk has {missing} of the {len(claimed.content)} content words, and few of them stand together"
    )


def _silent(claim: NumberedText, reason: str) -> GivenVerdict:
    return GivenVerdict(id=claim.number, chunks=[], quote="", label="not_mentioned", reason=reason[:400])
