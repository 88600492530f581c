"""The page of one answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from ragtrace.answers.carrier import summary_of
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import ReadError, ReadUnavailable
from ragtrace.model import Chunk, Gap, MetricFailure, Part, Sample, SkipReason, Verdict, VerdictLabel
from ragtrace.reviews import Review, ReviewFile
from ragtrace.semconv import FEEDBACK_COMMENT, FEEDBACK_LABEL, FEEDBACK_NAME
from ragtrace.traces.trace import Span, StatusCode
from tests.integration.collector.answer_pages import (
    KEY,
    PATH,
    QUESTION,
    RIGHT,
    WRONG,
    AnswerHtml,
    JudgedTrace,
    MemoryReviews,
    a_judged_trace,
    a_result,
    a_verdict,
    answer_client,
    from_report,
)
from tests.rag_spans import START_NS

SECRET = "what nobody may read"


def get(client: TestClient, path: str = PATH, *, status: int = 200) -> AnswerHtml:
    response = client.get(path)
    assert response.status_code == status
    return AnswerHtml(response.text)


def page_of(*verdicts: Verdict, **fields: Any) -> AnswerHtml:
    return get(answer_client(from_report(*verdicts, **fields)))


def said_in(text: str) -> str:
    return " ".join(text.split())


# -- what it shows ----------------------------------------------------------------------------------------
def test_the_page_shows_the_verdict_its_evidence_and_the_trace_around_it() -> None:
    page = get(answer_client(a_judged_trace().opened()))
    for said in (
        "Fails 1 of 2 claims is contradicted by the chunks.",
        "faithfulness fail 0.50 passes from 0.80",
        QUESTION,
        "Refunds take 14 days found there word for word",
        "confidence 90",
        "1 chunk-0 relevant similarity 0.9 used by claim 1",
        "3 chunk-2 irrelevant similarity 0.9 no claim used it",
        "off the question",
        "judge openai:some-model",
        "calls 2 tokens 1,500 in (50 cached), 100 out cost $0.0031",
        f"prompts of faithfulness {'ab' * 32}",
    ):
        assert said in page.text, said
    marks = [found for tag, found in page.elements if tag == "mark" and found.get("data-claims") == "1"]
    assert [found["class"] for found in marks] == ["contradicted", "contradicted"]  # answer and chunk
    passages = [found for _, found in page.elements if found.get("class") == "passage"]
    assert [found["href"] for found in passages] == ["#claim-1", "#claim-2"]
    assert [page.of[(found["aria-describedby"] or "").strip()] for found in passages] == [
        "claim 1, contradicted, evidence: chunk 1, chunk-0",
        "claim 2, supported, evidence: chunk 2, chunk-1",
    ]
    described = [
        found.get(name) or "" for _, found in page.elements for name in ("aria-describedby", "aria-details")
    ]
    named = {name for names in described for name in names.split()}
    assert named | {href.removeprefix("#") for href in page.hrefs if href.startswith("#")} <= {*page.ids}
    assert len({*page.ids}) == len(page.ids)


@pytest.mark.parametrize(
    ("verdicts", "fields", "said"),
    [
        ((RIGHT,), {"score": 1.0}, "Passes The chunks support its one claim."),
        (
            (WRONG, RIGHT),
            {"score": 0.9},
            "Passes 1 of 2 claims is contradicted by the chunks, which the pass rule allows.",
        ),
        ((RIGHT,), {"score": 0.1}, "Fails The chunks support its one claim, but it fails by faithfulness."),
        ((), {"score": 0.1}, "Fails It fails by faithfulness."),
        (
            (WRONG, replace(RIGHT, label=VerdictLabel.UNSUPPORTED)),
            {"score": 0.0},
            "Fails 1 of 2 claims is contradicted by the chunks, 1 is not mentioned in the chunks.",
        ),
        (
            (),
            {"score": None, "skip_reason": SkipReason.REFUSAL},
            "Nothing to judge There was nothing to judge: the answer declines to answer.",
        ),
    ],
    ids=["all is well", "allowed", "another reason", "no claims", "two kinds", "skipped"],
)
def test_the_finding_is_one_sentence(verdicts: tuple[Verdict, ...], fields: Any, said: str) -> None:
    opened = JudgedTrace().judged(a_result(*verdicts, **fields)).opened()
    assert said in get(answer_client(opened)).text


# -- what may be missing or too much ----------------------------------------------------------------------
def a_gap(reason: SkipReason, detail: str) -> tuple[Gap, ...]:
    return (Gap(part=Part.ANSWER, reason=reason, detail=detail),)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"answer": None}, "The answer\u2019s text is not here: it was not recorded."),
        ({"answer": " \n"}, "The answer is empty."),
        ({"question": None}, "The question is not here: it was not recorded."),
        ({"chunks": []}, "There are no chunks: none was recorded for this answer."),
        ({"chunks": [Chunk(id="a", text=None)]}, "Its text was not recorded."),
        ({"context_from_prompt": True}, "these are passages of the prompt"),
        ({"gaps": a_gap(SkipReason.REDACTED, "the hook removed it")}, "redacted. the hook removed it"),
        (
            {"answer": None, "gaps": a_gap(SkipReason.REDACTED, "`x` is a digest")},
            "text is not here: the text was replaced by a redaction mark.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_is_said_in_its_place(fields: dict[str, object], said: str) -> None:
    assert said in page_of(**fields).text


def test_a_failed_judge_is_no_score() -> None:
    told = {"metric": "faithfulness", "profile": "ragtrace", "error_type": "judge_timeout"}
    failed = MetricFailure(**told, message=SECRET, evaluator_version="1")
    page = get(answer_client(JudgedTrace().judged(failed).opened()))
    assert "Not judged The judge gave no usable reply: judge timeout." in page.text


def test_many_claims_and_chunks_are_bounded_and_the_page_says_so() -> None:
    answer = "".join(f"Claim {number}. " for number in range(2_000))
    verdicts = [a_verdict(f"Claim {number}. ", of=answer, index=number) for number in range(2_000)]
    verdicts[-1] = replace(verdicts[-1], label=VerdictLabel.CONTRADICTED)
    chunks = [Chunk(id=f"c{rank}", text="text", rank=rank) for rank in range(300)]
    page = page_of(*verdicts, answer=answer, chunks=chunks)
    assert page.tags.count("li") < 600
    assert "1,500 more claims are not on this page: it shows the 500 worst." in page.text
    assert "claim-2000" in page.ids  # the wrong one
    assert "200 more chunks, which no claim cites, are not on this page." in page.text


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' style=x {{ 7*7 }} </title>"


def test_hostile_content_in_every_field_stays_text() -> None:
    verdict = a_verdict(HOSTILE, VerdictLabel.CONTRADICTED, of=HOSTILE, chunk_ids=(HOSTILE,), quote=HOSTILE)
    verdict = replace(verdict, reason=HOSTILE)
    texts = ("answer", "question", "reference", "model", "prompt_version", "session_id", "response_id")
    opened = from_report(
        verdict,
        replace(verdict, claim=replace(verdict.claim, kind="reference", index=1)),
        chunks=[Chunk(id=HOSTILE, text=HOSTILE, score_kind=HOSTILE, score=1.0)],
        retrieval_query=f"{HOSTILE}!",
        gaps=a_gap(SkipReason.TRUNCATED, HOSTILE),
        **dict.fromkeys(texts, HOSTILE),  # type: ignore[arg-type]
    )
    judged = opened.versions[0].judged
    evaluation = judged.evaluation
    result = replace(evaluation.results[0], metric=HOSTILE, explanation=HOSTILE, pass_when=HOSTILE)
    evaluation = replace(
        evaluation,
        outcomes=(result,),
        judge=replace(evaluation.judge, provider=HOSTILE, model=HOSTILE),
        evaluator_version=HOSTILE,
        input_sha256=HOSTILE,
    )
    judged = replace(judged, evaluation=evaluation, sample=Sample(rule=HOSTILE, rate=0.5, probability=0.5))
    version = replace(opened.versions[0], judged=judged, notices=(HOSTILE,), evaluation_id=HOSTILE)
    feedback = Span(
        trace_id=KEY.trace_id,
        span_id="f" * 16,
        parent_span_id=None,
        name=HOSTILE,
        start_ns=START_NS,
        end_ns=START_NS,
        status_code=StatusCode.ERROR,
        status_message=HOSTILE,
        attributes=dict.fromkeys((FEEDBACK_NAME, FEEDBACK_LABEL, FEEDBACK_COMMENT), HOSTILE),
    )
    opened = replace(
        opened,
        versions=(version, version),
        feedback=(feedback,),
        trace=replace(a_judged_trace().opened().trace, spans=(feedback,)),  # type: ignore[type-var]
        read_from=HOSTILE,
        notices=(HOSTILE,),
    )
    review = a_review(note=HOSTILE, reviewer=HOSTILE, claim=HOSTILE)
    page = get(answer_client(opened, reviews=reviews_of(review)))
    scripts = {found.get("src") for tag, found in page.elements if tag == "script"}
    assert scripts == {"/static/answer.js", "/static/ui.js"}
    assert not {"img", "iframe", "object", "style"} & {*page.tags}
    names = {name for _, found in page.elements for name in found}
    assert not any(name.startswith("on") or name == "style" for name in names)
    safe = (
        "href",
        "src",
        "id",
        "class",
        "action",
        "name",
        "for",
        "data-claims",
        "data-claim",
        "data-evidence",
    )
    values = [found.get(name) or "" for _, found in page.elements for name in safe]
    assert not any("script" in value and not value.startswith("/static/") for value in values)
    assert page.text.count(HOSTILE) > 25


# -- around the answer ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (Sample(rule="ratio", rate=0.1, probability=0.1), "it counts for 10 in averages"),
        (Sample(rule="all", rate=1.0, probability=1.0), "The rule “all” evaluates every answer"),
        (Sample(rule="low", rate=0.5, probability=None), "averages leave it out"),
    ],
)
def test_why_it_was_sampled_is_a_sentence(sample: Sample, said: str) -> None:
    judged = JudgedTrace().judged(a_result(WRONG, RIGHT), sample=sample)
    assert said in get(answer_client(judged.opened())).text


def a_review(*, claim: str = WRONG.claim.text, note: str = "It says 14.", reviewer: str = "Ada") -> Review:
    return Review(
        key=KEY,
        carrier_span_id="a" * 16,
        claim=claim,
        start=0,
        end=10,
        verdict=VerdictLabel.CONTRADICTED,
        label=VerdictLabel.SUPPORTED,
        note=note,
        reviewer=reviewer,
        time_ns=START_NS,
    )


def reviews_of(*reviews: Review) -> ReviewFile:
    return MemoryReviews(reviews)  # type: ignore[return-value]


def test_reviews_stand_at_their_claim() -> None:
    page = get(answer_client(a_judged_trace().opened(), reviews=reviews_of(a_review())))
    assert "A person overrules this: supported by Ada" in said_in(page.of["claim-1"])
    assert "It says 14." in page.of["claim-1"]


def test_versions_are_listed_opened_by_number_or_id_and_compared() -> None:
    undecided = replace(WRONG, label=VerdictLabel.UNJUDGED)
    gone = a_verdict("Shipping is", VerdictLabel.UNSUPPORTED, index=2, chunk_ids=())
    judged = JudgedTrace().judged(a_result(undecided, gone, score=0.9), version="1", seconds=1)
    judged = judged.judged(a_result(WRONG, RIGHT, score=0.5), version="2", seconds=60)
    client = answer_client(judged.opened())
    page = get(client)
    assert "evaluation 2 of 2" in page.text
    assert f"{PATH}?version=1" in page.hrefs
    assert "This evaluation overrules the one that it replaces" in said_in(page.text)
    for version in ("1", judged.carriers[0].span_id):
        page = get(client, f"{PATH}?version={version}")
        assert "evaluation 1 of 2" in page.text
        assert "A later evaluation replaces this one" in page.text
    for version in ("f" * 16, "9"):
        unknown = get(client, f"{PATH}?version={version}")
        assert f"There is no evaluation {version} of this answer" in unknown.text
    difference = said_in(get(client, f"{PATH}?from=1&to=2").of["difference"])
    for said in (
        "The evaluator changed; the judge saw the same.",
        "faithfulness: 0.90 pass → 0.50 fail -0.40",
        "judged otherwise unjudged → contradicted Refunds take 30 days.",
        "added supported Shipping is free.",
        "removed unsupported Shipping is",
    ):
        assert said in difference


def test_judges_that_disagree_are_named_and_their_verdicts_compared() -> None:
    right = a_verdict("Refunds take 30 days.")
    judged = JudgedTrace().judged(a_result(WRONG, RIGHT, score=0.5), version="1", seconds=1, model="strict")
    judged = judged.judged(
        a_result(right, RIGHT, score=1.0), version="2", seconds=9, model="lax", beside=True
    )
    page = get(answer_client(judged.opened()), f"{PATH}?version=1")
    disagree = "The evaluations disagree: openai:strict fails the answer, openai:lax passes it."
    assert disagree in said_in(page.text)
    turned = "judged otherwise supported → contradicted Refunds take 30 days."
    assert turned in said_in(page.of["difference"])


def test_the_other_answers_of_the_session_are_listed_in_order() -> None:
    opened = a_judged_trace().opened()
    opened = replace(opened, record=replace(opened.record, session_id="s1"))
    (own,) = known_rows()
    rows = [
        replace(own, session="s1"),
        replace(own, key=AnswerKey("9" * 32, "9" * 16), session="s1", time_ns=own.time_ns - 10**9),
        replace(own, key=AnswerKey("8" * 32, "9" * 16, "other"), session="s1"),
    ]
    page = get(answer_client(opened, rows=rows))
    assert f"/answers/{'9' * 32}/{'9' * 16}" in page.hrefs
    assert "this answer" in page.text
    assert not any("8" * 32 in href for href in page.hrefs)  # of another tenant


def test_links_lead_to_the_trace_and_only_to_web_addresses() -> None:
    links = {
        "Jaeger": "http://jaeger:16686/trace/{trace_id}?uiFind={span_id}",
        "Bad": "javascript:alert(1)//{trace_id}",
    }
    page = get(answer_client(a_judged_trace().opened(), links=links))
    assert f"http://jaeger:16686/trace/{KEY.trace_id}?uiFind={KEY.span_id}" in page.hrefs
    assert not any("javascript" in href for href in page.hrefs)


# -- what is not there ------------------------------------------------------------------------------------
def known_rows() -> list[AnswerSummary]:
    own = summary_of(a_judged_trace().carriers[0])
    assert own is not None
    return [replace(own, model="some-llm", service="shop")]


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (None, 410, "This answer is not there"),
        (ReadUnavailable(f"it said {SECRET}"), 503, "memory:test cannot be reached, or fails."),
        (ReadError(f"it said {SECRET}"), 503, "memory:test could not be read"),
    ],
    ids=["gone", "unavailable", "unreadable"],
)
def test_of_an_answer_that_cannot_be_opened_the_index_still_tells(
    failure: Exception | None, status: int, said: str
) -> None:
    client = answer_client(rows=known_rows(), failure=failure)
    page = get(client, status=status)
    assert said in page.text
    assert "faithfulness 0.50 fail" in page.text
    assert QUESTION not in page.text
    assert failure is None or PATH in page.hrefs  # try again
    assert SECRET not in page.text + client.get(f"{PATH}/carrier.json").text


def test_a_source_that_hands_out_another_tenants_answer_is_not_believed() -> None:
    opened = a_judged_trace().opened()
    assert opened.record.target is not None
    target = replace(opened.record.target, resource={"ragtrace.tenant": "b"})
    key = AnswerKey(*KEY[:2], "a")
    foreign = replace(opened, key=key, record=replace(opened.record, target=target))
    assert answer_client(foreign, tenant="a").get(PATH).status_code == 404
