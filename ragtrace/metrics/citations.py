"""Citations: whether the chunks that an answer cites support what they are cited for.

Marks are read by code: ``[1]``, ``[1, 3]``, ``[2-4]``, ``[doc-3]``, ``[source 2]``, footnotes ``[^1]`` and
``【1】``. What is in the brackets is a chunk's id, else the chunk's place in the list, from 1, or from 0 if a
mark ``[0]`` is there. A line such as ``[^1]: faq-12`` says what a mark stands for. A mark belongs to its
sentence; one between two sentences of a line, to the sentence before it.

Citations that the model's provider returned beside the answer (`Citation`) cite for the sentences of their
place. If no chunk is of their source, its text is not known, and nothing is said of what it supports.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ragtrace.judge_steps import ClaimExtraction
from ragtrace.metrics.asking import together
from ragtrace.metrics.base import BuiltInMetric, MetricFinding, readings, tally
from ragtrace.metrics.faithfulness import nothing_stated
from ragtrace.metrics.session import StepSession
from ragtrace.model import OF_CITATION, Part, RagRecord, SkipReason, Verdict, VerdictCounts, VerdictLabel
from ragtrace.scoring.formulas import SCORE, Readings, coverage, strict_faithfulness
from ragtrace.sentences import Sentence, split_sentences

_MARK: Final = re.compile(r"\[\^?([^\[\]\n]{1,80})\](?!\()|【([^【】\n]{1,80})】")
_RANGE: Final = re.compile(r"(\d{1,3})\s*[-–]\s*(\d{1,3})")  # noqa: RUF001  an en dash
_PLACE: Final = re.compile(
    r"(?:chunk|doc|document|passage|source|context|ref|reference)?[ _:#-]*(\d{1,3})", re.IGNORECASE
)
_STANDS_FOR: Final = re.compile(
    r"^[ \t]*(?:[-*][ \t]+)?\[\^?([^\[\]\n]{1,80})\]:?[ \t]+(\S.*)$", re.MULTILINE
)
_LINK: Final = re.compile(r"\s*(?:\(?(?:\[[^\]]*\]\([^)\s]*\)[;,\s]*)+\)?|【[^】]*】)\s*")
"""A mark that a provider wrote into the answer."""


class CitationPrecision(BuiltInMetric):
    """Measures the share of an answer's cited claims that a chunk which they cite supports.

    score = S / (c - U): of c claims with a citation in their sentence, S are supported by a cited chunk, U
    undecided. A mark that leads to no chunk supports nothing; a provider's citation of a source that is no
    chunk leaves a claim undecided that no cited chunk supports. If the judge finds a claim in another chunk,
    it is asked about the cited ones alone. An answer without citations is skipped (``no_claims``).

    Details: ``cited_share`` = c / n: how many of all claims are cited, ``marks``: how many citations there
    are, ``marks_unknown``: those that lead to no chunk, ``coverage`` = (c - U) / c. ``marks_ignored``, if
    any: citations of the provider whose place the answer does not have.

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
            return MetricFinding(
                skip_reason=SkipReason.NO_CLAIMS, explanation=f"the answer cites nothing{found.told}"
            )
        verdicts = tuple(
            verdict
            for verdict, marks in zip(await _judged(record, cited, steps), cited, strict=True)
            if marks or self.counts_uncited
        )
        counts = VerdictCounts.of(verdicts)
        score = strict_faithfulness(counts)
        right = f"supported by what {'it cites' if counts.total == 1 else 'they cite'}"
        wrong = {f"not {right}": counts.unsupported, "undecided": counts.unjudged}
        return MetricFinding(
            score=score,
            skip_reason=SkipReason.ALL_UNJUDGED if score is None else None,
            explanation=tally(counts.total, self.unit, right, wrong) + found.told,
            verdicts=verdicts,
            details=readings(
                cited_share=sum(map(bool, cited)) / len(cited),
                marks=found.marks,
                marks_unknown=found.unknown,
                marks_ignored=found.ignored or None,
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


class _Mark(NamedTuple):
    """A citation: a mark in the answer, or what the provider returned beside it."""

    name: str
    places: tuple[int, ...]
    """Places of the chunks in the record, from 0."""
    is_of_provider: bool = False

    @property
    def is_shown(self) -> bool:
        """Whether the text of what it cites is known, or is known not to be there."""
        return bool(self.places) or not self.is_of_provider


@dataclass(frozen=True, slots=True, kw_only=True)
class _Citations:
    """The citations of an answer, by the number of the sentence."""

    of_sentence: Mapping[int, Sequence[_Mark]]
    marks: int
    unknown: int
    ignored: int
    """The provider's, whose place the answer does not have."""

    @classmethod
    def read(cls, record: RagRecord) -> _Citations:
        answer = record.answer or ""
        sentences = split_sentences(answer)
        told: list[tuple[_Mark, Sequence[int]]] = [
            (mark, (_sentence_of(at, answer, sentences),)) for at, mark in _marks(record)
        ]
        placed = [
            (each, numbers)
            for each in record.provider_citations
            if (numbers := _sentences_at(each.start, each.end, answer, sentences))
        ]
        places = {chunk.id: place for place, chunk in enumerate(record.chunks)}
        for each, numbers in placed:
            cited = tuple(places[chunk_id] for chunk_id in each.chunk_ids if chunk_id in places)
            name = each.source or ", ".join(each.chunk_ids)
            told.append((_Mark(name, cited, is_of_provider=True), numbers))
        of_sentence: defaultdict[int, list[_Mark]] = defaultdict(list)
        for mark, numbers in told:
            for number in numbers:
                of_sentence[number].append(mark)
        return cls(
            of_sentence=of_sentence,
            marks=len(told),
            unknown=sum(not mark.places for mark, _ in told),
            ignored=len(record.provider_citations) - len(placed),
        )

    @property
    def told(self) -> str:
        """What a person is told of ignored citations."""
        units = "1 citation" if self.ignored == 1 else f"{self.ignored} citations"
        return f"; {units} ignored: not for a part of the answer" if self.ignored else ""

    def of_claims(self, extraction: ClaimExtraction) -> list[Sequence[_Mark]]:
        """Return what each claim cites: the marks of the sentences that it comes from."""
        return [
            tuple(dict.fromkeys(mark for number in numbers for mark in self.of_sentence.get(number, ())))
            for numbers in extraction.sources
        ]


def _marks(record: RagRecord) -> Iterator[tuple[int, _Mark]]:
    answer = record.answer or ""
    ids = {chunk.id.casefold(): place for place, chunk in enumerate(record.chunks)}
    stands_for = {
        found[1].strip().casefold(): place
        for found in _STANDS_FOR.finditer(answer)
        for name, place in ids.items()
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", found[2].casefold())
    }
    definitions = [
        found.span() for found in _STANDS_FOR.finditer(answer) if found[1].strip().casefold() in stands_for
    ]
    marks = [
        (found.start(), name)
        for found in _MARK.finditer(answer)
        if not any(start <= found.start() < end for start, end in definitions)
        for name in _names(found[1] or found[2])
    ]
    base = 0 if any(name == "0" for _, name in marks) else 1
    for at, name in marks:
        place = stands_for.get(name, ids.get(name))
        numbered = _PLACE.fullmatch(name)
        if place is None and numbered:
            place = int(numbered[1]) - base
            place = place if 0 <= place < len(record.chunks) else None
        elif place is None:
            continue  # brackets of another use
        yield at, _Mark(name, () if place is None else (place,))


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
    for sentence in reversed(sentences):
        if sentence.start > at:
            continue
        before = answer[sentence.start : at]
        leads = not _MARK.sub("", before).strip()
        follows = leads and sentence.number > 1 and "\n" not in answer[: sentence.start].rstrip(" \t")[-1:]
        return sentence.number - 1 if follows else sentence.number
    return 1


def _sentences_at(
    start: int | None, end: int | None, answer: str, sentences: Sequence[Sentence]
) -> Sequence[int]:
    """Return the numbers of the sentences at a place; none if the answer does not have it."""
    if start is None or end is None or not 0 <= start <= end <= len(answer) or not sentences:
        return ()
    if start == end or _LINK.fullmatch(answer, start, end):
        return (_sentence_of(start, answer, sentences),)
    return [each.number for each in sentences if each.start < end and each.end > start]


async def _judged(record: RagRecord, cited: Sequence[Sequence[_Mark]], steps: StepSession) -> list[Verdict]:
    verdicts = (await steps.verify()).verdicts
    ids = [chunk.id for chunk in record.chunks]
    doubtful: defaultdict[tuple[int, ...], list[Verdict]] = defaultdict(list)
    for verdict, marks in zip(verdicts, cited, strict=True):
        places = _places(marks)
        named = {ids[place] for place in places}
        if places and verdict.label is VerdictLabel.SUPPORTED and named.isdisjoint(verdict.chunk_ids):
            doubtful[places].append(verdict)
    asked = await together(
        steps.verify_in([verdict.claim for verdict in those], [record.chunks[place] for place in places])
        for places, those in doubtful.items()
    )
    again = {verdict.claim: verdict for found in asked for verdict in found.verdicts}
    return [
        _by_citation(again.get(verdict.claim, verdict), marks, ids)
        for verdict, marks in zip(verdicts, cited, strict=True)
    ]


def _places(marks: Sequence[_Mark]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(place for mark in marks for place in mark.places))


def _by_citation(verdict: Verdict, marks: Sequence[_Mark], ids: Sequence[str]) -> Verdict:
    claim, places = replace(verdict.claim, kind=OF_CITATION), _places(marks)
    if places and verdict.label in (VerdictLabel.SUPPORTED, VerdictLabel.UNJUDGED):
        return replace(verdict, claim=claim)
    if unseen := next((mark for mark in marks if not mark.is_shown), None):
        told = f"it cites [{unseen.name}], whose text is not recorded"
        return Verdict(claim=claim, label=VerdictLabel.UNJUDGED, reason=told)
    if not places:
        wrong = f"it cites [{marks[0].name}], and there is no such chunk" if marks else "it cites nothing"
        return Verdict(claim=claim, label=VerdictLabel.UNSUPPORTED, reason=wrong)
    names = dict.fromkeys(mark.name for mark in marks)
    said = f"it cites {', '.join(f'[{name}]' for name in names)}, which does not support it"
    named = tuple(ids[place] for place in places)
    return Verdict(claim=claim, label=VerdictLabel.UNSUPPORTED, reason=said, chunk_ids=named)
