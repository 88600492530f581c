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
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from operator import or_
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast

from pydantic import BaseModel, TypeAdapter

from ragtrace.errors import JudgeUnable
from ragtrace.judge._words import (
    POLARITY,
    PREFIX_CHARS,
    PassageSentence,
    Readings,
    StemmedWord,
    WordIndex,
    claimed_numbers,
    content_stems,
    has_negation,
    names,
    neighbors,
    ordered_stems,
    stem,
    with_dates_of,
)
from ragtrace.judge.phrases import (
    ENGLISH,
    SENTENCE_ENDS,
    Grammar,
    announces_answer,
    claim_kind,
    is_bare_reply,
    is_meta,
    is_refusal,
    requests,
    without_source,
)
from ragtrace.judge.spec import JudgeSettings
from ragtrace.judge_forms import (
    ChunksInput,
    ChunksReply,
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
from ragtrace.languages import one_spelling
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

SUPPORT_COVERAGE = 0.8
MIN_CONTENT_WORDS = 2


class ComparingJudge:
    """A judge that looks claims up in chunks: it takes sentences for claims, and tells no relevance."""

    identity: JudgeIdentity
    """Provider and model."""
    no_worth: ClassVar[str]
    """Why it abstains from relevance."""

    async def verify(self, given: VerifyInput) -> JudgeReply[VerifyReply]:
        """Look claims up in chunks."""
        raise NotImplementedError

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request by computing.

        Raises:
            JudgeUnable: comparing a claim with chunks cannot answer it.
        """
        reply: JudgeReply[Any]
        match request.inputs:
            case ExtractInput() as given if request.reply_type is ExtractReply:
                reply = sentences_as_claims(given)
            case VerifyInput() as given if request.reply_type is VerifyReply:
                reply = await self.verify(given)
            case ChunksInput() as given:
                reply = self._abstaining(ChunksReply(chunks=[]), given.chunks)
            case RelevanceInput() as given:
                reply = self._abstaining(RelevanceReply(statements=[]), given.statements)
            case _:
                who = self.identity.provider
                what = f"the judge `{who}` cannot answer the step {request.step!r} in this form"
                raise JudgeUnable(what, usage=Usage())
        return cast("JudgeReply[ReplyT]", reply)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    @staticmethod
    def _found(
        findings: Mapping[int, GivenVerdict | str], support: Mapping[int, float]
    ) -> JudgeReply[VerifyReply]:
        """Reply with the verdict on each claim, or why it is left open."""
        notes = {number: finding for number, finding in findings.items() if isinstance(finding, str)}
        return JudgeReply(
            value=VerifyReply(
                verdicts=[finding for finding in findings.values() if not isinstance(finding, str)]
            ),
            usage=Usage(calls=1),
            abstained=frozenset(notes),
            notes=notes,
            support=support,
        )

    def _abstaining(self, value: BaseModel, items: Iterable[NumberedText]) -> JudgeReply[Any]:
        notes = dict.fromkeys((item.number for item in items), self.no_worth)
        return JudgeReply(value=value, usage=Usage(calls=1), abstained=frozenset(notes), notes=notes)


class LexicalJudge(ComparingJudge):
    """Ranks claims by comparing words, names and numbers; decides only beyond measured cuts."""

    identity = JudgeIdentity(provider="lexical", model="lexical-v4", computes=True, contradicts=False)
    no_worth = "comparing words does not tell what it is worth to the question"
    most_at_once = 1
    """Concurrency makes it no faster and blocks the event loop longer."""

    def __init__(self, model: SupportModel | None = None) -> None:
        """``model`` is by default that of the package."""
        self._model = model or shipped_model()

    async def verify(self, given: VerifyInput) -> JudgeReply[VerifyReply]:
        """Rank each claim, and decide beyond the cuts."""
        passages = await WordIndex.of(given.chunks)
        findings: dict[int, GivenVerdict | str] = {}
        support: dict[int, float] = {}
        texts = (with_dates_of(passages, claim.text) for claim in given.claims)
        words = [ClaimedWords.of(text, passages.grammar) for text in texts]
        sequences = passages.sequences(stem for claimed in words for stem in claimed.order)
        for claim, claimed in zip(given.claims, words, strict=True):
            await asyncio.sleep(0)  # long answers must not block the event loop
            probability, findings[claim.number] = _decide(claim, claimed, passages, sequences, self._model)
            if probability is not None:
                support[claim.number] = probability
        return self._found(findings, support)


def open_lexical(settings: JudgeSettings) -> Judge:
    """Open ``lexical``."""
    return LexicalJudge()


def sentences_as_claims(given: ExtractInput) -> JudgeReply[Any]:
    """Take each sentence for a claim: what judges do that cannot rephrase."""
    kinds = [claim_kind(sentence.text) for sentence in given.sentences]
    for at, sentence in enumerate(given.sentences):
        if kinds[at] == "factual" and sentence.number in given.headings:
            kinds[at] = "meta"
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
    if claimed.is_lone_name and claimed.content.isdisjoint(passages.places):
        support = min(support, model.number_missing)
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
    if len(claimed.content) < MIN_CONTENT_WORDS and not claimed.is_bare:
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


WINDOW_SENTENCES = 3
FEATURE_LENGTHS = (1, 2, 3, 5)


@dataclass(frozen=True, slots=True)
class ClaimedWords:
    """The parts of a claim that a chunk must contain."""

    text: str
    words: tuple[StemmedWord, ...]
    stems: frozenset[str]
    """Of the content words; outside English, with whether the claim negates."""
    numbers: frozenset[Readings]
    names: Mapping[str, str]
    """With the stem of each."""
    negated: bool
    grammar: Grammar

    @classmethod
    def of(cls, text: str, grammar: Grammar = ENGLISH) -> ClaimedWords:
        """Take a claim apart by the rules of the chunks' language."""
        spelled = one_spelling(text)
        bare = without_source(spelled)
        words = ordered_stems(bare, grammar)
        return cls(
            text=spelled,
            words=words,
            stems=content_stems(bare, words, grammar),
            numbers=claimed_numbers(bare, grammar),
            names={name: stem(name, grammar) for name in names(bare, grammar)},
            negated=has_negation(bare, grammar),
            grammar=grammar,
        )

    @property
    def order(self) -> list[str]:
        """The stems of all words."""
        return [word.stem for word in self.words]

    @property
    def content(self) -> frozenset[str]:
        """The stems of the content words alone."""
        return self.stems - POLARITY

    @property
    def is_bare(self) -> bool:
        """Whether it is content alone, as short answers are: ``Paris``, ``30 days``, not ``It holds``."""
        return bool(self.content) and all(word.is_content or word.stem.isdecimal() for word in self.words)

    @property
    def is_lone_name(self) -> bool:
        """Whether the claim is one word that must be in a chunk: ``Paris``, not ``Yes``."""
        text = self.text.strip(" *_.")
        is_name = text.isalpha() and text[:1].isupper() and not is_bare_reply(text)
        return is_name and len(self.words) == len(self.content) == 1

    def missing_names(self, passages: WordIndex) -> list[str]:
        """Return the names that no chunk has; without capital letters, any content word may be one."""
        if not self.grammar.has_capitals:
            return sorted(self.content - passages.places.keys())
        return [name for name, held in self.names.items() if held not in passages.places]


@dataclass(frozen=True, slots=True)
class BestWindow:
    """The neighboring sentences that hold most content words of a claim."""

    chunk: int
    window: range
    covered: int
    """Number of the claim's content words in it."""


def best_windows(
    claimed: ClaimedWords,
    passages: WordIndex,
    lengths: Sequence[int] = FEATURE_LENGTHS,
    *,
    with_numbers: bool = False,
) -> Mapping[int, BestWindow]:
    """Return, by length, the window of so many sentences with most words of the claim; the first of several.

    At the end of a chunk, windows are shorter. ``with_numbers`` takes only windows that hold all numbers of
    the claim.
    """
    wanted = claimed.numbers if with_numbers else frozenset[Readings]()
    held = windows = passages.bits(claimed.stems)
    best: dict[int, BestWindow] = {}
    for length in range(1, max(lengths) + 1):
        if length > 1:
            windows = list(map(or_, windows, held[length - 1 :]))
        if length in lengths:
            best[length] = _best(list(map(int.bit_count, windows)), length, passages, wanted)
    return best


def _best(
    covers: Sequence[int], length: int, passages: WordIndex, numbers: frozenset[Readings]
) -> BestWindow:
    """Return the first window with most words, of those that hold these numbers.

    ``covers`` says for each start how many words the window covers.
    """
    most = max(covers, default=0)
    if not numbers:
        return _window(passages, covers.index(most), length, most) if most else _NO_WINDOW
    by_cover = sorted(range(len(covers)), key=covers.__getitem__, reverse=True)
    windows = (_window(passages, start, length, covers[start]) for start in by_cover if covers[start])
    return next((found for found in windows if passages.holds(found.window, numbers)), _NO_WINDOW)


def _window(passages: WordIndex, start: int, length: int, covered: int) -> BestWindow:
    while not passages.sentences[start][1].text:  # begins in a gap: the next chunk has it all
        start += 1
    return BestWindow(passages.sentences[start][0], range(start, start + length), covered)


_NO_WINDOW = BestWindow(0, range(0), 0)


def support_features(
    claimed: ClaimedWords,
    passages: WordIndex,
    windows: Mapping[int, BestWindow],
    sequences: Set[tuple[str | None, ...]],
) -> Mapping[str, float]:
    """Return the features of a claim against the chunks, by name.

    ``windows`` are its `best_windows`, ``sequences`` those of its words that the chunks have.
    """
    return {
        **_coverage(claimed, passages, windows),
        **_sequences(claimed, passages, sequences),
        **_numbers_and_names(claimed, passages),
        **_wording(claimed),
        "log_passages": math.log1p(passages.count),
    }


def _coverage(
    claimed: ClaimedWords, passages: WordIndex, windows: Mapping[int, BestWindow]
) -> dict[str, float]:
    stems = claimed.stems
    wanted = max(1, len(stems))
    missing = [held for held in stems if held not in passages.places]
    rarity = {
        held: math.log((passages.count + 1) / (len(passages.places.get(held, ())) + 0.5)) for held in stems
    }
    near = sum(held[:PREFIX_CHARS] in passages.prefixes for held in missing if len(held) >= PREFIX_CHARS)
    total = math.fsum(rarity.values()) or 1.0  # in whichever order the set is
    found = {f"cover_{length}": best.covered / wanted if stems else 1.0 for length, best in windows.items()}
    window = windows[3].window
    return found | {
        "cover_all": 1 - len(missing) / wanted,
        "rare_cover_all": 1 - math.fsum(rarity[held] for held in missing) / total,
        "missing_words": math.log1p(len(missing)),
        "near_words": near / wanted,
        "numbers_elsewhere": float(
            not passages.holds(window, claimed.numbers - passages.lacking(claimed.numbers))
        ),
        "negation_differs": float(_negation_differs(claimed, passages, windows[1].window)),
    }


def _negation_differs(claimed: ClaimedWords, passages: WordIndex, window: range) -> bool:
    return any(passages.negates(passages.sentences[at][1]) != claimed.negated for at in window)


def _sequences(
    claimed: ClaimedWords, passages: WordIndex, there: Set[tuple[str | None, ...]]
) -> dict[str, float]:
    order = claimed.order
    shares = {f"sequences_{length}": _share_held(order, there, length) for length in (2, 3)}
    run = longest = 0
    for word in claimed.words:
        if word.is_content:
            run = 0 if word.stem in passages.places else run + 1
            longest = max(longest, run)
    return shares | {"new_run": math.log1p(longest)}


def _share_held(order: Sequence[str], there: Set[tuple[str | None, ...]], length: int) -> float:
    found = list(map(there.__contains__, neighbors(order, length)))
    return sum(found) / len(found) if found else 1.0


def _numbers_and_names(claimed: ClaimedWords, passages: WordIndex) -> dict[str, float]:
    no_number = len(passages.lacking(claimed.numbers))
    no_name = len(claimed.missing_names(passages)) if claimed.names else 0
    return {
        "missing_numbers": math.log1p(no_number),
        "missing_numbers_share": no_number / max(1, len(claimed.numbers)),
        "missing_names": math.log1p(no_name),
        "missing_names_share": no_name / max(1, len(claimed.names)),
        "has_numbers": float(bool(claimed.numbers)),
        "has_names": float(bool(claimed.names)),
    }


def _wording(claimed: ClaimedWords) -> dict[str, float]:
    text = claimed.text
    return {
        "log_words": math.log1p(len(claimed.words)),
        "few_words": float(len(claimed.content) < 3),
        "about_answer": float(announces_answer(text) or is_meta(text)),
        "refusal": float(is_refusal(text)),
        "heading": float(len(claimed.words) <= 4 and text.strip(" *_")[-1:] not in SENTENCE_ENDS),
        "hedged": float(bool(claimed.grammar.hedges.search(text))),
        "negated": float(claimed.negated and claimed.grammar.is_english),  # else it is a content word
    }


MODEL_FILE: Final = "support_model.json"


class Feature(NamedTuple):
    """One input of the model: it is standardized, then weighted."""

    mean: float
    scale: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportModel:
    """Coefficients and cuts."""

    name: str
    """Changes with the coefficients: it is the name of the judge's model."""
    bias: float
    features: Mapping[str, Feature]
    number_missing: float
    """The share of supported claims among those with a number that no chunk has: an upper limit."""
    unsupported_below: float
    supported_from: float

    def support(self, features: Mapping[str, float]) -> float:
        """Return the probability that the chunks support a claim with these features."""
        logit = self.bias + sum(
            weight * (features[name] - mean) / scale for name, (mean, scale, weight) in self.features.items()
        )
        probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))
        return min(probability, self.number_missing) if features["missing_numbers"] else probability


@cache
def shipped_model() -> SupportModel:
    """Return the model of the package."""
    return TypeAdapter(SupportModel).validate_json(files(__package__).joinpath(MODEL_FILE).read_bytes())


SUPPORTED_FROM: Final = 0.75
"""The cut of the share; chosen on the development files of RAGTruth."""


class WordShareJudge(ComparingJudge):
    """Calls a claim supported if three quarters of its content words are anywhere in the chunks."""

    identity = JudgeIdentity(provider="floor", model="word-share", computes=True, contradicts=False)
    no_worth = LexicalJudge.no_worth

    async def verify(self, given: VerifyInput) -> JudgeReply[VerifyReply]:
        """Say what share of its words each claim has in the chunks."""
        index = await WordIndex.of(given.chunks)
        shares: dict[int, float] = {}
        for claim in given.claims:
            await asyncio.sleep(0)
            stems = ClaimedWords.of(claim.text, index.grammar).content
            shares[claim.number] = sum(held in index.places for held in stems) / len(stems) if stems else 1.0
        shown = next((chunk for chunk in given.chunks if chunk.text.strip()), None)
        cited, quote = (
            ([shown.number], shown.text[:1000].rsplit(None, 1)[0]) if shown else ([], "")
        )  # *supported* takes a quote
        verdicts = [
            GivenVerdict(id=number, chunks=cited, quote=quote, label="supported", reason="")
            if share >= SUPPORTED_FROM
            else GivenVerdict(id=number, chunks=[], quote="", label="not_mentioned", reason="")
            for number, share in shares.items()
        ]
        return JudgeReply(value=VerifyReply(verdicts=verdicts), usage=Usage(calls=1), support=shares)
