"""What a page shows of an answer: claims marked in it beside the chunks with the quotes, and its numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, zip_longest
from typing import Final, NamedTuple

from ragtrace.model import (
    OF_CITATION,
    OF_CRITERION,
    OF_REFERENCE,
    Chunk,
    ChunkVerdict,
    Evaluation,
    Intermediate,
    JudgedAnswer,
    MetricOutcome,
    MetricResult,
    SkipReason,
    StepRun,
    Verdict,
    VerdictLabel,
)

WORST_FIRST: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.NOT_MET,
    VerdictLabel.UNJUDGED,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.SUPPORTED,
    VerdictLabel.RELEVANT,
    VerdictLabel.MET,
)
_MOST_UNMARKED: Final = 2_000
"""Shown characters of an unmarked passage: an answer of a megabyte must not fill the page."""


class MarkedPassage(NamedTuple):
    """A passage that a claim is about, or that supports it."""

    start: int
    end: int
    number: int
    """The claim's label."""
    label: VerdictLabel


class MarkedText(NamedTuple):
    """A part of a text."""

    text: str
    label: VerdictLabel | None = None
    """The worst of the marks that cover it."""
    ends: tuple[int, ...] = ()
    """Numbers of the claims whose marks end here."""
    left_out: int = 0
    """Number of omitted characters before the text."""
    hidden: str = ""
    """The omitted characters, for a page that can unfold them."""
    numbers: tuple[int, ...] = ()
    """Numbers of the claims whose marks cover it, the worst first."""
    starts: tuple[int, ...] = ()
    """Numbers of the claims that begin here, if a page needs an anchor for each."""


def pieces(text: str, marks: Sequence[MarkedPassage]) -> tuple[MarkedText, ...]:
    """Split a text where marks begin and end; marks may overlap."""
    within = [mark for mark in marks if 0 <= mark.start < mark.end <= len(text)]
    parted: list[MarkedText] = []
    for start, end, covering in _covered(within, len(text)):
        if covering:
            parted.append(_marked(text[start:end], end, covering))
        else:
            parted.extend(_shortened(text[start:end]))
    return tuple(parted)


def _covered(
    marks: Sequence[MarkedPassage], length: int
) -> Iterator[tuple[int, int, Sequence[MarkedPassage]]]:
    """Yield the stretches between two cuts with the marks over them; the work grows with the overlaps."""
    cuts = sorted({0, length, *(mark.start for mark in marks), *(mark.end for mark in marks)})
    coming = sorted(marks, key=lambda mark: mark.start, reverse=True)
    covering: list[MarkedPassage] = []
    for start, end in pairwise(cuts):
        covering = [mark for mark in covering if mark.end > start]
        while coming and coming[-1].start <= start:
            covering.append(coming.pop())
        yield start, end, covering


def _marked(text: str, end: int, covering: Sequence[MarkedPassage]) -> MarkedText:
    by_badness = sorted(covering, key=lambda mark: (WORST_FIRST.index(mark.label), mark.number))
    return MarkedText(
        text,
        min((mark.label for mark in covering), key=WORST_FIRST.index),
        tuple(sorted({mark.number for mark in covering if mark.end == end})),
        numbers=tuple(dict.fromkeys(mark.number for mark in by_badness)),
    )


def _shortened(text: str) -> Iterator[MarkedText]:
    half = _MOST_UNMARKED // 2
    if len(text) <= _MOST_UNMARKED:
        yield MarkedText(text)
        return
    yield MarkedText(text[:half])
    yield MarkedText(text[-half:], left_out=len(text) - 2 * half, hidden=text[half:-half])


# -- how the numbers were made ------------------------------------------------------------------------------
_MOST_ITEMS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingItem:
    """A truth or a generated question, with what was found about it."""

    text: str | None
    """``None`` if it is not kept: content is off."""
    finding: str = ""
    """Its similarity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingItems:
    """The items of one kind."""

    title: str
    """What they are, with the limit that was used."""
    items: tuple[WorkingItem, ...]
    more: int = 0
    """How many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """How the number of one metric was made."""

    metric: str
    """Its name, with the profile unless that is ragtrace's own."""
    took: str
    """How long it took; empty if nobody told."""
    readings: tuple[tuple[str, str], ...]
    """Other numbers from the same verdicts, by name."""
    steps: tuple[str, ...]
    """A line about each judge step: its time, calls and tokens."""
    made: tuple[WorkingItems, ...]


def workings_of(evaluation: Evaluation) -> tuple[Working, ...]:
    """Return how each metric's number was made, without metrics about which nothing is known."""
    found = map(_working, evaluation.outcomes)
    return tuple(working for working in found if working.steps or working.readings or working.made)


def _working(outcome: MetricOutcome) -> Working:
    is_own = outcome.profile == "ragtrace"
    result = outcome if isinstance(outcome, MetricResult) else None
    made = result.intermediate if result else None
    return Working(
        metric=outcome.metric if is_own else f"{outcome.metric} ({outcome.profile})",
        took=f"{outcome.duration_ms:,} ms" if outcome.steps or outcome.duration_ms else "",
        readings=tuple((name, f"{value:.4g}") for name, value in (result.details if result else {}).items()),
        steps=tuple(_step(run) for run in outcome.steps),
        made=tuple(_made(made)) if made else (),
    )


def _step(run: StepRun) -> str:
    used = run.usage
    calls = "1 call" if used.calls == 1 else f"{used.calls:,} calls"
    tokens = f", {used.input_tokens:,} tokens in, {used.output_tokens:,} out" if used.calls else ""
    unknown = f", {used.unmetered_calls:,} of unknown cost" if used.unmetered_calls else ""
    return f"{run.step}: {run.duration_ms:,} ms, {calls}{tokens}{unknown}"


def _made(made: Intermediate) -> Iterator[WorkingItems]:
    if made.truths:
        limit = "" if made.truths_limit is None else f", at most {made.truths_limit}"
        truths = [WorkingItem(text=truth) for truth in made.truths]
        yield _bounded(f"Truths that the chunks state{limit}", truths)
    if made.questions or made.similarities:
        pairs = zip_longest(made.questions, made.similarities)
        asked = [
            WorkingItem(text=question, finding="undefined" if number is None else f"{number:.3f}")
            for question, number in pairs
        ]
        yield _bounded("Questions that the answer would answer, with their similarity", asked)


def _bounded(title: str, items: list[WorkingItem]) -> WorkingItems:
    shown = tuple(islice(items, _MOST_ITEMS))
    return WorkingItems(title=title, items=shown, more=len(items) - len(shown))


# -- the answer -------------------------------------------------------------------------------------------
_MOST_CHUNKS: Final = 20
SKIP_MEANINGS: Final[Mapping[str, str]] = {
    SkipReason.NO_CONTENT: "the instrumentation did not record the text",
    SkipReason.NO_RETRIEVAL: "nothing was retrieved for the answer, or no span says so",
    SkipReason.EMPTY_RETRIEVAL: "the retrieval found nothing",
    SkipReason.REDACTED: "the text was replaced by a redaction mark",
    SkipReason.TRUNCATED: "the text was cut on its way",
    SkipReason.INCOMPLETE: "the answer was not finished, or attributes or spans were dropped on their way",
    SkipReason.FAILED_CALL: "the call ended in an error and has no answer",
    SkipReason.REFUSAL: "the answer declines to answer",
    SkipReason.NO_CLAIMS: "the answer states nothing that can be checked",
    SkipReason.ALL_UNJUDGED: "the judge decided nothing of what it was asked",
    SkipReason.UNDECIDED: "too few verdicts to tell pass from fail",
    SkipReason.NO_REFERENCE: "the metric needs a reference answer and there is none",
    SkipReason.MISSING_PART: "a metric that this one is made of has no score",
    SkipReason.OUT_OF_RANGE: "the rule that was asked for gives a number outside 0 to 1",
    SkipReason.TOOL_NAN: "the rule of the tool that was asked for gives no number",
}
"""Why there was nothing to judge, in plain words."""


_WRONG: Final = frozenset(WORST_FIRST[: WORST_FIRST.index(VerdictLabel.UNJUDGED)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownClaim:
    """A claim, numbered."""

    number: int
    verdict: Verdict
    places: tuple[int, ...]
    """Positions of the cited chunks in the list, from 1."""
    metrics: tuple[str, ...] = ()
    """The metrics that use this verdict."""
    is_marked: bool = False
    """Whether its place in the answer is known."""

    @property
    def is_wrong(self) -> bool:
        """Whether it has a bad verdict."""
        return self.verdict.label in _WRONG


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChunk:
    """A chunk with marked quotes."""

    place: int
    """Position in the list of chunks, from 1."""
    chunk: Chunk
    pieces: tuple[MarkedText, ...]
    cited_by: tuple[int, ...]
    """Numbers of the claims that cite it."""
    verdict: ChunkVerdict | None
    """Its relevance to the question."""

    @property
    def is_cited(self) -> bool:
        """Whether a claim cites it."""
        return bool(self.cited_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """An answer with its claims on one side, and their evidence on the other."""

    judged: JudgedAnswer
    pieces: tuple[MarkedText, ...]
    claims: tuple[ShownClaim, ...]
    """Claims of the answer, in its order."""
    of_reference: tuple[ShownClaim, ...]
    """Sentences of the reference."""
    criteria: tuple[ShownClaim, ...]
    """What the answer was to do, and its citations."""
    chunks: tuple[ShownChunk, ...]
    more_chunks: int
    """Number of chunks that are not shown because no claim cites them."""
    more_claims: int = 0
    """Number of claims that are not shown: the worst are."""
    workings: tuple[Working, ...] = ()
    """How the numbers were made."""


def shown_answer(
    judged: JudgedAnswer, *, most_chunks: int = _MOST_CHUNKS, most_claims: int | None = None
) -> ShownAnswer:
    """Prepare an answer for a page.

    ``most_chunks`` bounds the chunks that no claim cites, ``most_claims`` the claims, the worst first.
    """
    record = judged.record
    every = tuple(_claims(judged))
    claims = _worst(every, most_claims)
    about_answer = tuple(claim for claim in claims if claim.verdict.claim.kind not in _OF_OTHERS)
    chunks = _chunks(judged, claims)
    uncited = sorted(chunks, key=lambda chunk: not chunk.is_cited)
    cited = sum(chunk.is_cited for chunk in chunks)
    shown = {chunk.place for chunk in islice(uncited, max(most_chunks, cited))}
    return ShownAnswer(
        judged=judged,
        pieces=pieces(record.answer or "", [mark for claim in about_answer for mark in _mark(claim)]),
        claims=about_answer,
        of_reference=tuple(claim for claim in claims if claim.verdict.claim.kind == OF_REFERENCE),
        criteria=tuple(claim for claim in claims if claim.verdict.claim.kind in (OF_CRITERION, OF_CITATION)),
        chunks=tuple(chunk for chunk in chunks if chunk.place in shown),
        more_chunks=len(chunks) - len(shown),
        more_claims=len(every) - len(claims),
        workings=workings_of(judged.evaluation),
    )


def _claims(judged: JudgedAnswer) -> Iterator[ShownClaim]:
    """Yield the metrics' verdicts on claims, without repetitions."""
    metrics: dict[Verdict, list[str]] = {}
    for result in judged.evaluation.results:
        for verdict in result.verdicts:
            metrics.setdefault(verdict, []).append(result.metric)
    length = len(judged.record.answer or "")
    places = {chunk.id: place for place, chunk in reversed([*enumerate(judged.record.chunks, start=1)])}
    for number, verdict in enumerate(sorted(metrics, key=_place_in_answer), start=1):
        yield ShownClaim(
            number=number,
            verdict=verdict,
            places=tuple(places[chunk_id] for chunk_id in verdict.chunk_ids if chunk_id in places),
            metrics=tuple(dict.fromkeys(metrics[verdict])),
            is_marked=_is_within(verdict, length),
        )


_OF_OTHERS: Final = (OF_REFERENCE, OF_CRITERION, OF_CITATION)
"""Kinds of what is no claim of the answer."""


def _place_in_answer(verdict: Verdict) -> tuple[bool, int, int]:
    return (
        verdict.claim.kind in (OF_CRITERION, OF_CITATION),
        verdict.claim.index,
        WORST_FIRST.index(verdict.label),
    )


def _is_within(verdict: Verdict, length: int) -> bool:
    start, end = verdict.claim.start, verdict.claim.end
    return (
        verdict.claim.kind not in _OF_OTHERS
        and start is not None
        and end is not None
        and 0 <= start < end <= length
    )


def _worst(claims: tuple[ShownClaim, ...], most: int | None) -> tuple[ShownClaim, ...]:
    if most is None or len(claims) <= most:
        return claims
    by_badness = sorted(claims, key=lambda claim: WORST_FIRST.index(claim.verdict.label))
    return tuple(sorted(by_badness[:most], key=lambda claim: claim.number))


def _mark(shown: ShownClaim) -> Iterator[MarkedPassage]:
    claim = shown.verdict.claim
    if claim.start is not None and claim.end is not None:
        yield MarkedPassage(claim.start, claim.end, shown.number, shown.verdict.label)


def _chunks(judged: JudgedAnswer, claims: Sequence[ShownClaim]) -> Sequence[ShownChunk]:
    citing: defaultdict[int, list[ShownClaim]] = defaultdict(list)
    for claim in claims:
        for place in dict.fromkeys(claim.places):
            citing[place].append(claim)
    worths: dict[int, ChunkVerdict] = {}
    for result in judged.evaluation.results:
        for verdict in result.chunk_verdicts:
            worths.setdefault(verdict.rank, verdict)
    return [
        _chunk(place, chunk, citing[place], worths)
        for place, chunk in enumerate(judged.record.chunks, start=1)
    ]


def _chunk(
    place: int, chunk: Chunk, citing: Sequence[ShownClaim], worths: Mapping[int, ChunkVerdict]
) -> ShownChunk:
    text = chunk.text or ""
    quoting = [claim for claim in citing if claim.places[:1] == (place,) and claim.verdict.quote]
    marks = [
        MarkedPassage(at, at + len(quote), claim.number, claim.verdict.label)
        for claim in quoting
        if (quote := claim.verdict.quote or "") and (at := text.find(quote)) >= 0
    ]
    return ShownChunk(
        place=place,
        chunk=chunk,
        pieces=pieces(text, marks),
        cited_by=tuple(claim.number for claim in citing),
        verdict=worths.get(chunk.rank),
    )


# -- numbers, times and money in words --------------------------------------------------------------------
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_LAST_NS: Final = 253_402_300_799 * 10**9
"""The last second that a calendar here has."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 claim``, ``2,000 claims``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration(length_ns: int) -> str:
    """Return a duration in its natural unit: ``850 ms``, ``1.25 s``, ``3 min 20 s``, ``2 h 5 min``."""
    milliseconds = max(length_ns, 0) / 1e6
    if milliseconds < 1:
        return f"{milliseconds * 1_000:.0f} µs"
    if milliseconds < 1_000:
        return f"{milliseconds:.{1 if milliseconds < 10 else 0}f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.2f} s"
    seconds = round(milliseconds / 1_000)
    for size, name, below, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if seconds >= size:
            return f"{seconds // size:,} {name} {seconds % size // below} {small}"
    return f"{seconds // 60} min {seconds % 60} s"


def moment(time_ns: int) -> str:
    """Return a Unix time in nanoseconds as ``2026-05-01 10:00:00 UTC``."""
    time = _EPOCH + timedelta(microseconds=min(max(time_ns, 0), _LAST_NS) // 1_000)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def money(dollars: float) -> str:
    """Return dollars with the digits that say something: ``$1.20``, ``$0.0031``."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def percent(share: float) -> str:
    """Return a share as a percentage; small ones keep one or two digits after the point."""
    digits = 0 if share >= 0.1 or share == 0 else 1 if share >= 0.01 else 2
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def words(name: str) -> str:
    """Return a name as words: ``no_retrieval`` is ``no retrieval``."""
    return name.replace("_", " ")


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "count": "{:,}".format,
    "counted": counted,
    "duration": duration,
    "moment": moment,
    "money": money,
    "percent": percent,
    "score": "{:.2f}".format,
    "words": words,
}
