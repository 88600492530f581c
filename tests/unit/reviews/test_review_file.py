"""Reviews: kept until they are taken back, with what labels need, spans to deliver, and what they correct."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import semconv
from ragtrace.answers.carrier import summary_of
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import SendRefused, SendRejected, SendRetryable, WriteError
from ragtrace.model import Chunk, RagRecord, Target, VerdictLabel
from ragtrace.reviews import (
    Review,
    ReviewAgreement,
    ReviewDelivery,
    ReviewedPair,
    ReviewFile,
    ReviewPick,
    corrected_mean,
    passes,
    random_prefix,
    review_span,
)
from ragtrace.stats import WeightedMean
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Trace
from ragtrace_collector.receive.intake import drop_own_scopes
from tests.rag_spans import rag_trace
from tests.unit.answers.rows import a_row

KEY = AnswerKey("a" * 32, "b" * 16)
RECORD = RagRecord(
    id="r",
    question="How long do refunds take?",
    chunks=(Chunk(id="faq-12", text="Refunds take 14 days.", rank=0),),
    answer="Refunds take 30 days.",
    target=Target(
        trace_id=KEY.trace_id, span_id=KEY.span_id, start_ns=1, end_ns=2, resource={"service.name": "bot"}
    ),
)
REVIEW = Review(
    key=KEY,
    carrier_span_id="c" * 16,
    claim="Refunds take 30 days.",
    start=0,
    end=21,
    verdict=VerdictLabel.UNSUPPORTED,
    label=VerdictLabel.CONTRADICTED,
    note="The FAQ says 14.",
    reviewer="ada",
    time_ns=1_795_262_400_000_000_000,
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ReviewFile]:
    made = ReviewFile(tmp_path / "reviews.db")
    yield made
    made._close()


async def test_a_later_review_of_the_same_person_replaces_the_earlier_one(file: ReviewFile) -> None:
    later = replace(REVIEW, label=VerdictLabel.SUPPORTED, time_ns=REVIEW.time_ns + 1)
    other = replace(REVIEW, reviewer="grace")
    for review in (REVIEW, other, later):
        await file.add([review], record=RECORD)
    assert {(said.reviewer, said.label) for said in await file.of(KEY)} == {
        ("ada", VerdictLabel.SUPPORTED),
        ("grace", VerdictLabel.CONTRADICTED),
    }


async def test_a_tenant_sees_its_own(file: ReviewFile) -> None:
    of_tenant = replace(REVIEW, key=KEY._replace(tenant="acme"))
    await file.add([REVIEW], record=RECORD)
    await file.add([of_tenant], record=RECORD)
    assert set(await file.reviewed(tenant="acme")) == {of_tenant.key}
    assert set(await file.reviewed(tenant=None)) == {KEY, of_tenant.key}


MEANT = {"c": VerdictLabel.CONTRADICTED, "s": VerdictLabel.SUPPORTED, "u": VerdictLabel.UNJUDGED}


async def test_labels_are_those_of_most_people(file: ReviewFile) -> None:
    expected = {"c": "contradicted", "cc": "contradicted", "cs": None, "ccs": "contradicted", "u": None}
    for labels in expected:
        for number, letter in enumerate(labels):
            review = replace(REVIEW, key=AnswerKey("a" * 32, labels), reviewer=f"p{number}")
            await file.add([replace(review, label=MEANT[letter])], record=RECORD)
    rows = {row.row["id"].partition(":")[2]: row.row for row in await file.labels(tenant=None)}
    assert {labels: row["answer_label"] for labels, row in rows.items()} == expected
    assert rows["ccs"] == {
        "id": f"{'a' * 32}:ccs",
        "question": RECORD.question,
        "contexts": [{"id": "faq-12", "text": "Refunds take 14 days."}],
        "answer": RECORD.answer,
        "claims": [{"text": REVIEW.claim, "label": "contradicted"}],
        "answer_label": "contradicted",
    }


async def test_an_answer_is_supported_only_if_every_claim_was_labeled_so(file: ReviewFile) -> None:
    cases = [
        ("s", 1, "supported"),
        ("s", 2, None),
        ("s", None, None),
        ("c", 2, "contradicted"),
        ("u", 1, None),
    ]
    for number, (said, claims, _) in enumerate(cases):
        review = replace(REVIEW, key=AnswerKey("a" * 32, str(number)), label=MEANT[said])
        await file.add([review], record=RECORD, claims=claims)
    found = {row.row["id"][-1]: row.label for row in await file.labels(tenant=None)}
    assert found == {str(number): label for number, (_, _, label) in enumerate(cases)}


async def test_a_full_disk_is_told_and_nothing_is_lost(file: ReviewFile) -> None:
    await file.add([REVIEW], record=RECORD)
    file._db.execute(f"PRAGMA max_page_count = {file._db.execute('PRAGMA page_count').fetchone()[0]}")
    huge = replace(RECORD, answer="x" * 1_000_000)
    with pytest.raises(WriteError, match="nothing that was kept before is lost"):
        await file.add([replace(REVIEW, reviewer="grace")], record=huge)
    assert [said.reviewer for said in await file.of(KEY)] == ["ada"]


def test_the_span_of_a_review_says_who_said_what_of_which_claim() -> None:
    for content in [True, False]:
        assert RECORD.target, content
        span = review_span(REVIEW, RECORD.target, content=content)
        assert span == review_span(REVIEW, RECORD.target, content=content), content
        assert (span.name, span.parent_span_id) == ("review contradicted", KEY.span_id), content
        assert span.attributes[semconv.REVIEW_VERDICT] == "unsupported", content
        assert span.attributes[semconv.REVIEW_OVERRULES] is True, content
        assert span.attributes["annotations.0.annotation.annotator_kind"] == "HUMAN", content
        assert (semconv.REVIEW_NOTE in span.attributes) is content, content
        assert (semconv.REVIEW_CLAIM in span.attributes) is content, content
        assert decode(encode([span])) == (span,), content


class Sink:
    """A sink that is down for a while."""

    name = "a sink"

    def __init__(self, *faults: Exception) -> None:
        self.faults = [*faults]
        self.taken: list[bytes] = []

    async def send(self, request: bytes) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.taken.append(request)

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_spans_wait_for_a_sink_that_is_down_and_a_refused_one_stops_no_other(file: ReviewFile) -> None:
    sink = Sink(SendRetryable("down"), SendRefused("token"), SendRejected("bad span"))
    delivery = ReviewDelivery(reviews=file, sinks={"to": sink})
    for payload in (b"first", b"second"):
        await file.add([REVIEW], record=RECORD, outbox={"to": payload})
    for _ in range(2):
        await delivery.deliver("to")
        assert (sink.taken, len(await file.waiting("to"))) == ([], 2)
    await delivery.deliver("to")
    assert (sink.taken, len(await file.waiting("to"))) == ([b"second"], 0)


def test_a_review_in_a_trace_is_no_answer_and_no_evaluation() -> None:
    for scope in [semconv.SCOPE_EVALUATION, ""]:
        spans = rag_trace(1)
        [record] = extract_records(Trace.of(spans[0].trace_id, spans)).records
        assert record.target, scope
        made = review_span(REVIEW, record.target)
        review = replace(made, scope=replace(made.scope, name=scope))
        with_review = extract_records(Trace.of(spans[0].trace_id, [*spans, review])).records
        assert [found.id for found in with_review] == [record.id], scope
        assert with_review[0].answer == record.answer, scope
        assert summary_of(review) is None, scope


GOOD, WRONG = VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED


def simulated(rng: random.Random, *, answers: int, reviewed: int, recall: float) -> tuple[float, bool, float]:
    """Return the error of the corrected mean, whether its interval is true, and the judge's error."""
    human = [rng.random() < 0.7 for _ in range(answers)]
    judge = [truth or rng.random() > recall for truth in human]
    picked = rng.sample(range(answers), reviewed)
    pairs = [ReviewedPair(judge=float(judge[i]), human=float(human[i]), weight=1.0) for i in picked]
    mean, truth = sum(judge) / answers, sum(human) / answers
    exact = WeightedMean(mean=mean, low=mean, high=mean, records=answers, left_out=0, effective=answers)
    found = corrected_mean(exact, pairs)
    assert found
    return found.mean - truth, found.low <= truth <= found.high, mean - truth


@pytest.mark.slow
@pytest.mark.parametrize("recall", [0.2, 0.8])
def test_the_corrected_mean_has_no_bias_and_a_true_interval(recall: float) -> None:
    rng = random.Random(18)
    runs = [simulated(rng, answers=2_000, reviewed=100, recall=recall) for _ in range(300)]
    own_bias = sum(run[2] for run in runs) / len(runs)
    assert own_bias > 0.05  # the judge misses flaws
    assert abs(sum(run[0] for run in runs) / len(runs)) < 0.1 * own_bias
    assert 0.93 <= sum(run[1] for run in runs) / len(runs) <= 0.99


def test_few_reviews_correct_nothing() -> None:
    pair = ReviewedPair(judge=1.0, human=0.0, weight=1.0)
    judged = WeightedMean(mean=0.9, low=0.8, high=0.95, records=99, left_out=0, effective=99)
    assert corrected_mean(judged, [pair] * 29) is None
    corrected = corrected_mean(judged, [pair] * 30)
    assert corrected
    assert corrected.high - corrected.mean >= judged.high - judged.mean


def test_only_a_random_prefix_counts() -> None:
    rows = [(number / 10, a_row(number, 0.0 if number == 2 else 1.0)) for number in range(1, 7)]
    random_review = replace(REVIEW, label=GOOD, picked=ReviewPick.RANDOM)
    reviewed: dict[object, list[Review]] = {
        rows[0][1].key: [random_review],
        rows[1][1].key: [replace(random_review, label=WRONG)],
        rows[2][1].key: [replace(random_review, label=VerdictLabel.UNJUDGED)],
        rows[3][1].key: [replace(random_review, picked=ReviewPick.UNCERTAIN)],
        rows[4][1].key: [random_review],
    }
    pairs = random_prefix(rows, reviewed)  # type: ignore[arg-type]
    assert [(pair.judge, pair.human) for pair in pairs] == [(1.0, 1.0), (0.0, 0.0)]


def test_several_people_are_one_voice_for_each_claim() -> None:
    bad, good = replace(REVIEW, label=WRONG), replace(REVIEW, label=GOOD)
    assert passes([replace(bad, reviewer="a"), replace(good, reviewer="b"), replace(good, reviewer="c")])
    assert passes([replace(bad, reviewer="a"), replace(good, reviewer="b")]) is None
    assert passes([good, replace(bad, claim="Another claim.")]) is False


def test_agreement_is_counted_by_claim() -> None:
    first = replace(REVIEW, verdict=WRONG, label=WRONG)
    found = ReviewAgreement(
        [
            [first, replace(first, reviewer="grace")],
            [replace(first, label=GOOD)],
            [replace(first, verdict=GOOD, label=GOOD)],
            [replace(first, verdict=VerdictLabel.UNJUDGED, label=WRONG)],
        ]
    )
    assert (found.decided, found.agreed, found.reviewers) == (3, 2, 2)
    assert (found.pairs, found.pairs_agreed) == (1, 1)
    assert found.kappa == pytest.approx(0.4)
    assert found.says_little


def test_a_collector_drops_reviews_that_come_back() -> None:
    assert RECORD.target
    body = encode([review_span(REVIEW, RECORD.target)])
    request = ExportTraceServiceRequest.FromString(body)
    assert drop_own_scopes(request) == 1
