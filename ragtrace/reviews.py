"""What people say of verdicts: kept in a file, written onto traces, and read by ``ragtrace calibrate``.

A person confirms or overrules the verdict on a claim: a label, and a span of the trace. Reviews also correct
averages: a random sample of answers is reviewed, and its difference is added to the judge's mean.

The difference estimator (Cochran, Sampling Techniques, 1977, 7.10; with a judge's verdicts as the known
variable it is prediction-powered inference, Angelopoulos et al. 2023): the judge's mean over all answers, and
the mean of *human minus judge* over the reviewed ones. It is unbiased whatever the judge's errors are; the
better the judge, the shorter its interval.

Only answers that were reviewed in random order count, and of these only the ones before the first that was
left out: they are a simple random sample. Reviews of opened or uncertain answers would make the sample worse
than the traffic, so the random queue asks about these answers again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from itertools import combinations
from math import hypot, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ragtrace import __version__, semconv
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import (
    ConfigError,
    ReadError,
    SendError,
    SendRefused,
    SendRejected,
    SendUnconfirmed,
    WriteError,
)
from ragtrace.model import AttributeValue, Label, RagRecord, Target, VerdictLabel
from ragtrace.ports import SpanSink
from ragtrace.sql import SqliteFileError, SqliteForm, open_private, transaction
from ragtrace.stats import WeightedMean, agreement_beyond_chance, wilson, wilson_interval
from ragtrace.text import escaped_json
from ragtrace.traces.trace import Resource, Scope, Span, SpanKind, SpanLink, cut_utf8

_LENGTH_NS: Final = 1_000_000


class ReviewPick(StrEnum):
    """How an answer came to be reviewed: averages use random ones only."""

    OPENED = "opened"
    """A person opened it."""
    UNCERTAIN = "uncertain"
    """The queue that asks first where judges disagree or confidence is low."""
    RANDOM = "random"
    """The queue in random order: every answer has the same probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What one person says of one claim."""

    key: AnswerKey
    carrier_span_id: str
    """The evaluation that was looked at."""
    claim: str
    """The claim's text: content."""
    start: int | None
    """The claim's place in the answer; characters."""
    end: int | None
    verdict: VerdictLabel
    """The judge's."""
    label: VerdictLabel
    """The person's: ``supported``, ``contradicted``, ``unsupported``, or ``unjudged`` for "I cannot tell"."""
    note: str = ""
    reviewer: str = ""
    """The token's name, or what the person gave."""
    time_ns: int
    picked: ReviewPick = ReviewPick.OPENED

    @property
    def overrules(self) -> bool:
        """Whether the person disagrees."""
        return self.label is not self.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """A reviewed answer as a row that ``ragtrace calibrate`` reads."""

    key: AnswerKey
    labels: Mapping[str, VerdictLabel | None]
    """Of most people by the text of the claim; ``None`` if as many say something else, or all cannot tell."""
    label: VerdictLabel | None
    """The whole answer's: of a wrong claim, else ``supported`` if people labeled every claim so."""
    picked: ReviewPick
    """``random`` if anybody was asked at random."""
    row: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The row as a line of JSON."""
        return _line(self.row)


def _line(row: Mapping[str, object]) -> str:
    return f"{escaped_json(json.dumps(row, ensure_ascii=False))}\n"


class RecordRows:
    """Rows of records, each question and answer once."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], dict[str, Any]] = {}
        """By what tells them apart."""
        self.repeated = 0
        """Rows that say what another one says."""
        self._stands_for: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, row: Mapping[str, Any], probability: float | None) -> None:
        """Add a row that was drawn with this probability, if that is known.

        One of several alike stands for all of them; the first with labels of people is kept.
        """
        same = tuple(" ".join((row[part] or "").split()).casefold() for part in ("question", "answer"))
        known = self.rows.get(same)
        self.repeated += known is not None
        if known is None or (row["claims"] and not known["claims"]):
            self.rows[same] = dict(row)
        self._stands_for[same] += 1 / probability if probability else math.nan

    def lines(self) -> Iterator[str]:
        """Yield the rows as lines of JSON; without ``sample_probability`` where it is not known."""
        for same, row in self.rows.items():
            stands_for = self._stands_for[same]
            known = {} if math.isnan(stands_for) else {"sample_probability": min(1.0, 1 / stands_for)}
            yield _line({**row, **known})


def record_row(record: RagRecord) -> Mapping[str, Any] | None:
    """Return an answer that nobody reviewed as such a row; ``None`` if texts are missing."""
    if not (record.question and record.answer and any(chunk.text for chunk in record.chunks)):
        return None
    further = {
        "reference": record.reference,
        "provider_citations": [asdict(citation) for citation in record.provider_citations],
        "earlier_turns": [asdict(turn) for turn in record.earlier_turns],
    }
    return {
        "id": record.id,
        "question": record.question,
        "contexts": [{"id": chunk.id, "text": chunk.text} for chunk in record.chunks],
        "answer": record.answer,
        **{name: value for name, value in further.items() if value},
        "claims": [],
        "answer_label": None,
    }


def label_row(
    key: AnswerKey,
    reviews: Sequence[Review],
    *,
    question: str | None,
    contexts: Sequence[tuple[str, str]],
    answer: str | None,
    asked: int | None,
) -> LabelRow:
    """Join the reviews of an answer: each claim once, in the order of the answer.

    ``contexts`` has id and text of each chunk, and ``asked`` is how many claims the evaluation has, reviewed
    or not, if that is known.
    """
    in_order = sorted(
        by_claim(reviews).items(), key=lambda item: (item[0][1] is None, item[0][1] or 0, item[0][0])
    )
    claims = [(text, majority(said)) for (text, _), said in in_order]
    labels, picks = [label for _, label in claims], [review.picked for review in reviews]
    wrong = [label for label in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED) if label in labels]
    is_whole = asked is not None and len(labels) >= asked and None not in labels
    whole = wrong[0] if wrong else VerdictLabel.SUPPORTED if labels and is_whole else None
    return LabelRow(
        key=key,
        labels=dict(claims),
        label=whole,
        picked=ReviewPick.RANDOM if ReviewPick.RANDOM in picks else picks[0],
        row={
            "id": f"{key.trace_id}:{key.span_id}",
            "question": question,
            "contexts": [{"id": chunk_id, "text": text} for chunk_id, text in contexts],
            "answer": answer,
            **({"reference": answer} if whole is VerdictLabel.SUPPORTED else {}),
            "claims": [{"text": text, "label": label} for text, label in claims],
            "answer_label": whole,
        },
    )


def by_claim(reviews: Sequence[Review]) -> Mapping[tuple[str, int | None], Sequence[Review]]:
    """Return the reviews of an answer by the claim's text and place."""
    of_claim: defaultdict[tuple[str, int | None], list[Review]] = defaultdict(list)
    for review in reviews:
        of_claim[review.claim, review.start].append(review)
    return of_claim


def majority(reviews: Sequence[Review]) -> VerdictLabel | None:
    """Return the label of most people; ``None`` if two labels have as many, or nobody can tell."""
    counts = Counter(review.label for review in reviews if review.label is not VerdictLabel.UNJUDGED)
    first, *rest = (*counts.most_common(2), None)
    if first is None or (rest[0] is not None and rest[0][1] == first[1]):
        return None
    return first[0]


def review_span(review: Review, target: Target, *, content: bool = True) -> Span:
    """Build the span of a review: a child of the judged span, linked to it, at the time of the review.

    Its id is derived from the review, so that a re-send is the same span. ``content`` is the policy of
    carriers: without it the span has neither the claim nor the note.
    """
    start_ns = max(review.time_ns, target.start_ns)
    return Span(
        trace_id=target.trace_id,
        span_id=_span_id(review),
        parent_span_id=target.span_id,
        name=f"{semconv.REVIEW_SPAN} {review.label.value}",
        kind=SpanKind.INTERNAL,
        start_ns=start_ns,
        end_ns=start_ns + _LENGTH_NS,
        attributes=_attributes(review, target, content=content),
        links=(
            SpanLink(trace_id=target.trace_id, span_id=target.span_id, attributes=semconv.LINK_TO_PARENT),
        ),
        flags=target.trace_flags,
        trace_state=target.trace_state,
        resource=Resource(attributes=target.resource, schema_url=target.resource_schema_url),
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=__version__),
    )


def _span_id(review: Review) -> str:
    key = "|".join(
        (*review.key, review.carrier_span_id, review.claim, review.reviewer, str(review.time_ns), "review")
    )
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8].hex()


def _attributes(review: Review, target: Target, *, content: bool) -> dict[str, AttributeValue]:
    note = review.note if content else ""
    found: dict[str, AttributeValue | None] = {
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.REVIEW_LABEL: review.label.value,
        semconv.REVIEW_VERDICT: review.verdict.value,
        semconv.REVIEW_OVERRULES: review.overrules,
        semconv.REVIEW_CLAIM: _cut(review.claim) if content else None,
        semconv.REVIEW_NOTE: _cut(note) or None,
        semconv.REVIEW_OFFSET_START: review.start,
        semconv.REVIEW_OFFSET_END: review.end,
        semconv.REVIEW_REVIEWER: _cut(review.reviewer) or None,
        semconv.REVIEW_CARRIER: review.carrier_span_id or None,
        semconv.REVIEW_PICKED: review.picked.value,
        semconv.TARGET_TRACE_ID: target.trace_id,
        semconv.TARGET_SPAN_ID: target.span_id,
        **_annotation(review, note),
    }
    return {key: value for key, value in found.items() if value is not None}


def _annotation(review: Review, note: str) -> dict[str, AttributeValue | None]:
    """Return the review as an OpenInference annotation (``spec/annotations.md``)."""
    prefix = f"{semconv.OI_ANNOTATIONS}.0.annotation."
    return {
        f"{prefix}name": "claim_verdict",
        f"{prefix}annotator_kind": semconv.OI_HUMAN,
        f"{prefix}label": review.label.value,
        f"{prefix}explanation": _cut(note) or None,
    }


def _cut(text: str) -> str:
    return cut_utf8(text, semconv.SAFE_STRING_BYTES)


_LEAST_CLAIMS: Final = 20
"""Fewer claims say too little about a judge."""


class ReviewAgreement:
    """How the reviews of answers agree with the judge's verdicts, by claim, and with each other."""

    def __init__(self, answers: Iterable[Sequence[Review]]) -> None:
        table: Counter[tuple[VerdictLabel, VerdictLabel]] = Counter()
        names: set[str] = set()
        self.pairs = self.pairs_agreed = 0
        """Pairs of people who labeled the same claim."""
        for reviews in answers:
            names |= {review.reviewer for review in reviews}
            for said in by_claim(reviews).values():
                table[said[0].verdict, majority(said) or VerdictLabel.UNJUDGED] += 1
                for one, other in combinations(said, 2):
                    self.pairs += 1
                    self.pairs_agreed += one.label is other.label
        self.table = table
        """Claims by the judge's verdict and the people's label, undecided ones too."""
        self.reviewers = len(names)
        decided = {pair: number for pair, number in table.items() if VerdictLabel.UNJUDGED not in pair}
        self.decided = sum(decided.values())
        """Claims that the judge and people decided."""
        self.agreed = sum(number for (judge, human), number in decided.items() if judge is human)
        """Those of them that both label alike."""
        self.says_little = self.decided < _LEAST_CLAIMS
        """Whether there are too few claims to judge a judge by."""
        self.interval = wilson_interval(self.agreed, self.decided) if self.decided else None
        """The 95 % interval of the share of agreement (Wilson); ``None`` without a decided claim."""
        self.kappa = agreement_beyond_chance(decided)
        """Cohen's kappa (1960) over the decided claims; ``None`` if chance agreement is complete."""


METRIC: Final = "faithfulness"
"""Claims are reviewed, so this is the metric that reviews correct."""
LEAST: Final = 30
"""Fewer reviewed answers say too little: their interval would be no better than none."""
_WRONG: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


class ReviewedPair(NamedTuple):
    """One reviewed answer of the random sample."""

    judge: float
    """1 if it passes and 0 if not; or its score."""
    human: float
    weight: float
    """One over the probability with which the answer was sampled for the judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMean:
    """A share of passing answers or a mean score, corrected by reviews."""

    mean: float
    low: float
    """The ends of the 95 % confidence interval."""
    high: float
    reviewed: int
    """Answers in the random sample."""


def random_prefix(
    in_order: Iterable[tuple[float, AnswerSummary]],
    reviewed: Mapping[AnswerKey, Sequence[Review]],
    *,
    gone: Collection[AnswerKey] = (),
    scores: bool = False,
) -> Sequence[ReviewedPair]:
    """Return the reviewed answers of a random order, up to the first one that nobody reviewed.

    An answer without a decided outcome of the judge, or of which people cannot tell, is passed over: it has
    no place in the judge's mean either. So is one whose content is ``gone``: that depends on its age, not on
    its verdict.

    Args:
        in_order: Answers with their places in the random order.
        reviewed: The reviews by answer.
        gone: Answers that cannot be read any more.
        scores: Compare scores, not who passes: people's is the share of supported claims.
    """
    pairs = []
    for _, answer in in_order:
        if answer.key in gone:
            continue
        said = [review for review in reviewed.get(answer.key, ()) if review.picked is ReviewPick.RANDOM]
        if not said:
            break
        human = score(said) if scores else passes(said)
        metric = answer.metric(METRIC)
        if human is None or metric is None or metric.score is None or answer.probability is None:
            continue
        judge = metric.score if scores else float(metric.label is Label.PASS)
        pairs.append(ReviewedPair(judge=judge, human=float(human), weight=1 / answer.probability))
    return pairs


def passes(reviews: Sequence[Review]) -> bool | None:
    """Say whether an answer passes by its reviews: no claim is wrong; ``None`` if none is decided."""
    labels = _labels(reviews)
    return None if not labels else not any(label in _WRONG for label in labels)


def score(reviews: Sequence[Review]) -> float | None:
    """Return the share of the decided claims that people find supported; ``None`` if none is decided."""
    labels = _labels(reviews)
    return None if not labels else sum(label not in _WRONG for label in labels) / len(labels)


def _labels(reviews: Sequence[Review]) -> Sequence[VerdictLabel]:
    return [label for said in by_claim(reviews).values() if (label := majority(said))]


def corrected_mean(judged: WeightedMean, pairs: Sequence[ReviewedPair]) -> CorrectedMean | None:
    """Correct the judge's share of passing answers, or its mean score; ``None`` with fewer than 30 pairs.

    The interval of the judge's share is part of the result's.
    """
    if len(pairs) < LEAST:
        return None
    whole = sum(pair.weight for pair in pairs)
    effective = whole**2 / sum(pair.weight**2 for pair in pairs)  # Kish 1965
    worse = sum(pair.weight * max(0.0, pair.judge - pair.human) for pair in pairs) / whole
    better = sum(pair.weight * max(0.0, pair.human - pair.judge) for pair in pairs) / whole
    down, up = _halves(better, worse, effective)
    mean = judged.mean + better - worse
    return CorrectedMean(
        mean=min(1.0, max(0.0, mean)),
        low=max(0.0, mean - hypot(down, judged.mean - judged.low)),
        high=min(1.0, mean + hypot(up, judged.high - judged.mean)),
        reviewed=len(pairs),
    )


def _halves(better: float, worse: float, size: float) -> tuple[float, float]:
    """Return how far the interval of ``better - worse`` reaches down and up.

    Two shares of one sample, by the method of variance estimates recovery (Zou and Donner 2008) from their
    Wilson intervals, with their correlation. It is true for few and rare differences, too. Differences of
    scores vary less than shares with the same means, so for them it is rather too long.
    """
    low_of_better, high_of_better = wilson(better, size)
    low_of_worse, high_of_worse = wilson(worse, size)
    both = (1 - better) * (1 - worse)
    correlation = -sqrt(better * worse / both) if both else -1.0

    def joined(one: float, other: float) -> float:
        return sqrt(max(0.0, one**2 + other**2 - 2 * correlation * one * other))

    down = joined(better - low_of_better, high_of_worse - worse)
    return down, joined(high_of_better - better, worse - low_of_worse)


_SCHEMA: Final = """
CREATE TABLE review (
    id INTEGER PRIMARY KEY, trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    carrier_span_id TEXT NOT NULL, claim TEXT NOT NULL, start INTEGER, end INTEGER,
    verdict TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL, reviewer TEXT NOT NULL,
    time_ns INTEGER NOT NULL, picked TEXT NOT NULL, is_current INTEGER NOT NULL DEFAULT 1);
CREATE INDEX review_of ON review (trace_id, span_id, tenant) WHERE is_current;
CREATE TABLE answer (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    question TEXT, contexts TEXT NOT NULL, answer TEXT, claims INTEGER,
    PRIMARY KEY (trace_id, span_id, tenant)) WITHOUT ROWID;
CREATE TABLE gone (
    trace_id TEXT NOT NULL, span_id TEXT NOT NULL, tenant TEXT NOT NULL,
    PRIMARY KEY (trace_id, span_id, tenant)) WITHOUT ROWID;
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY, sink TEXT NOT NULL, payload BLOB NOT NULL, reason TEXT NOT NULL DEFAULT '');
"""
_FORM: Final = SqliteForm(application_id=0x52545256, schema=_SCHEMA, pragmas=("synchronous = FULL",))
_OF_REVIEW: Final = tuple(each.name for each in fields(Review) if each.name != "key")
_COLUMNS: Final = f"trace_id, span_id, tenant, {', '.join(_OF_REVIEW)}"
_OF_KEY: Final = "trace_id = ? AND span_id = ? AND tenant = ?"


class KeptSpan(NamedTuple):
    """A span that waits for its delivery."""

    id: int
    payload: bytes


class ReviewFile:
    """Keeps reviews: in a file of its own, as pages may run beside the collector.

    Methods that write raise WriteError if the file cannot be written: nothing that was kept is lost. Those
    that read raise ReadError.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises:
            ConfigError: it cannot be used; the message says why.
        """
        self._path = path
        self._turn = threading.Lock()
        self._known: tuple[tuple[int, int, str | None], Mapping[AnswerKey, Sequence[Review]]] | None = None
        self.added = asyncio.Event()
        """Set when there are new spans to deliver."""
        try:
            self._db = open_private(path, _FORM, is_shared=True)
        except OSError as exc:
            why = exc if isinstance(exc, SqliteFileError) else exc.strerror or exc
            raise ConfigError(f"reviews cannot be kept in {str(path)!r}: {why}") from exc

    async def add(
        self,
        reviews: Sequence[Review],
        *,
        record: RagRecord,
        claims: int | None = None,
        outbox: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Keep reviews of one answer, all or none. A person's later review of a claim replaces the earlier.

        What a person was asked at random stays a random review, also if they change it later. ``claims`` is
        how many claims the evaluation has, reviewed or not, and ``outbox`` has serialized spans of the
        reviews by sink, which are kept until they are delivered.
        """

        def work(db: sqlite3.Connection) -> None:
            for review in reviews:
                _replace(db, review)
            if reviews:
                _keep_answer(db, reviews[0].key, record, claims)
            db.executemany("INSERT INTO outbox (sink, payload) VALUES (?, ?)", list(outbox.items()))

        await self._write(work)
        self.added.set()

    async def undo(self, key: AnswerKey, *, reviewer: str) -> None:
        """Take back what a person said of an answer; the history stays."""
        statement = f"UPDATE review SET is_current = 0 WHERE {_OF_KEY} AND reviewer = ?"
        await self._write(lambda db: db.execute(statement, (*key, reviewer)))

    async def of(self, key: AnswerKey) -> Sequence[Review]:
        """Return the reviews of an answer, the newest first."""
        query = f"SELECT {_COLUMNS} FROM review WHERE {_OF_KEY} AND is_current ORDER BY time_ns DESC, id DESC"
        return [_review(row) for row in await self._read(query, key)]

    async def reviewed(self, *, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
        """Return every reviewed answer, with its reviews, the newest first.

        As long as nothing is written they are read once: ten thousand answers take a quarter of a second.
        """
        return await asyncio.to_thread(self._reviewed, tenant)

    def _reviewed(self, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
        with self._reading() as db:
            (version,) = db.execute("PRAGMA data_version").fetchone()
            state = (version, db.total_changes, tenant)
            if self._known is None or self._known[0] != state:
                self._known = state, _reviews_in(db, tenant)
            return self._known[1]

    async def labels(self, *, tenant: str | None) -> Sequence[LabelRow]:
        """Return the reviewed answers in the form that ``ragtrace calibrate`` reads."""
        reviewed = await self.reviewed(tenant=tenant)
        texts = {
            AnswerKey(trace_id, span_id, of_tenant): (question, json.loads(contexts), answer, asked)
            for trace_id, span_id, of_tenant, question, contexts, answer, asked in await self._read(
                "SELECT trace_id, span_id, tenant, question, contexts, answer, claims FROM answer", ()
            )
        }
        return [
            label_row(key, reviews, question=question, contexts=contexts, answer=answer, asked=asked)
            for key, reviews in reviewed.items()
            for question, contexts, answer, asked in [texts[key]]
        ]

    async def pass_over(self, key: AnswerKey) -> None:
        """Keep that an answer cannot be reviewed: its content is gone."""
        statement = "INSERT INTO gone VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        await self._write(lambda db: db.execute(statement, key))

    async def passed_over(self, *, tenant: str | None) -> frozenset[AnswerKey]:
        """Return the answers whose content is gone."""
        query = "SELECT trace_id, span_id, tenant FROM gone WHERE (?1 IS NULL OR tenant = ?1)"
        return frozenset(AnswerKey(*row) for row in await self._read(query, (tenant,)))

    async def waiting(self, sink: str, *, limit: int = 64) -> Sequence[KeptSpan]:
        """Return spans to deliver to a sink, the oldest first."""
        query = "SELECT id, payload FROM outbox WHERE sink = ? AND reason = '' ORDER BY id LIMIT ?"
        return [KeptSpan(*row) for row in await self._read(query, (sink, limit))]

    async def delivered(self, spans: Sequence[KeptSpan]) -> None:
        """Forget spans that a sink has."""
        rows = [(span.id,) for span in spans]
        await self._write(lambda db: db.executemany("DELETE FROM outbox WHERE id = ?", rows))

    async def refused(self, spans: Sequence[KeptSpan], reason: str) -> None:
        """Set spans aside that a sink will never take."""
        rows = [(reason, span.id) for span in spans]
        await self._write(lambda db: db.executemany("UPDATE outbox SET reason = ? WHERE id = ?", rows))

    async def aclose(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._turn:
            self._db.close()

    async def _read(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        def work() -> list[tuple[Any, ...]]:
            with self._reading() as db:
                return db.execute(query, tuple(values)).fetchall()

        return await asyncio.to_thread(work)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._turn:
                yield self._db
        except sqlite3.Error as exc:
            raise ReadError(f"the reviews in {str(self._path)!r} cannot be read: {exc}") from exc

    async def _write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        def run() -> None:
            try:
                with self._turn, transaction(self._db):
                    work(self._db)
            except sqlite3.Error as exc:
                raise WriteError(
                    f"this could not be kept in {str(self._path)!r} ({exc}): nothing that was kept before is"
                    " lost. Make room, or make the file writable, then send it again."
                ) from exc

        await asyncio.to_thread(run)


def _reviews_in(db: sqlite3.Connection, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
    query = (
        f"SELECT {_COLUMNS} FROM review WHERE is_current AND (?1 IS NULL OR tenant = ?1)"
        " ORDER BY time_ns DESC, id DESC"
    )
    found: defaultdict[AnswerKey, list[Review]] = defaultdict(list)
    for row in db.execute(query, (tenant,)):
        review = _review(row)
        found[review.key].append(review)
    return MappingProxyType(dict(found))


def _replace(db: sqlite3.Connection, review: Review) -> None:
    earlier = db.execute(
        f"UPDATE review SET is_current = 0 WHERE {_OF_KEY} AND reviewer = ? AND claim = ? AND start IS ?"
        " AND is_current RETURNING picked",
        (*review.key, review.reviewer, review.claim, review.start),
    ).fetchall()
    picked = ReviewPick.RANDOM if (ReviewPick.RANDOM.value,) in earlier else review.picked
    db.execute(
        f"INSERT INTO review ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*review.key, *(getattr(replace(review, picked=picked), name) for name in _OF_REVIEW)),
    )


def _keep_answer(db: sqlite3.Connection, key: AnswerKey, record: RagRecord, claims: int | None) -> None:
    contexts = json.dumps([[chunk.id, chunk.text or ""] for chunk in record.chunks])
    db.execute(
        "INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " question = excluded.question, contexts = excluded.contexts, answer = excluded.answer,"
        " claims = excluded.claims",
        (*key, record.question, contexts, record.answer, claims),
    )


def _review(row: Sequence[Any]) -> Review:
    told = dict(zip(_OF_REVIEW, row[3:], strict=True))
    told |= {name: VerdictLabel(told[name]) for name in ("verdict", "label")}
    return Review(key=AnswerKey(*row[:3]), **{**told, "picked": ReviewPick(told["picked"])})


log = logging.getLogger("ragtrace.reviews")

_PAUSE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDelivery:
    """Sends what waits, at once and again after a pause if a sink is down."""

    reviews: ReviewFile
    sinks: Mapping[str, SpanSink]
    """By the names under which spans wait."""
    pause_s: float = _PAUSE_S

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self.reviews.added.clear()
            for name in self.sinks:
                try:
                    await self.deliver(name)
                except (ReadError, WriteError) as exc:  # it is sent again, and is the same span
                    log.warning("%s", exc)
            try:
                async with asyncio.timeout(self.pause_s):
                    await self.reviews.added.wait()
            except TimeoutError:
                pass

    async def deliver(self, name: str) -> None:
        """Send what waits for one sink, until nothing is left or it fails.

        Raises:
            ReadError: the file cannot be read.
            WriteError: it cannot be written: what was delivered still waits.
        """
        sink = self.sinks[name]
        while waiting := await self.reviews.waiting(name):
            for span in waiting:
                try:
                    await sink.send(span.payload)
                except SendRefused as exc:
                    log.warning("reviews wait for %s: %s", sink.name, exc)
                    return
                except SendRejected as exc:
                    log.warning("a review was refused by %s: %s", sink.name, exc)
                    await self.reviews.refused([span], str(exc))
                    continue
                except SendUnconfirmed:
                    pass  # it reported success: a second copy would be the same span
                except SendError as exc:
                    log.warning("reviews wait for %s: %s", sink.name, exc)
                    return
                await self.reviews.delivered([span])
