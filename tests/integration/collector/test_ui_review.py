"""A person confirms or overrules verdicts on the page; reviews reach the trace, labels and averages."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from ragtrace import semconv
from ragtrace.answers.carrier import summary_of
from ragtrace.answers.index import open_index
from ragtrace.answers.summary import AnswerKey
from ragtrace.cli.app import cli
from ragtrace.model import Label
from ragtrace.reviews import ReviewFile
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.ui.security import Sessions, UiAccess
from ragtrace_collector.ui.serving import ui_app
from ragtrace_collector.ui.site import Site
from ragtrace_collector.web.tokens import TokenAuth, TokenGrant
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
from tests.integration.collector.ui_pages import HandClock, grant, log_in
from tests.rag_spans import rag_trace

NUMBER = re.compile(r'name="label-(\d+)"')


def judged(number: int) -> tuple[AnswerKey, list[Span]]:
    """Build a judged trace: its first claim is wrong, its second right."""
    spans = rag_trace(number, question=QUESTION, chunks=CHUNKS, answer=ANSWER)
    trace = JudgedTrace(spans=spans).judged(a_result(WRONG, RIGHT))
    [record] = extract_records(Trace.of(spans[0].trace_id, spans)).records
    assert record.target
    return AnswerKey(record.target.trace_id, record.target.span_id), [*trace.spans, *trace.carriers]


class ReviewPages:
    """The pages over some judged answers, with a file of reviews."""

    def __init__(self, folder: Path, *, answers: int, grants: tuple[TokenGrant, ...] = ()) -> None:
        from ragtrace.answers.carrier import open_answer
        from ragtrace.traces.extract import ExtractRules

        self.keys, opened = [], {}
        self.index = open_index()
        for number in range(answers):
            key, spans = judged(number)
            trace = Trace.of(key.trace_id, spans)
            opened[key] = open_answer(trace, key, ExtractRules(), read_from="memory:test")
            summary = summary_of(spans[-1])
            assert summary
            asyncio.run(self.index.add([summary]))
            self.keys.append(key)
        self.clock = HandClock()
        self.reviews = ReviewFile(folder / "reviews.db")
        self.source = MemorySource(opened)
        self.auth = TokenAuth(grants, self.clock)
        self.site = Site(
            index=self.index,
            source=self.source,
            reviews=self.reviews,
            clock=self.clock,
            review_sinks=("to",),
        )

    def client(self) -> TestClient:
        sessions = Sessions(self.auth, self.clock, lifetime_s=3600)
        app = ui_app(self.site, access=UiAccess(tokens=self.auth, sessions=sessions))
        return TestClient(app, base_url="http://127.0.0.1:4330")


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
    """Give every claim of the shown answer a label."""
    labels = {f"label-{number}": label for number in dict.fromkeys(NUMBER.findall(page.text))}
    return client.post(page.url.path, data={**fields_of(page), **labels, **more})


def save_in_place(client: TestClient, page: httpx.Response, label: str) -> httpx.Response:
    """Give labels with the form's own address, as a browser does."""
    (action,) = re.findall(r'<form[^>]* action="(/review/[0-9a-f]{32}/[^"]+)"', page.text)
    labels = {f"label-{number}": label for number in dict.fromkeys(NUMBER.findall(page.text))}
    return client.post(html.unescape(action), data={**fields_of(page), **labels})


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


def test_the_claims_are_the_carriers_whatever_the_form_says(pages: ReviewPages) -> None:
    client = pages.client()
    page = client.get("/review/next?queue=uncertain")
    reply = client.post(
        page.url.path, data={**fields_of(page), "label-77": "supported", "claim-1": "planned"}
    )
    assert reply.status_code == 400
    assert "Choose a label for at least one claim." in reply.text


def test_a_list_is_a_queue_that_goes_on_in_its_own_order(pages: ReviewPages) -> None:
    client = pages.client()
    others = client.get("/answers?label=pass").text
    assert "Review these" not in others  # nothing is in this list
    shown = html.unescape(client.get("/answers?label=fail&sort=oldest").text)
    (path,) = re.findall(r'href="(/review/next[^"]+)">Review these', shown)
    page = client.get(path)
    order = [page.url.path.split("/")[2]]
    page = save_in_place(client, page, "supported")
    order.append(page.url.path.split("/")[2])
    assert order == [key.trace_id for key in pages.keys[:2]]
    page = save_in_place(client, page, "supported")
    page = save_in_place(client, page, "supported")
    assert "or has no claims" in page.text
    assert 'href="/answers?label=fail&amp;sort=oldest"' in page.text


def test_the_queue_begins_where_evaluators_disagree(pages: ReviewPages) -> None:
    last = summary_of(judged(0)[1][-1])
    assert last
    other = replace(last, key=pages.keys[1], carrier_span_id="d" * 16, label=Label.PASS, judge="other:judge")
    asyncio.run(pages.index.add([other]))
    page = pages.client().get("/review/next?queue=uncertain")
    assert page.url.path.split("/")[2] == pages.keys[1].trace_id


def test_the_random_queue_asks_again_about_answers_of_other_queues(pages: ReviewPages) -> None:
    client = pages.client()
    page = client.get("/review/next?queue=uncertain")
    for _ in pages.keys:
        page = save(client, page, "supported")
    assert "This queue is empty" in page.text
    page = client.get("/review/next?queue=random")
    for _ in pages.keys:
        assert len(re.findall(r'value="supported" checked', page.text)) == 2  # what the person said before
        page = save(client, page, "supported")
    assert "3 answers of the random order reviewed without a gap" in page.text


@pytest.mark.slow
def test_the_overview_says_what_people_make_of_the_averages(tmp_path: Path) -> None:
    pages = ReviewPages(tmp_path, answers=30)
    client = pages.client()
    page = client.get("/review/next?queue=random")
    for _ in range(30):
        page = save(client, page, "supported")
    for path in ("/review", "/?since=3650d"):
        text = " ".join(re.sub("<[^>]+>", " ", client.get(path).text).split())
        assert re.search(r"30 random answers( that people reviewed: 100 ?% pass)?", text)
    assert re.search(
        r"By 30 random answers that people reviewed: 100 ?% pass \(\d\d ?% to 100 ?%\), mean 1\.00", text
    )
    pages.reviews._close()


@pytest.mark.slow
def test_reviews_of_another_queue_enter_no_average(tmp_path: Path) -> None:
    pages = ReviewPages(tmp_path, answers=31)
    client = pages.client()
    page = client.get("/review/next?queue=uncertain")
    while "This queue is empty" not in page.text:
        page = save(client, page, "supported")
    assert "31 answers" in page.text
    assert "No random answer was reviewed, so averages are the judge" in page.text
    assert "that people reviewed" not in client.get("/?since=3650d").text
    pages.reviews._close()


def test_a_random_answer_is_reviewed_as_a_whole(pages: ReviewPages) -> None:
    client = pages.client()
    for queue, status in (("random", 400), ("uncertain", 200)):
        page = client.get(f"/review/next?queue={queue}")
        reply = client.post(page.url.path, data={**fields_of(page), "label-1": "supported"})
        assert reply.status_code == status
    assert pages.reviews._db.execute("SELECT count(*) FROM review").fetchone() == (1,)


def test_skipped_answers_do_not_come_back_at_once(pages: ReviewPages) -> None:
    client = pages.client()
    page, seen = client.get("/review/next?queue=uncertain"), []
    for _ in pages.keys:
        seen.append(page.url.path)
        skip = re.search(r'href="(/review/next[^"]+)">Skip', page.text)
        assert skip
        page = client.get(skip[1].replace("&amp;", "&"))
    assert len({*seen}) == 3
    assert "This queue is empty" in page.text


def test_a_queue_passes_over_answers_that_are_gone(pages: ReviewPages) -> None:
    client = pages.client()
    first = client.get("/review/next?queue=random").url.path
    gone = next(key for key in pages.keys if key.trace_id in first)
    del pages.source.answers[gone]
    page = client.get("/review/next?queue=random")
    for _ in range(2):
        assert page.url.path != first
        page = save(client, page, "supported")
    assert "2 answers of the random order reviewed without a gap" in page.text


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


def test_labels_of_the_page_are_read_by_calibrate(pages: ReviewPages, tmp_path: Path) -> None:
    client = pages.client()
    page = client.get("/review/next?queue=random")
    for _ in pages.keys:
        wrong = re.search(r"claim contradicted\" tabindex=\"-1\" data-claim=\"(\d+)", page.text)
        assert wrong
        page = save(client, page, "supported", **{f"label-{wrong[1]}": "contradicted"})
    labels = tmp_path / "labels.jsonl"
    labels.write_text(client.get("/review/labels.jsonl").text, "utf-8")
    rows = [json.loads(line) for line in labels.read_text("utf-8").splitlines()]
    assert {(row["question"], row["answer"], len(row["claims"])) for row in rows} == {(QUESTION, ANSWER, 2)}
    result = CliRunner().invoke(cli, ["calibrate", str(labels), "--judge", "lexical", "--json"])
    assert result.exit_code == 0, result.output
