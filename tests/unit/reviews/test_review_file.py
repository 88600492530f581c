"""Reviews are kept until people take them back, with the texts that labels need and the spans to deliver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.answers.carrier import summary_of
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import SendRefused, SendRejected, SendRetryable, WriteError
from ragtrace.model import Chunk, RagRecord, Target, VerdictLabel
from ragtrace.reviews import Review, ReviewDelivery, ReviewFile, review_span
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Trace
from tests.rag_spans import rag_trace

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
    await file.save_view("bad", "label=fail", tenant="acme")
    await file.save_view("bad", "label=error", tenant=None)
    assert await file.views(tenant="acme") == {"bad": "label=fail"}
    await file.delete_view("bad", tenant="acme")
    assert await file.views(tenant=None) == {"bad": "label=error"}


@pytest.mark.parametrize(
    ("labels", "joined"),
    [
        ("c", "contradicted"),
        ("cc", "contradicted"),
        ("cs", None),
        ("ccs", "contradicted"),
        ("u", None),
        ("uc", "contradicted"),
    ],
)
async def test_labels_are_those_of_most_people(file: ReviewFile, labels: str, joined: str | None) -> None:
    meant = {"c": VerdictLabel.CONTRADICTED, "s": VerdictLabel.SUPPORTED, "u": VerdictLabel.UNJUDGED}
    for number, letter in enumerate(labels):
        await file.add([replace(REVIEW, reviewer=f"p{number}", label=meant[letter])], record=RECORD)
    [row] = await file.labels(tenant=None)
    assert row.row == {
        "id": f"{KEY.trace_id}:{KEY.span_id}",
        "question": RECORD.question,
        "contexts": [{"id": "faq-12", "text": "Refunds take 14 days."}],
        "answer": RECORD.answer,
        "claims": [{"text": REVIEW.claim, "label": joined}],
        "answer_label": joined,
    }


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


@pytest.mark.parametrize("fault", [SendRetryable("down"), SendRefused("token")])
async def test_spans_wait_for_a_sink_that_is_down(file: ReviewFile, fault: Exception) -> None:
    sink = Sink(fault)
    delivery = ReviewDelivery(reviews=file, sinks={"to": sink})
    await file.add([REVIEW], record=RECORD, outbox={"to": b"first"})
    await delivery.deliver("to")
    assert (sink.taken, len(await file.waiting("to"))) == ([], 1)
    await delivery.deliver("to")
    assert (sink.taken, len(await file.waiting("to"))) == ([b"first"], 0)


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


async def test_a_refused_span_stops_no_other(file: ReviewFile) -> None:
    sink = Sink(SendRejected("bad span"))
    for payload in (b"first", b"second"):
        await file.add([REVIEW], record=RECORD, outbox={"to": payload})
    await ReviewDelivery(reviews=file, sinks={"to": sink}).deliver("to")
    assert sink.taken == [b"second"]


@pytest.mark.parametrize(
    ("said", "claims", "label"),
    [
        ("s", 1, VerdictLabel.SUPPORTED),
        ("s", 2, None),
        ("s", None, None),
        ("c", 2, VerdictLabel.CONTRADICTED),
        ("u", 1, None),
    ],
)
async def test_an_answer_is_supported_only_if_every_claim_was_labeled_so(
    file: ReviewFile, said: str, claims: int | None, label: VerdictLabel | None
) -> None:
    meant = {"c": VerdictLabel.CONTRADICTED, "s": VerdictLabel.SUPPORTED, "u": VerdictLabel.UNJUDGED}
    await file.add([replace(REVIEW, label=meant[said])], record=RECORD, claims=claims)
    [row] = await file.labels(tenant=None)
    assert row.label is label
