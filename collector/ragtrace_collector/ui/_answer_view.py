"""What the page of one answer shows, prepared for its template."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlsplit

from ragtrace import semconv
from ragtrace.answers.carrier import summary_of
from ragtrace.answers.port import AnswerVersion, OpenedAnswer
from ragtrace.answers.shown import (
    SKIP_MEANINGS,
    MarkedText,
    ShownChunk,
    ShownClaim,
    counted,
    percent,
    pieces,
    shown_answer,
    words,
)
from ragtrace.answers.summary import AnswerKey, AnswerSummary, summary_of_judged
from ragtrace.model import (
    Direction,
    Evaluation,
    JudgedAnswer,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Sample,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.reviews import Review, ReviewPick
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span

_MOST_MARKED: Final = 4_000
"""Shown characters of a marked passage; an unmarked one is folded from 2,000 on."""
_MOST_HIDDEN: Final = 1_000_000
"""Characters of a fold that are on the page at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldablePassages:
    """A text with its beginning shown, and the rest below a fold."""

    first: tuple[MarkedText, ...]
    rest: tuple[MarkedText, ...]
    rest_characters: int
    rest_claims: int
    """Claims that begin in the rest."""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read."""
        return not any(passage.text.strip() for passage in (*self.first, *self.rest))


def fold(pieces: Iterable[MarkedText], *, shown: int) -> FoldablePassages:
    """Fold a marked text after about ``shown`` characters, between two passages."""
    passages = tuple(_passages(pieces))
    end, room = 0, shown
    while end < len(passages) and (end == 0 or room > 0):
        room -= len(passages[end].text)
        end += 1
    rest = passages[end:]
    return FoldablePassages(
        first=passages[:end],
        rest=rest,
        rest_characters=sum(len(passage.text) + passage.left_out for passage in rest),
        rest_claims=len({number for passage in rest for number in passage.starts}),
    )


def _passages(pieces: Iterable[MarkedText]) -> Iterator[MarkedText]:
    begun: set[int] = set()
    for piece in pieces:
        for part in _parts(piece):
            starts = tuple(number for number in part.numbers if number not in begun)
            begun.update(starts)
            yield part._replace(starts=starts, hidden=part.hidden[:_MOST_HIDDEN])


def _parts(piece: MarkedText) -> Sequence[MarkedText]:
    """Part a long marked passage: its beginning, and its end with what is between in a fold."""
    half = _MOST_MARKED // 2
    if piece.label is None or len(piece.text) <= _MOST_MARKED:
        return [piece]
    hidden = piece.text[half:-half]
    return [
        piece._replace(text=piece.text[:half], ends=()),
        piece._replace(text=piece.text[-half:], hidden=hidden, left_out=len(hidden)),
    ]


MOST_CHANGES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """One metric in both."""

    metric: str
    before: float | None
    after: float | None
    label_before: Label | None
    """``None`` if the metric did not run."""
    label_after: Label | None
    is_lower_better: bool

    @property
    def is_better(self) -> bool:
        """Whether the score changed for the better."""
        return self.delta is not None and (self.delta < 0) == self.is_lower_better

    @property
    def delta(self) -> float | None:
        """By how much the score changed; ``None`` if one has none."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimChange:
    """A claim that is not the same in both."""

    text: str
    before: VerdictLabel | None
    """``None`` if it is only in the later one."""
    after: VerdictLabel | None
    reason: str
    """Of the later verdict, or of the earlier one if there is no later."""


class VersionDifference:
    """What changed from one evaluation of an answer to another. Claims are matched by their text."""

    def __init__(self, before: JudgedAnswer, after: JudgedAnswer) -> None:
        earlier, later = _claims(before), _claims(after)
        changes = list(_changes(earlier, later))
        first, second = before.evaluation, after.evaluation
        self.scores = tuple(_scores(first, second))
        self.claims = changes[:MOST_CHANGES]
        self.more_claims = max(len(changes) - MOST_CHANGES, 0)
        """Changes that are not shown."""
        self.unchanged = sum(_label(later.get(key)) == _label(claim) for key, claim in earlier.items())
        """Claims with the same verdict in both."""
        self.evaluator_changed = first.evaluator_version != second.evaluator_version
        self.input_changed = first.input_sha256 != second.input_sha256


_ClaimKey: TypeAlias = tuple[str, str, int]


def _claims(judged: JudgedAnswer) -> Mapping[_ClaimKey, ShownClaim]:
    shown = shown_answer(judged)
    found: dict[_ClaimKey, ShownClaim] = {}
    repetitions: dict[tuple[str, str], int] = {}
    for claim in (*shown.claims, *shown.of_reference, *shown.criteria):
        key = (claim.verdict.claim.kind, " ".join(claim.verdict.claim.text.split()))
        repetitions[key] = repetitions.get(key, -1) + 1
        found[*key, repetitions[key]] = claim
    return found


def _changes(
    earlier: Mapping[_ClaimKey, ShownClaim], later: Mapping[_ClaimKey, ShownClaim]
) -> Iterator[ClaimChange]:
    for key in dict.fromkeys((*later, *earlier)):
        before, after = earlier.get(key), later.get(key)
        told = after or before
        if told is None or _label(before) == _label(after):
            continue
        yield ClaimChange(
            text=told.verdict.claim.text,
            before=_label(before),
            after=_label(after),
            reason=told.verdict.reason or "",
        )


def _label(claim: ShownClaim | None) -> VerdictLabel | None:
    return claim.verdict.label if claim else None


def _scores(first: Evaluation, second: Evaluation) -> Iterator[ScoreChange]:
    earlier, later = _by_metric(first), _by_metric(second)
    for name in dict.fromkeys((*later, *earlier)):
        before, after = earlier.get(name), later.get(name)
        yield ScoreChange(
            metric=name[0] if name[1] == "ragtrace" else f"{name[0]} ({name[1]})",
            before=_score(before),
            after=_score(after),
            label_before=before.label if before else None,
            label_after=after.label if after else None,
            is_lower_better=isinstance(after, MetricResult) and after.direction is Direction.LOWER_IS_BETTER,
        )


def _by_metric(evaluation: Evaluation) -> Mapping[tuple[str, str], MetricOutcome]:
    return {(outcome.metric, outcome.profile): outcome for outcome in evaluation.outcomes}


def _score(outcome: MetricOutcome | None) -> float | None:
    return outcome.score if isinstance(outcome, MetricResult) else None


MOST_CLAIMS: Final = 500
MOST_CHUNKS: Final = 100
"""Chunks that no claim cites."""
_ANSWER_CHARACTERS: Final = 12_000
_CHUNK_CHARACTERS: Final = 6_000
_SAID_CHARACTERS: Final = 80
_VERDICTS: Final = frozenset(VerdictLabel)


class MetricLine:
    """One metric: its score, what passes, and why in words."""

    def __init__(self, outcome: MetricOutcome) -> None:
        name = words(outcome.metric)
        result = outcome if isinstance(outcome, MetricResult) else None
        self.name = name if outcome.profile == "ragtrace" else f"{name} ({outcome.profile})"
        self.label = outcome.label
        self.score = result.score if result else None
        self.percent = round(100 * (self.score or 0))
        """The score as a whole number of hundredths, for the meter."""
        self.code = (result and result.pass_when) or ""
        """The pass rule as configured, if it is more than a threshold."""
        self.is_lower_better = result is not None and result.direction is Direction.LOWER_IS_BETTER
        threshold = result.threshold if result and not self.code else None
        self.threshold = None if threshold is None else round(100 * min(max(threshold, 0), 1))
        """Where the meter marks the threshold; a rule of more than a score has none."""
        self.rule = ""
        """What passes: ``passes from 0.80``; empty for a metric without a score."""
        if self.score is not None and self.code:
            self.rule = "passes when"
        elif self.score is not None and threshold is not None:
            self.rule = f"passes {'up to' if self.is_lower_better else 'from'} {threshold:.2f}"
        self.why = _why(outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLine(ShownClaim):
    """A claim with the way to its evidence."""

    said: str
    """What a screen reader says of its passage: ``claim 2, contradicted, evidence: chunk 1, faq-12``."""
    target: str
    """The anchor of its evidence: its quote, or a chunk; empty without any."""
    reviews: tuple[Review, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLine:
    """A chunk with its text folded."""

    shown: ShownChunk
    text: FoldablePassages
    is_open: bool
    """Whether it is shown without a click: it is cited, or there are few."""
    is_unused: bool
    """No claim cites it, and every supported claim says what it cites."""


class VersionLine(NamedTuple):
    """One evaluation of the answer, in the list of all."""

    number: int
    """From 1, the oldest first."""
    version: AnswerVersion
    summary: AnswerSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChoice:
    """Which evaluations a URL asks for, by their numbers; ``None`` for the valid one, and the two newest."""

    shown: int | str | None = None
    """Also by its id, the span id of the carrier, which is the same wherever the answer is read."""
    before: int | None = None
    after: int | None = None


class AnswerView:
    """Everything that the template of an answer shows."""

    def __init__(
        self,
        opened: OpenedAnswer,
        choice: VersionChoice,
        *,
        reviews: Sequence[Review],
        links: Mapping[str, str],
    ) -> None:
        in_order = sorted(opened.versions, key=lambda version: version.judged.evaluation.started_at_ns)
        version, not_found = _chosen(opened, in_order, choice)
        record = version.judged.record
        shown = shown_answer(version.judged, most_chunks=MOST_CHUNKS, most_claims=MOST_CLAIMS)
        self.key, self.opened, self.version = opened.key, opened, version
        self.summary = version_summary(version)
        self.headline = headline(self.summary)
        outcomes = version.judged.evaluation.outcomes
        by_badness = sorted(outcomes, key=lambda outcome: _LABELS_WORST_FIRST.index(outcome.label))
        self.metrics = tuple(map(MetricLine, by_badness))
        self.question = _plain(record.question)
        self.query = _plain(record.retrieval_query if record.retrieval_query != record.question else None)
        """What the retriever searched for, if it is not the question."""
        self.text = fold(shown.pieces, shown=_ANSWER_CHARACTERS)
        """The answer."""
        self.reference = _plain(record.reference)
        self.chunks = tuple(_chunk_lines(shown.chunks, shown.claims))
        self.more_chunks, self.more_claims = shown.more_chunks, shown.more_claims
        self.reviews = (*reviews, *_reviews_told(opened, {review.time_ns for review in reviews}))
        """Of the file of reviews, and those that only the trace has."""
        lines = _claim_lines((*shown.claims, *shown.of_reference, *shown.criteria), self.chunks, self.reviews)
        self.numbers = {line.number: line for line in lines}
        """The shown claims by number."""
        of_answer = (self.numbers[claim.number] for claim in shown.claims)
        self.claims = tuple(sorted(of_answer, key=lambda line: not line.is_wrong))
        """Wrong ones first, else in the order of the answer."""
        self.of_reference = tuple(self.numbers[claim.number] for claim in shown.of_reference)
        self.criteria = tuple(self.numbers[claim.number] for claim in shown.criteria)
        self.workings = shown.workings
        self.sampling = sampling_sentence(version.judged.sample)
        self.versions = [VersionLine(at, each, version_summary(each)) for at, each in enumerate(in_order, 1)]
        self.pair = _pair(in_order, choice, version)
        """The numbers of two evaluations side by side, and what changed."""
        self.feedback = [
            _feedback(span) for span in opened.feedback if semconv.REVIEW_LABEL not in span.attributes
        ]
        self.links = place_links(links, opened.key)
        """Where the trace is elsewhere, by name."""
        self.notices = (*not_found, *_notices(opened, version))
        self.raw = raw_carrier(version.carrier, most=_RAW_CHARACTERS)
        """The carrier as JSON; empty without one, or if it is too long for the page."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Why a part has no text, by ``question``, ``context`` and ``answer``."""
        return {gap.part.value: SKIP_MEANINGS[gap.reason] for gap in reversed(self.opened.record.gaps)}

    @property
    def session(self) -> str:
        """The session or conversation that the answer is part of."""
        return self.opened.record.session_id or self.opened.record.conversation_id or self.summary.session

    @property
    def wrong(self) -> int:
        """Number of claims with a bad verdict."""
        return sum(claim.is_wrong for claim in self.claims)

    @property
    def shown_number(self) -> int:
        """Which of the versions is shown."""
        return next(line.number for line in self.versions if line.version is self.version)


def _plain(text: str | None) -> FoldablePassages | None:
    return None if text is None else fold(pieces(text, ()), shown=_CHUNK_CHARACTERS)


def version_summary(version: AnswerVersion) -> AnswerSummary:
    """Return the summary of an evaluation: as its carrier tells it, which counts what it left out."""
    told = summary_of(version.carrier) if version.carrier else None
    return told or summary_of_judged(version.judged)


def _chosen(
    opened: OpenedAnswer, in_order: Sequence[AnswerVersion], choice: VersionChoice
) -> tuple[AnswerVersion, tuple[str, ...]]:
    if choice.shown is None:
        return opened.versions[0], ()
    for number, version in enumerate(in_order, 1):
        if choice.shown in (number, version.evaluation_id):
            return version, ()
    return opened.versions[0], (
        f"There is no evaluation {choice.shown} of this answer here: the valid one is shown",
    )


def _notices(opened: OpenedAnswer, version: AnswerVersion) -> Iterator[str]:
    if not version.is_valid:
        yield "A later evaluation replaces this one: its scores count in no average"
    elif sum(other.is_valid for other in opened.versions) > 1:
        yield (
            "Several evaluations of this answer are valid side by side, such as those of two evaluators:"
            " choose one below"
        )
        if other := _opponent(opened.versions, version):
            yield _dispute(version_summary(version), version_summary(other))
    if replaced := _overruled(opened.versions, version):
        before = version_summary(replaced)
        yield (
            f"This evaluation overrules the one that it replaces: {before.judge or 'the judge'} said"
            f" {before.label.value}. Both are compared below"
        )
    if version.judged.evaluation.compromised:
        yield (
            "The judge failed a canary claim, which can mean prompt injection: a second judge decided, or the"
            " metric failed"
        )
    yield from opened.notices
    yield from version.notices


_OPPOSITES: Final = {Label.PASS: Label.FAIL, Label.FAIL: Label.PASS}


def _opponent(versions: Sequence[AnswerVersion], shown: AnswerVersion) -> AnswerVersion | None:
    """Return a valid evaluation that passes what the one shown fails, or the other way round."""
    opposite = _OPPOSITES.get(version_summary(shown).label)
    if opposite is None or not shown.is_valid:
        return None
    return next(
        (each for each in versions if each.is_valid and version_summary(each).label is opposite), None
    )


def _overruled(versions: Sequence[AnswerVersion], shown: AnswerVersion) -> AnswerVersion | None:
    """Return the evaluation that this one replaces if it says the opposite."""
    replaced = next((each for each in versions if each.evaluation_id == shown.judged.supersedes), None)
    if replaced is None or not shown.is_valid:
        return None
    opposite = _OPPOSITES.get(version_summary(shown).label)
    return replaced if version_summary(replaced).label is opposite else None


def _dispute(shown: AnswerSummary, other: AnswerSummary) -> str:
    says = {Label.PASS: "passes", Label.FAIL: "fails"}
    return (
        f"The evaluations disagree: {shown.judge or 'this judge'} {says[shown.label]} the answer,"
        f" {other.judge or 'another judge'} {says[other.label]} it. Their verdicts are compared below"
    )


# -- verdict ----------------------------------------------------------------------------------------------
_BY_THEM: Final = {
    VerdictLabel.CONTRADICTED: "contradicted by the chunks",
    VerdictLabel.UNSUPPORTED: "not mentioned in the chunks",
    VerdictLabel.UNJUDGED: "left undecided by the judge",
}


def headline(summary: AnswerSummary) -> str:
    """Say in one sentence what was found."""
    if summary.label is Label.ERROR:
        return f"The judge gave no usable reply: {words(summary.reason) or 'unknown error'}."
    if summary.label is Label.SKIPPED:
        return f"There was nothing to judge: {SKIP_MEANINGS.get(summary.reason, words(summary.reason))}."
    said = _claims_sentence(summary.claims) or _chunks_sentence(summary.chunks)
    is_sound = summary.claims.supported == summary.claims.total
    if summary.label is Label.PASS:
        return said if is_sound or not said else f"{said[:-1]}, which the pass rule allows."
    names = [words(metric.name) for metric in summary.metrics if metric.label is Label.FAIL]
    failing = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    if not said:
        return f"It fails by {failing or 'its scores'}."
    return f"{said[:-1]}, but it fails by {failing}." if is_sound and failing else said


def _claims_sentence(counts: VerdictCounts) -> str:
    total = counts.supported + counts.contradicted + counts.unsupported + counts.unjudged
    if not total:
        return ""
    if counts.supported == total:
        return (
            "The chunks support its one claim." if total == 1 else f"The chunks support all {total:,} claims."
        )
    found = [(getattr(counts, label.value), said) for label, said in _BY_THEM.items()]
    (number, said), *others = [(number, said) for number, said in found if number]
    first = (
        f"{number:,} of {total:,} claims {_is(number)} {said}" if total > 1 else f"Its one claim is {said}"
    )
    return ", ".join([first, *(f"{number:,} {_is(number)} {said}" for number, said in others)]) + "."


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _chunks_sentence(counts: VerdictCounts) -> str:
    total = counts.relevant + counts.partly_relevant + counts.irrelevant + counts.unjudged
    if not total:
        return ""
    return (
        f"{counts.relevant:,} of {counted(total, 'chunk')} {_is(counts.relevant)} relevant to the question."
    )


_LABELS_WORST_FIRST: Final = (Label.FAIL, Label.ERROR, Label.SKIPPED, Label.PASS)


def _why(result: MetricOutcome) -> str:
    if isinstance(result, MetricFailure):
        return f"The judge gave no usable reply: {words(result.error_type)}."
    if result.skip_reason:
        return f"Not scored: {SKIP_MEANINGS.get(result.skip_reason, words(result.skip_reason))}."
    told = ": ".join(text for text in (result.explanation, result.reason) if text)
    return told or _claims_sentence(result.counts) or _chunks_sentence(result.counts)


# -- claims and chunks ------------------------------------------------------------------------------------
def _chunk_lines(chunks: Sequence[ShownChunk], claims: Sequence[ShownClaim]) -> Iterator[ChunkLine]:
    supported = [claim for claim in claims if claim.verdict.label is VerdictLabel.SUPPORTED]
    are_uses_known = all(claim.places for claim in supported)
    for chunk in chunks:
        yield ChunkLine(
            shown=chunk,
            text=fold(chunk.pieces, shown=_CHUNK_CHARACTERS),
            is_open=chunk.is_cited or len(chunks) <= 3,
            is_unused=not chunk.is_cited and are_uses_known,
        )


def _claim_lines(
    claims: Sequence[ShownClaim], chunks: Sequence[ChunkLine], reviews: Sequence[Review]
) -> Iterator[ClaimLine]:
    quoted = {
        number
        for chunk in chunks
        for passage in (*chunk.text.first, *chunk.text.rest)
        for number in passage.starts
    }
    ids = {chunk.shown.place: chunk.shown.chunk.id for chunk in chunks}
    by_claim: defaultdict[str, list[Review]] = defaultdict(list)
    for review in reviews:
        by_claim[review.claim].append(review)
    for claim in claims:
        yield ClaimLine(
            **{name: getattr(claim, name) for name in ShownClaim.__slots__},
            said=_said(claim, ids),
            target=_target(claim, quoted, ids),
            reviews=tuple(by_claim[claim.verdict.claim.text]),
        )


def _target(claim: ShownClaim, quoted: set[int], ids: Mapping[int, str]) -> str:
    if claim.number in quoted:
        return f"quote-{claim.number}"
    place = next((place for place in claim.places if place in ids), None)
    return "" if place is None else f"chunk-{place}"


def _said(claim: ShownClaim, ids: Mapping[int, str]) -> str:
    evidence = ", ".join(
        f"chunk {place}, {ids[place][:_SAID_CHARACTERS]}" for place in claim.places if place in ids
    )
    how = "incidentally " if claim.verdict.is_incidental else ""
    said = f"claim {claim.number}, {how}{words(claim.verdict.label.value)}"
    return f"{said}, evidence: {evidence}" if evidence else f"{said}, no evidence"


# -- around the answer ------------------------------------------------------------------------------------
def sampling_sentence(sample: Sample | None) -> str:
    """Say why the answer was evaluated, and what it counts for in averages."""
    if sample is None:
        return "It was evaluated without sampling, or the place that it was read from does not keep why."
    if sample.rate >= 1 and sample.probability == 1:
        return f"The rule “{sample.rule}” evaluates every answer: this one counts once in averages."
    rate = f"The rule “{sample.rule}” evaluates {percent(sample.rate)} of its answers."
    if not sample.probability:
        return f"{rate} How probable it was to choose this one is unknown, so averages leave it out."
    weight = 1 / sample.probability
    chance = f"This one had a probability of {percent(sample.probability)}"
    return f"{rate} {chance}, so it counts for {weight:,.{0 if weight >= 10 else 1}f} in averages."


def _pair(
    in_order: Sequence[AnswerVersion], choice: VersionChoice, shown: AnswerVersion
) -> tuple[int, int, VersionDifference] | None:
    """Compare the chosen versions: by default those that disagree, else the last two."""
    last = len(in_order)
    if last < 2:
        return None
    default = last - 1, last
    if opponent := _opponent(in_order, shown) or _overruled(in_order, shown):
        default = _number(in_order, opponent), _number(in_order, shown)
    before = choice.before if choice.before and choice.before <= last else default[0]
    after = choice.after if choice.after and choice.after <= last else default[1]
    return before, after, VersionDifference(in_order[before - 1].judged, in_order[after - 1].judged)


def _number(in_order: Sequence[AnswerVersion], wanted: AnswerVersion) -> int:
    return next(number for number, version in enumerate(in_order, start=1) if version is wanted)


def _feedback(span: Span) -> Mapping[str, object]:
    """Return what a user said, on a span of its own."""
    told = span.attributes
    score = told.get(semconv.FEEDBACK_SCORE)
    is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
    return {
        "name": _text(told.get(semconv.FEEDBACK_NAME)) or span.name,
        "label": _text(told.get(semconv.FEEDBACK_LABEL)),
        "score": score if is_number else None,
        "comment": _text(told.get(semconv.FEEDBACK_COMMENT)),
        "time_ns": span.start_ns,
    }


def _reviews_told(opened: OpenedAnswer, known: Collection[int]) -> Iterator[Review]:
    """Yield the reviews that only the trace has: another place may keep the file of reviews."""
    for span in opened.feedback:
        told = span.attributes
        label, verdict = told.get(semconv.REVIEW_LABEL), told.get(semconv.REVIEW_VERDICT)
        if span.start_ns in known or label not in _VERDICTS or verdict not in _VERDICTS:
            continue
        yield Review(
            key=opened.key,
            carrier_span_id=_text(told.get(semconv.REVIEW_CARRIER)),
            claim=_text(told.get(semconv.REVIEW_CLAIM)),
            start=None,
            end=None,
            verdict=VerdictLabel(str(verdict)),
            label=VerdictLabel(str(label)),
            note=_text(told.get(semconv.REVIEW_NOTE)),
            reviewer=_text(told.get(semconv.REVIEW_REVIEWER)),
            time_ns=span.start_ns,
            picked=ReviewPick.OPENED,
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def place_links(links: Mapping[str, str], key: AnswerKey) -> Mapping[str, str]:
    """Return the links to the trace elsewhere: web addresses only, whatever the configuration says."""
    trace_id, span_id = (quote(each, safe="") for each in key[:2])
    return {
        name: url.replace("{trace_id}", trace_id).replace("{span_id}", span_id)
        for name, url in links.items()
        if urlsplit(url).scheme in ("http", "https")
    }


_RAW_CHARACTERS: Final = 200_000


def raw_carrier(carrier: Span | None, *, most: int | None = None) -> str:
    """Return a carrier as OTLP's JSON, indented; empty without one, or if it is longer than ``most``."""
    if carrier is None:
        return ""
    text = json.dumps(json.loads(encode_json([carrier])), ensure_ascii=False, indent=2)
    return text if most is None or len(text) <= most else ""
