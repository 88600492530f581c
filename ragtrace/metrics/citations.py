"""Citations: whether the chunks that an answer cites support what they are cited for.

Marks are read by code: ``[1]``, ``[1, 3]``, ``[2-4]``, ``[doc-3]``, ``[source 2]``, footnotes ``[^1]`` and
``【1】``. What is in the brackets is a chunk's id, else the chunk's place in the list, from 1, or from 0 if a
mark ``[0]`` is there. A line such as ``[^1]: faq-12`` says what a mark stands for. A mark belongs to its
sentence; one between two sentences of a line, to the sentence before it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ragtrace.judge_steps import ClaimExtraction
from ragtrace.metrics.asking import together
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.faithfulness import nothing_stated
from ragtrace.metrics.session import StepSession
from ragtrace.model import OF_CITATION, Part, RagRecord, SkipReason, Verdict, VerdictCounts, VerdictLabel
from ragtrace.scoring import coverage, strict_faithfulness
from ragtrace.scoring.formulas import SCORE, Readings
from ragtrace.sentences import Sentence, split_sentences

_MARK: Final = re.compile(r"\[\^?([^\[\]\n]{1,80})\](?!\()|【([^【】\n]{1,80})】")
_RANGE: Final = re.compile(r"(\d{1,3})\s*[-–]\s*(\d{1,3})")  # noqa: RUF001  an en dash
_PLACE: Final = re.compile(
    r"(?:chunk|doc|document|passage|source|context|ref|reference)?[ _:#-]*(\d{1,3})", re.IGNORECASE
)
_STANDS_FOR: Final = re.compile(
    r"^[ \t]*(?:[-*][ \t]+)?\[\^?([^\[\]\n]{1,80})\]:?[ \t]+(\S.*)$", re.MULTILINE
)


class CitationPrecision(BuiltInMetric):
    """Measures the share of an answer's cited claims that a chunk which they cite supports.

    score = S / (c - U): of c claims with a citation in their sentence, S are supported by a cited chunk, U
    undecided. A mark that leads to no chunk supports nothing. If the judge finds a claim in another chunk, it
    is asked about the cited ones alone. An answer without citations is skipped (``no_claims``).

    Details: ``cited_share`` = c / n: how many of all claims are cited, ``marks``: how many citations there
    are, ``marks_unknown``: those that lead to no chunk, ``coverage`` = (c - U) / c.

    Source: ALCE (Gao et al. 2023), by claims instead of citations.
    """

    name = "citation_precision"
    needs = (Part.CONTEXT, Part.ANSWER)
    uses = ("extract", "verify")
    readings = (SCORE, "cited_share", "coverage")
    counts_uncited, unit = False, "cited claim"

    async def find(self, record: RagRecord, steps: StepSession) -> MetricFinding:
        """Look up the cited chunks."""
        extraction = await steps.extract()
        if not extraction.claims:
            return nothing_stated(extraction)
        found = _Citations.read(record)
        cited = found.of_claims(extraction)
        if not any(cited) and not self.counts_uncited:
            return MetricFinding(skip_reason=SkipReason.NO_CLAIMS, explanation="the answer cites nothing")
        verdicts = tuple(
            verdict
            for verdict, marks in zip(await _judged(record, cited, steps), cited, strict=True)
            if marks or self.counts_uncited
        )
        counts = VerdictCounts.of(verdicts)
        score = strict_faithfulness(counts)
        wrong = {"not supported by what they cite": counts.unsupported, "undecided": counts.unjudged}
        return MetricFinding(
            score=score,
            skip_reason=SkipReason.ALL_UNJUDGED if score is None else None,
            explanation=tally(counts.total, self.unit, "supported by what they cite", wrong),
            verdicts=verdicts,
            details=readings(
                cited_share=sum(map(bool, cited)) / len(cited),
                marks=found.marks,
                marks_unknown=found.unknown,
                coverage=coverage(counts),
            ),
        )

    def read(self, finding: MetricFinding) -> Readings:
        """Return the score, the share of cited claims, and the coverage."""
        counts = VerdictCounts.of(finding.verdicts)
        cited = finding.details.get("cited_share")
        return {SCORE: strict_faithfulness(counts), "cited_share": cited, "coverage": coverage(counts)}


class CitationRecall(CitationPrecision):
    """Measures the share of all claims of an answer that are cited, and supported by a chunk they cite.

    As ``citation_precision``, but a claim without a citation counts as not supported: an answer that cites
    nothing scores 0.

    Source: ALCE's citation recall (Gao et al. 2023).
    """

    name = "citation_recall"
    counts_uncited, unit = True, "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cited:
    """What a claim cites."""

    places: tuple[int, ...] = ()
    """Places of the chunks in the record, from 0."""
    marks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Citations:
    """The citations in an answer, by the number of the sentence."""

    of_sentence: Mapping[int, Sequence[tuple[str, int | None]]] = field(default_factory=dict)
    """Marks, and the places of the chunks that they lead to."""

    @classmethod
    def read(cls, record: RagRecord) -> _Citations:
        answer = record.answer or ""
        sentences, ids = (
            split_sentences(answer),
            {c.id.casefold(): place for place, c in enumerate(record.chunks)},
        )
        stands_for = {
            found[1].strip().casefold(): place
            for found in _STANDS_FOR.finditer(answer)
            for name, place in ids.items()
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", found[2].casefold())
        }
        definitions = [
            found.span()
            for found in _STANDS_FOR.finditer(answer)
            if found[1].strip().casefold() in stands_for
        ]
        marks = [
            (found.start(), name)
            for found in _MARK.finditer(answer)
            if not any(start <= found.start() < end for start, end in definitions)
            for name in _names(found[1] or found[2])
        ]
        base = 0 if any(name == "0" for _, name in marks) else 1
        of_sentence: defaultdict[int, list[tuple[str, int | None]]] = defaultdict(list)
        for at, name in marks:
            place = stands_for.get(name, ids.get(name))
            numbered = _PLACE.fullmatch(name)
            if place is None and numbered:
                place = int(numbered[1]) - base
                place = place if 0 <= place < len(record.chunks) else None
            elif place is None:
                continue  # brackets of another use
            of_sentence[_sentence_of(at, answer, sentences)].append((name, place))
        return cls(of_sentence=of_sentence)

    @property
    def marks(self) -> int:
        return sum(map(len, self.of_sentence.values()))

    @property
    def unknown(self) -> int:
        return sum(place is None for marks in self.of_sentence.values() for _, place in marks)

    def of_claims(self, extraction: ClaimExtraction) -> list[_Cited]:
        """Return what each claim cites: the marks of the sentences that it comes from."""
        found = [
            [mark for number in numbers for mark in self.of_sentence.get(number, ())]
            for numbers in extraction.sources
        ]
        return [
            _Cited(
                places=tuple(dict.fromkeys(place for _, place in marks if place is not None)),
                marks=tuple(dict.fromkeys(name for name, _ in marks)),
            )
            for marks in found
        ]


def _names(inside: str) -> Iterator[str]:
    """Yield what a mark names: ``1, 3-4`` names 1, 3 and 4."""
    for part in re.split(r"[,;]", inside):
        name = part.strip().removeprefix("^").casefold()
        if found := _RANGE.fullmatch(name):
            first, last = int(found[1]), int(found[2])
            yield from map(str, range(first, min(last, first + 20) + 1))
        elif name:
            yield name


def _sentence_of(at: int, answer: str, sentences: Sequence[Sentence]) -> int:
    """Return the number of the sentence that a mark at this offset belongs to."""
    for sentence in reversed(sentences):
        if sentence.start > at:
            continue
        before = answer[sentence.start : at]
        leads = not _MARK.sub("", before).strip()
        follows = leads and sentence.number > 1 and "\n" not in answer[: sentence.start].rstrip(" \t")[-1:]
        return sentence.number - 1 if follows else sentence.number
    return 1


async def _judged(record: RagRecord, cited: Sequence[_Cited], steps: StepSession) -> list[Verdict]:
    """Return whether what a claim cites supports it."""
    verdicts = (await steps.verify()).verdicts
    ids = [chunk.id for chunk in record.chunks]
    doubtful: defaultdict[tuple[int, ...], list[Verdict]] = defaultdict(list)
    for verdict, marks in zip(verdicts, cited, strict=True):
        named = {ids[place] for place in marks.places}
        if marks.places and verdict.label is VerdictLabel.SUPPORTED and named.isdisjoint(verdict.chunk_ids):
            doubtful[marks.places].append(verdict)
    asked = await together(
        steps.verify_in([verdict.claim for verdict in those], [record.chunks[place] for place in places])
        for places, those in doubtful.items()
    )
    again = {verdict.claim: verdict for found in asked for verdict in found.verdicts}
    return [
        _by_citation(again.get(verdict.claim, verdict), marks, ids)
        for verdict, marks in zip(verdicts, cited, strict=True)
    ]


def _by_citation(verdict: Verdict, cited: _Cited, ids: Sequence[str]) -> Verdict:
    claim, named = replace(verdict.claim, kind=OF_CITATION), tuple(ids[place] for place in cited.places)
    if not cited.places:
        wrong = f"it cites [{cited.marks[0]}], and there is no such chunk" if cited else "it cites nothing"
        return Verdict(claim=claim, label=VerdictLabel.UNSUPPORTED, reason=wrong)
    if verdict.label in (VerdictLabel.SUPPORTED, VerdictLabel.UNJUDGED):
        return replace(verdict, claim=claim)
    said = f"it cites {', '.join(f'[{mark}]' for mark in cited.marks)}, which does not support it"
    return Verdict(claim=claim, label=VerdictLabel.UNSUPPORTED, reason=said, chunk_ids=named)
