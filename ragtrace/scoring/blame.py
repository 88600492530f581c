"""Which hop of a RAG call failed: by rules over verdicts, and over the chunks at each hop.

Each wrong claim has one cause, the earliest hop that explains it. Without the evidence that a rule needs,
there is no blame but the name of what is missing. No judge is asked: a chunk that the judge never saw is
compared with a question or a statement by words, rare ones above all.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ragtrace.model import (
    Blame,
    BlameClass,
    Chunk,
    Evaluation,
    Fault,
    Hops,
    Label,
    MetricResult,
    RagRecord,
    SkipReason,
    Verdict,
    VerdictLabel,
)
from ragtrace.sentences import split_sentences

NEEDS_RELEVANCE: Final = "relevance of the chunks (chunk_precision), or a reference (context_recall)"
_CLAIMS_FROM: Final = ("faithfulness", "groundedness", "hallucination")
_RECALL: Final = "context_recall"
_WRONG: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
_MOST_FAULTS: Final = 20
_MOST_SENTENCES: Final = 2_000
_ORDER: Final = {blame: place for place, blame in enumerate(BlameClass)}


_DIGIT: Final = re.compile(r"\d")


def blame_of(record: RagRecord, evaluation: Evaluation) -> Blame:
    """Return which hops of a call failed. It is pure, and linear in the text of the chunks."""
    return _Case(record=record, evaluation=evaluation).blame()


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One evaluated answer, read for the rules."""

    record: RagRecord
    evaluation: Evaluation

    def blame(self) -> Blame:
        faults: list[Fault] = []
        missing: list[str] = []
        for verdict in self.claims:
            if verdict.is_incidental:
                continue
            if conflict := self.conflict(verdict):
                faults.append(conflict)
            elif verdict.label in _WRONG:
                fault = self.cause_of(verdict)
                if fault is None:
                    missing.append(NEEDS_RELEVANCE)
                else:
                    faults.append(fault)
        if not faults and not missing and (self.is_refusal or self.is_recall_low):
            fault = self.cause_of(None)
            faults += [fault] if fault else []
        ordered = sorted(faults, key=lambda fault: (_ORDER[fault.blame], fault.claim or 0))
        return Blame(faults=tuple(ordered[:_MOST_FAULTS]), missing=tuple(dict.fromkeys(missing)))

    def cause_of(self, wrong: Verdict | None) -> Fault | None:
        """Return the earliest hop that explains a wrong claim, or without one a refusal."""
        return (
            self.cut(wrong)
            or self.contradicted(wrong)
            or self.dropped(wrong)
            or self.missed(wrong)
            or self.left_aside(wrong)
        )

    def cut(self, wrong: Verdict | None) -> Fault | None:
        """What was needed did not reach the prompt."""
        needed = self.gold if wrong is None or not wrong.quote else wrong.chunk_ids[:1]
        if not needed or any(self.is_seen(chunk_id, wrong) for chunk_id in needed):
            return None
        cut = [chunk_id for chunk_id in needed if chunk_id in self.hops.shown]
        shown = self.hops.shown[cut[0]]
        why = "the prompt does not have the chunk" if not shown else "the prompt has only its beginning"
        return self.fault(BlameClass.TRUNCATED_CONTEXT, why, wrong, chunk_ids=tuple(cut))

    def contradicted(self, wrong: Verdict | None) -> Fault | None:
        if wrong is None or wrong.label is not VerdictLabel.CONTRADICTED:
            return None
        why = "a chunk that the model was given says otherwise"
        return self.fault(BlameClass.CONTRADICTED_CONTEXT, why, wrong, chunk_ids=wrong.chunk_ids)

    def dropped(self, wrong: Verdict | None) -> Fault | None:
        """A reranker left out a chunk that speaks of what was needed."""
        if self.gold or not self.hops.dropped:
            return None
        begin = len(self.record.chunks)
        places = range(begin, begin + len(self.hops.dropped))
        for needed, with_numbers in self.needed(wrong):
            place = self.mentions.best(places, needed, with_numbers=with_numbers)
            if place is not None and not self.is_about(needed, place, with_numbers=with_numbers):
                chunk = self.hops.dropped[place - begin]
                return self.fault(
                    BlameClass.RERANK_DROP,
                    "a chunk that speaks of it was retrieved, and left out afterwards",
                    wrong,
                    chunk_ids=(chunk.id,),
                    span_id=self.hops.dropped_by,
                    quote=self.line_about(chunk, needed),
                )
        return None

    def missed(self, wrong: Verdict | None) -> Fault | None:
        """No chunk at any hop has it."""
        if self.gold or not (self.is_graded or self.missing_references):
            return None
        if wrong is None and not self.missing_references:
            return self.fault(BlameClass.UNANSWERABLE, "no chunk is relevant, and the answer declines", None)
        source = next((chunk.span_id for chunk in self.record.chunks if chunk.span_id), "") or ""
        why = "no retrieved chunk has what was needed"
        return self.fault(BlameClass.RETRIEVAL_MISS, why, wrong, span_id=source)

    def left_aside(self, wrong: Verdict | None) -> Fault | None:
        """The model was given what was needed."""
        if self.gold and not self.uses(self.gold):
            why = "the model was given relevant chunks, and the answer uses none of them"
            return self.fault(BlameClass.IGNORED_CONTEXT, why, wrong, chunk_ids=self.gold)
        if wrong is None or not (self.gold or self.uses(tuple(chunk.id for chunk in self.record.chunks))):
            return None
        return self.fault(BlameClass.FABRICATED, "no chunk at any hop mentions it", wrong)

    def conflict(self, verdict: Verdict) -> Fault | None:
        """Two chunks say the same with other numbers about a claim."""
        if verdict.label not in (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED) or not verdict.quote:
            return None
        form = masked(verdict.quote)
        if "#" not in form or len(self.record.chunks) < 2:  # then no chunk differs, and none is read again
            return None
        cited = verdict.chunk_ids[0]
        for chunk_id, sentence in self.sentences.get(form, ()):
            if chunk_id != cited and sentence.casefold() != verdict.quote.strip().casefold():
                return self.fault(
                    BlameClass.STALE_OR_CONFLICTING_CHUNKS,
                    "two chunks say different things about it",
                    verdict,
                    chunk_ids=(cited, chunk_id),
                    quote=sentence,
                )
        return None

    def fault(
        self,
        blame: BlameClass,
        why: str,
        wrong: Verdict | None,
        *,
        chunk_ids: tuple[str, ...] = (),
        span_id: str = "",
        quote: str = "",
    ) -> Fault:
        known = {chunk.id: chunk for chunk in (*self.hops.dropped, *self.record.chunks)}
        existing = tuple(chunk_id for chunk_id in chunk_ids if chunk_id in known)
        source = known[existing[0]].span_id if existing else None
        return Fault(
            blame=blame,
            why=why,
            claim=wrong.claim.index if wrong else None,
            chunk_ids=existing,
            span_id=span_id or source or "",
            quote=quote or (wrong.quote or "" if wrong else ""),
        )

    @cached_property
    def hops(self) -> Hops:
        """What became of the chunks, as far as it is known."""
        return self.record.hops or Hops()

    @cached_property
    def claims(self) -> Sequence[Verdict]:
        """The verdicts on the claims of the answer, once each."""
        results = (result for name in _CLAIMS_FROM for result in self._results(name))
        found: Sequence[Verdict] = next((result.verdicts for result in results if result.verdicts), ())
        return found

    @cached_property
    def relevance(self) -> Mapping[str, VerdictLabel]:
        """The grade of each chunk, if a metric graded them."""
        graded = (result.chunk_verdicts for result in self.evaluation.results if result.chunk_verdicts)
        return {verdict.chunk_id: verdict.label for verdict in next(graded, ())}

    @cached_property
    def is_graded(self) -> bool:
        """Whether every chunk has a grade; no chunk at all is graded, too."""
        decided = (self.relevance.get(chunk.id, VerdictLabel.UNJUDGED) for chunk in self.record.chunks)
        has_context = bool(self.record.chunks) or not self.record.gaps
        return has_context and all(label is not VerdictLabel.UNJUDGED for label in decided)

    @cached_property
    def references(self) -> Sequence[Verdict]:
        """The verdicts on the sentences of the reference."""
        return next((result.verdicts for result in self._results(_RECALL)), ())

    @cached_property
    def missing_references(self) -> Sequence[str]:
        """Sentences of the reference that no chunk has."""
        return [verdict.claim.text for verdict in self.references if verdict.label in _WRONG]

    @cached_property
    def gold(self) -> tuple[str, ...]:
        """Chunks that have what was needed: by the reference if there is one, else by their grade."""
        if self.references:
            cited = (
                chunk_id
                for verdict in self.references
                if verdict.label is VerdictLabel.SUPPORTED
                for chunk_id in verdict.chunk_ids
            )
            return tuple(dict.fromkeys(cited))
        return tuple(
            chunk.id for chunk in self.record.chunks if self.relevance.get(chunk.id) is VerdictLabel.RELEVANT
        )

    @cached_property
    def is_refusal(self) -> bool:
        return any(result.skip_reason is SkipReason.REFUSAL for result in self.evaluation.results)

    @cached_property
    def is_recall_low(self) -> bool:
        return any(result.label is Label.FAIL for result in self._results(_RECALL))

    @cached_property
    def mentions(self) -> Mentions:
        """The words of the chunks, then of the dropped ones."""
        return Mentions(chunk.text or "" for chunk in (*self.record.chunks, *self.hops.dropped))

    @cached_property
    def sentences(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Sentences of the chunks by their form without numbers, if they have some."""
        found: dict[str, list[tuple[str, str]]] = {}
        for number, (chunk_id, sentence) in enumerate(self._all_sentences()):
            if number >= _MOST_SENTENCES:
                break
            if _has_digit(sentence) and "#" in (form := masked(sentence)):
                found.setdefault(form, []).append((chunk_id, sentence))
        return found

    def needed(self, wrong: Verdict | None) -> Iterator[tuple[str, bool]]:
        """Yield what a chunk should speak of: the best first, and whether its numbers count."""
        for sentence in self.missing_references:
            yield sentence, True
        if not self.references:
            if self.record.question:
                yield self.record.question, True
            if wrong is not None:
                yield wrong.claim.text, False

    def is_about(self, needed: str, than: int, *, with_numbers: bool) -> bool:
        """Say whether a chunk that was kept speaks as much of it as another one."""
        share = self.mentions.about(than, needed, with_numbers=with_numbers)
        kept = range(len(self.record.chunks))
        return any(self.mentions.about(place, needed, with_numbers=with_numbers) >= share for place in kept)

    def is_seen(self, chunk_id: str, wrong: Verdict | None) -> bool:
        """Say whether the model saw a chunk, or the part of it that contradicts a claim."""
        if chunk_id not in self.hops.shown:
            return True
        if wrong is None or not wrong.quote or chunk_id != wrong.chunk_ids[0]:
            return False
        text = next((chunk.text or "" for chunk in self.record.chunks if chunk.id == chunk_id), "")
        place = text.find(wrong.quote)
        return place >= 0 and place + len(wrong.quote) <= self.hops.shown[chunk_id]

    def uses(self, chunk_ids: Sequence[str]) -> bool:
        """Say whether a claim that is supported cites one of these chunks."""
        cited = {
            chunk_id
            for verdict in self.claims
            if verdict.label is VerdictLabel.SUPPORTED
            for chunk_id in verdict.chunk_ids
        }
        return not cited.isdisjoint(chunk_ids)

    def line_about(self, chunk: Chunk, needed: str) -> str:
        """Return the sentence of a chunk that speaks most of it."""
        lines = [sentence.text for sentence in split_sentences(chunk.text or "")]
        if not lines:
            return ""
        mentions = Mentions(lines)
        return max(enumerate(lines), key=lambda line: mentions.about(line[0], needed))[1]

    def _results(self, name: str) -> list[MetricResult]:
        return [result for result in self.evaluation.results if result.metric.partition(".")[0] == name]

    def _all_sentences(self) -> Iterator[tuple[str, str]]:
        for chunk in self.record.chunks:
            for sentence in split_sentences(chunk.text or ""):
                yield chunk.id, sentence.text.strip()


def _has_digit(text: str) -> bool:
    return bool(_DIGIT.search(text)) if text.isascii() else any(map(str.isdigit, text))


_WORD: Final = re.compile(r"\w+")
_ENDINGS: Final = ("ing", "ed", "es", "s", "e")
_SHORTEST: Final = 3
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be by can did do does each for from had has have how i in is it its many much of
        on or our should that the their there they this to was we what when where which who why will with
        would you your""",
    )
)
_ENOUGH: Final = 0.6


class Mentions:
    """The words of all chunks of an answer: a word that most of them have tells little."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [_stems(text) for text in texts]
        self._known = Counter(stem for stems in self._texts for stem in stems)

    def about(self, place: int, needed: str, *, with_numbers: bool = True) -> float:
        """Return which weighed share of the words of ``needed`` a text has, in [0, 1]."""
        wanted = [stem for stem in _stems(needed) if with_numbers or not stem[0].isdigit()]
        weights = {stem: self._weight(stem) for stem in wanted}
        total = sum(weights.values())
        there = self._texts[place]
        return sum(weight for stem, weight in weights.items() if stem in there) / total if total else 0.0

    def best(self, places: Sequence[int], needed: str, *, with_numbers: bool = True) -> int | None:
        """Return the text that speaks most of what is needed, if it does so enough."""
        shares = [(self.about(place, needed, with_numbers=with_numbers), -place) for place in places]
        share, place = max(shares, default=(0.0, 0))
        return -place if share >= _ENOUGH else None

    def _weight(self, stem: str) -> float:
        return math.log((len(self._texts) + 1.5) / (max(1, self._known[stem]) + 0.5))


def masked(sentence: str) -> str:
    """Return a sentence with its numbers left open: two that differ in numbers only look the same."""
    return " ".join("#" if word.isdigit() else word for word in _WORD.findall(sentence.casefold()))


def _stems(text: str) -> frozenset[str]:
    words = (word for word in _WORD.findall(text.casefold()) if word not in _COMMON)
    return frozenset(word if word.isdigit() else _stem(word) for word in words)


def _stem(word: str) -> str:
    """Return a word without the endings that most English words share."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
