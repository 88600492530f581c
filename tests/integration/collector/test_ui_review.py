"""A person confirms or overrules verdicts on the page; reviews reach the trace, labels and averages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from ragtrace import semconv
from ragtrace.answers.carrier import open_answer, summary_of
from ragtrace.answers.summary import AnswerKey
from ragtrace.reviews import ReviewFile
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.web.tokens import TokenGrant
from tests.integration.collector.answer_pages import (
    ANSWER,
    CHUNKS,
    QUESTION,
    RIGHT,
    WRONG,
    JudgedTrace,
    MemorySource,
    a_result,
)
from tests.integration.collector.ui_pages import Pages, grant, log_in
from tests.rag_spans import rag_trace

NUMBER = re.compile(r'name="label-(\d+)"')


def judged(number: int) -> tuple[AnswerKey, list[Span]]:
    """Build a judged trace: its first claim is wrong, its second right."""
    spans = rag_trace(number, question=QUESTION, chunks=CHUNKS, answer=ANSWER)
    trace = JudgedTrace(spans=spans).judged(a_result(WRONG, RIGHT))
    [record] = extract_records(Trace.of(spans[0].trace_id, spans)).records
    assert record.target
    return AnswerKey(record.target.trace_id, record.target.span_id), [*trace.spans, *trace.carriers]


class ReviewPages(Pages):
    """The pages over some judged answers, with a file of reviews."""

    def __init__(self, folder: Path, *, answers: int, grants: Sequence[TokenGrant] = ()) -> None:
        traces = dict(judged(number) for number in range(answers))
        opened = {
            key: open_answer(Trace.of(key.trace_id, spans), key, ExtractRules(), read_from="memory:test")
            for key, spans in traces.items()
        }
        self.keys, self.reviews = list(traces), ReviewFile(folder / "reviews.db")
        super().__init__(
            rows=[row for spans in traces.values() if (row := summary_of(spans[-1]))],
            grants=grants,
            source=MemorySource(opened),
            views=self.reviews,
            review_sinks=["to"],
        )


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[ReviewPages]:
    made = ReviewPages(tmp_path, answers=3)
    yield made
    made.reviews._close()


def fields_of(page: httpx.Response) -> dict[str, str]:
    """Return the hidden fields of the form that saves a review."""
    form = page.text[page.text.index('class="left" method="post"') :]
    return dict(re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)">', form)[:3])


def save(client: TestClient, page: httpx.Response, label: str, **more: str) -> httpx.Response:
    """Give every claim of the shown answer a label, with the form's own address, as a browser does."""
    (action,) = re.findall(r'<form[^>]* action="(/review/[0-9a-f]{32}/[^"]+)"', page.text)
    labels = {f"label-{number}": label for number in dict.fromkeys(NUMBER.findall(page.text))}
    return client.post(html.unescape(action), data={**fields_of(page), **labels, **more})


def test_a_queue_leads_through_all_answers_and_then_is_empty(pages: ReviewPages) -> None:
    client = pages.client()
    page = client.get("/review/next?queue=random")
    seen = set()
    for _ in pages.keys:
        seen.add(page.url.path.split("/")[2])
        page = save(client, page, "supported")
    assert seen == {key.trace_id for key in pages.keys}
    assert "This queue is empty" in page.text
    assert "3 answers</b>" not in page.text
    assert "3 answers reviewed by 1 person" in " ".join(re.sub("<[^>]+>", " ", page.text).split())


def test_a_review_is_kept_with_its_texts_and_waits_as_a_span(pages: ReviewPages) -> None:
    client = pages.client()
    save(client, client.get("/review/next?queue=uncertain"), "supported", **{"note-1": "Looks right to me."})
    rows = pages.reviews._db.execute("SELECT claim, verdict, label, picked FROM review").fetchall()
    assert set(rows) == {
        (WRONG.claim.text, "contradicted", "supported", "uncertain"),
        (RIGHT.claim.text, "supported", "supported", "uncertain"),
    }
    assert ("Looks right to me.",) in pages.reviews._db.execute("SELECT note FROM review").fetchall()
    [(payload,)] = pages.reviews._db.execute("SELECT payload FROM outbox").fetchall()
    spans = decode(payload)
    assert {span.attributes[semconv.REVIEW_OVERRULES] for span in spans} == {True, False}
    assert {span.parent_span_id for span in spans} <= {key.span_id for key in pages.keys}


def test_undo_takes_the_last_answer_back(pages: ReviewPages) -> None:
    client = pages.client()
    first = client.get("/review/next?queue=random")
    second = save(client, first, "supported")
    assert "The answer before is saved." in second.text
    saved = re.search(r'name="saved" value="([^"]+)"', second.text)
    assert saved
    data = {"csrf": fields_of(second)["csrf"], "saved": saved[1], "queue": "random"}
    again = client.post("/review/undo", data=data)
    assert again.url.path == first.url.path
    assert pages.reviews._db.execute("SELECT count(*) FROM review WHERE is_current").fetchone() == (0,)


def test_a_list_is_a_queue_that_goes_on_in_its_own_order(pages: ReviewPages) -> None:
    client = pages.client()
    others = client.get("/answers?label=pass").text
    assert "Review these" not in others  # nothing is in this list
    shown = html.unescape(client.get("/answers?label=fail&sort=oldest").text)
    (path,) = re.findall(r'href="(/review/next[^"]+)">Review these', shown)
    page = client.get(path)
    order = [page.url.path.split("/")[2]]
    page = save(client, page, "supported")
    order.append(page.url.path.split("/")[2])
    assert order == [key.trace_id for key in pages.keys[:2]]
    page = save(client, page, "supported")
    page = save(client, page, "supported")
    assert "or has no claims" in page.text
    assert 'href="/answers?label=fail&amp;sort=oldest"' in page.text


def test_a_random_answer_is_reviewed_as_a_whole(pages: ReviewPages) -> None:
    client = pages.client()
    for queue, status in (("random", 400), ("uncertain", 200)):
        page = client.get(f"/review/next?queue={queue}")
        reply = client.post(page.url.path, data={**fields_of(page), "label-1": "supported"})
        assert reply.status_code == status
    assert pages.reviews._db.execute("SELECT count(*) FROM review").fetchone() == (1,)


def test_a_full_disk_keeps_what_was_typed(pages: ReviewPages) -> None:
    client = pages.client()
    page = client.get("/review/next?queue=random")
    (in_use,) = pages.reviews._db.execute("PRAGMA page_count").fetchone()
    pages.reviews._db.execute(f"PRAGMA max_page_count = {in_use}")
    for key, answer in pages.source.answers.items():
        record = replace(answer.record, answer="x" * 1_000_000)
        pages.source.answers[key] = replace(answer, record=record)
    reply = save(client, page, "contradicted", **{"note-1": "My long thought."})
    assert reply.status_code == 507
    assert "nothing that was kept before is lost" in reply.text
    assert 'value="My long thought."' in reply.text
    assert len(re.findall(r'value="contradicted" checked', reply.text)) == 2


def test_a_review_needs_its_permission_and_its_form(tmp_path: Path) -> None:
    grants = (grant("rt_reader", "read"), grant("rt_reviewer", "read", "review"))
    pages = ReviewPages(tmp_path, answers=1, grants=grants)
    path = f"/review/{pages.keys[0].trace_id}/{pages.keys[0].span_id}"
    reader, reviewer = pages.client(), pages.client()
    log_in(reader, "rt_reader")
    log_in(reviewer, "rt_reviewer")
    assert reader.get(path).status_code == 403
    assert reader.post(path, data={"label-1": "supported"}).status_code == 403
    assert ">Review</a>" not in reader.get("/answers").text
    assert (
        reviewer.post(path, data={"label-1": "supported"}).status_code == 403
    )  # without the form's own token
    assert save(reviewer, reviewer.get(path), "supported").status_code == 200
    assert pages.reviews._db.execute("SELECT DISTINCT reviewer FROM review").fetchall() == [("reviewer",)]
    pages.reviews._close()
