"""The page of one answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ragtrace.answers.carrier import summary_of
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import ReadError, ReadUnavailable, WriteError
from ragtrace.model import Chunk, Gap, MetricFailure, Part, Sample, SkipReason, Verdict, VerdictLabel
from ragtrace.reviews import Review, ReviewFile, review_span
from ragtrace.semconv import FEEDBACK_COMMENT, FEEDBACK_LABEL, FEEDBACK_NAME, OI_EVALUATOR, OI_KIND
from ragtrace.traces.trace import Scope, Span, StatusCode
from ragtrace_collector.ui.site import Site, TraceLink, Viewer
from tests.integration.collector.answer_pages import (
    ANSWER,
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
    site_of_answers,
)
from tests.rag_spans import START_NS

SECRET = "what nobody may read"


def get(site: Site, path: str = PATH, *, viewer: Viewer = Viewer(), status: int = 200) -> AnswerHtml:  # noqa: B008
    response = answer_client(site, viewer).get(path)
    assert response.status_code == status
    return AnswerHtml(response.text)


def page_of(*verdicts: Verdict, path: str = PATH, **fields: object) -> AnswerHtml:
    return get(site_of_answers(from_report(*verdicts, **fields)), path)  # type: ignore[arg-type]


# -- what it shows ----------------------------------------------------------------------------------------
def test_the_page_shows_the_verdict_its_evidence_and_the_trace_around_it() -> None:
    page = get(site_of_answers(a_judged_trace().opened()))
    assert "Fails 1 of 2 claims is contradicted by the chunks." in page.text
    assert "faithfulness fail 0.50 passes from 0.80" in page.text
    assert "1 of 2 claims contradicted" in page.text
    assert QUESTION in page.texts
    passages = [found for tag, found in page.elements if found.get("class") == "passage"]
    assert [found["href"] for found in passages] == ["#claim-1", "#claim-2"]
    marks = [found for tag, found in page.elements if tag == "mark" and found.get("data-claims") == "1"]
    assert [found["class"] for found in marks] == ["contradicted", "contradicted"]  # answer and chunk
    assert {"#quote-1", "#quote-2", "#mark-1", "#mark-2"} <= {*page.hrefs}
    assert "Refunds take 14 days found there word for word" in page.text
    assert "confidence 90" in page.text
    assert len({*page.ids}) == len(page.ids)
    assert {href.removeprefix("#") for href in page.hrefs if href.startswith("#")} <= {*page.ids}
    described = [
        found.get(name) or "" for _, found in page.elements for name in ("aria-describedby", "aria-details")
    ]
    assert {name for names in described for name in names.split()} <= {*page.ids}
    (first, second) = [found for _, found in page.elements if found.get("class") == "passage"]
    assert (
        page.of[(first["aria-describedby"] or "").strip()]
        == "claim 1, contradicted, evidence: chunk 1, chunk-0"
    )
    assert (
        page.of[(second["aria-describedby"] or "").strip()]
        == "claim 2, supported, evidence: chunk 2, chunk-1"
    )
    assert "1 chunk-0 relevant similarity 0.9 used by claim 1" in page.text
    assert "3 chunk-2 irrelevant similarity 0.9 no claim used it" in page.text
    assert "off the question" in page.text
    assert not any("style" in found for _, found in page.elements)
    assert "style" not in page.tags
    fetched = [
        found.get(name)
        for tag, found in page.elements
        for name in ("src", "href")
        if tag in ("script", "link")
    ]
    assert "/static/answer.js" in fetched
    assert all(address.startswith("/static/") for address in fetched if address)
    assert "Timeline 4 spans in 900 ms" in page.text
    assert "invoke_workflow ask judged answer shop" in page.text
    assert "retrieval faq retrieval shop 90 ms" in page.text
    assert "chat m generation shop 500 ms" in page.text
    assert "evaluation fail evaluation shop" in page.text
    text = get(site_of_answers(a_judged_trace().opened())).text
    assert "judge openai:some-model" in text
    assert "in 1.23 s" in text
    assert "calls 2 tokens 1,500 in (50 cached), 100 out cost $0.0031" in text
    assert f"prompts of faithfulness {'ab' * 32}" in text


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
    ],
    ids=["all is well", "allowed", "another reason", "no claims", "two kinds"],
)
def test_the_finding_is_one_sentence(
    verdicts: tuple[Verdict, ...], fields: dict[str, float], said: str
) -> None:
    opened = JudgedTrace().judged(a_result(*verdicts, **fields)).opened()  # type: ignore[arg-type]
    assert said in get(site_of_answers(opened)).text


def test_the_line_under_the_scores_begins_with_what_is_known() -> None:
    opened = a_judged_trace().opened()
    assert "UTC · shop · m · judged by openai:some-model" in get(site_of_answers(opened)).text
    from_file = from_report(RIGHT)
    bare = replace(from_file, record=replace(from_file.record, target=None))
    text = get(site_of_answers(bare)).text
    assert "judged by openai:some-model" in text
    assert "· judged by" not in text


def test_an_incidental_flaw_is_called_so_where_it_stands() -> None:
    flaw = replace(WRONG, label=VerdictLabel.UNSUPPORTED, material=False)
    page = get(site_of_answers(JudgedTrace().judged(a_result(flaw, RIGHT, score=0.9)).opened()))
    assert "Passes 1 of 2 claims is not mentioned in the chunks, which the pass rule allows." in page.text
    assert "1 unsupported incidental" in page.text
    assert "claim 1, incidentally unsupported, evidence: chunk 1" in page.text
    assert "unsupported incidental" not in page_of(replace(flaw, material=True), RIGHT).text


def test_no_chunk_is_called_unused_if_a_judge_names_no_chunks_of_supported_claims() -> None:
    uncited = replace(RIGHT, chunk_ids=(), quote=None)
    page = get(site_of_answers(JudgedTrace().judged(a_result(WRONG, uncited, score=0.5)).opened()))
    assert "no claim used it" not in page.text


def test_overlapping_claims_are_marked_by_the_worst_and_both_are_said() -> None:
    answer = "abcdefghi and more"
    first = a_verdict("abcdef", of=answer)
    second = a_verdict("defghi", VerdictLabel.CONTRADICTED, of=answer, index=1)
    page = page_of(first, second, answer=answer)
    marked = [found for tag, found in page.elements if tag == "mark" and "data-claims" in found]
    assert [(found["class"], found["data-claims"]) for found in marked] == [
        ("supported", "1"),
        ("contradicted", "2 1"),
        ("contradicted", "2"),
    ]
    assert [name for name in page.ids if name.startswith("mark-")] == ["mark-1", "mark-2"]


def test_a_claim_without_a_place_is_in_the_list_alone() -> None:
    page = page_of(a_verdict("not in the answer", VerdictLabel.UNSUPPORTED, chunk_ids=()))
    assert "its place in the answer is not known" in page.text
    assert "#mark-1" not in page.hrefs
    assert page.of["said-1"] == "claim 1, unsupported, no evidence"


def test_a_quote_that_was_not_found_is_not_said_to_be_verified() -> None:
    unverified = replace(WRONG, quote="Refunds take a year", quote_verified=False)
    claim = " ".join(page_of(unverified).of["claim-1"].split())
    assert "Refunds take a year the quote was not found there" in claim
    assert "word for word" not in claim


def test_sentences_of_the_reference_stand_apart() -> None:
    verdict = a_verdict("Refunds take two weeks.")
    of_reference = replace(verdict, claim=replace(verdict.claim, kind="reference"))
    page = page_of(RIGHT, of_reference, reference="Refunds take two weeks.")
    assert "Sentences of the reference answer" in page.text
    assert "#mark-1" not in page.hrefs


# -- what may be missing or too much ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"answer": None}, "The answer\u2019s text is not here: it was not recorded."),
        ({"answer": ""}, "The answer is empty."),
        ({"answer": " \n"}, "The answer is empty."),
        ({"question": None}, "The question is not here: it was not recorded."),
        ({"question": ""}, "The question is empty."),
        ({"chunks": []}, "There are no chunks: none was recorded for this answer."),
        ({"chunks": [Chunk(id="a", text=None)]}, "Its text was not recorded."),
        ({"chunks": [Chunk(id="a", text="")]}, "Its text is empty."),
        ({"context_from_prompt": True}, "these are passages of the prompt"),
        (
            {"gaps": (Gap(part=Part.ANSWER, reason=SkipReason.REDACTED, detail="the hook removed it"),)},
            "answer: redacted. the hook removed it",
        ),
        (
            {
                "answer": None,
                "gaps": (Gap(part=Part.ANSWER, reason=SkipReason.NO_CONTENT, detail="`x` is hashed"),),
            },
            "answer: no content. `x` is hashed",
        ),
        (
            {
                "answer": None,
                "gaps": (Gap(part=Part.ANSWER, reason=SkipReason.REDACTED, detail="`x` is a digest"),),
            },
            "text is not here: the text was replaced by a redaction mark.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_is_said_in_its_place(fields: dict[str, object], said: str) -> None:
    assert said in page_of(**fields).text


def test_an_answer_that_was_skipped_says_why() -> None:
    skipped = a_result(score=None, skip_reason=SkipReason.REFUSAL, explanation="")
    page = get(site_of_answers(JudgedTrace().judged(skipped).opened()))
    assert "Nothing to judge There was nothing to judge: the answer declines to answer." in page.text


def test_a_failed_judge_is_no_score() -> None:
    failed = MetricFailure(
        metric="faithfulness",
        profile="ragtrace",
        error_type="judge_timeout",
        message=SECRET,
        evaluator_version="1",
    )
    page = get(site_of_answers(JudgedTrace().judged(failed).opened()))
    assert "Not judged The judge gave no usable reply: judge timeout." in page.text


def test_an_answer_of_a_megabyte_is_folded_and_whole() -> None:
    long = "".join(f"Sentence {number} is here. " for number in range(40_000))
    page = page_of(a_verdict("Sentence 7 is here.", of=long), answer=long, chunks=[Chunk(id="a", text=long)])
    assert "characters folded" in page.text
    shown = "".join(page.texts)
    assert "Sentence 20000 is here." in shown
    assert shown.count("Sentence 39999 is here.") == 2


def test_many_claims_are_bounded_and_the_page_says_so() -> None:
    answer = "".join(f"Claim {number}. " for number in range(2_000))
    verdicts = [
        a_verdict(
            f"Claim {number}. ",
            VerdictLabel.CONTRADICTED if number == 1_999 else VerdictLabel.SUPPORTED,
            of=answer,
            index=number,
        )
        for number in range(2_000)
    ]
    page = page_of(*verdicts, answer=answer)
    assert page.tags.count("li") < 600
    assert "1,500 more claims are not on this page: it shows the 500 worst." in page.text
    assert "claim-2000" in page.ids  # the wrong one


def test_a_long_answer_is_folded_between_two_claims() -> None:
    answer = "".join(f"Claim {number} has {'many ' * 20}words. " for number in range(200))
    claims = [passage for passage in answer.split(". ") if passage]
    verdicts = [a_verdict(claim, of=answer, index=index) for index, claim in enumerate(claims)]
    page = page_of(*verdicts, answer=answer)
    assert "Show the rest:" in page.text
    assert [name for name in page.ids if name.startswith("mark-")] == [f"mark-{n}" for n in range(1, 201)]


def test_many_chunks_are_bounded_and_folded() -> None:
    chunks = [Chunk(id=f"c{rank}", text="text", rank=rank) for rank in range(300)]
    page = page_of(chunks=chunks)
    assert "200 more chunks, which no claim cites, are not on this page." in page.text
    assert sum(found.get("class") == "chunk" for tag, found in page.elements if tag == "details") == 100


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' style=x {{ 7*7 }} </title>"


def test_hostile_content_in_every_field_stays_text() -> None:
    verdict = a_verdict(HOSTILE, VerdictLabel.CONTRADICTED, of=HOSTILE, chunk_ids=(HOSTILE,), quote=HOSTILE)
    verdict = replace(verdict, reason=HOSTILE)
    opened = from_report(
        verdict,
        replace(verdict, claim=replace(verdict.claim, kind="reference", index=1)),
        answer=HOSTILE,
        question=HOSTILE,
        chunks=[Chunk(id=HOSTILE, text=HOSTILE, score_kind=HOSTILE, score=1.0)],
        reference=HOSTILE,
        model=HOSTILE,
        prompt_version=HOSTILE,
        session_id=HOSTILE,
        response_id=HOSTILE,
        retrieval_query=f"{HOSTILE}!",
        gaps=(Gap(part=Part.ANSWER, reason=SkipReason.TRUNCATED, detail=HOSTILE),),
    )
    judged = opened.versions[0].judged
    evaluation = replace(
        judged.evaluation,
        outcomes=(
            replace(judged.evaluation.results[0], metric=HOSTILE, explanation=HOSTILE, pass_when=HOSTILE),
        ),
        judge=replace(judged.evaluation.judge, provider=HOSTILE, model=HOSTILE),
        evaluator_version=HOSTILE,
        input_sha256=HOSTILE,
    )
    sample = Sample(rule=HOSTILE, rate=0.5, probability=0.5)
    version = replace(
        opened.versions[0],
        judged=replace(judged, evaluation=evaluation, sample=sample),
        notices=(HOSTILE,),
        evaluation_id=HOSTILE,
    )
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
    trace = replace(a_judged_trace().opened().trace, spans=(feedback,))  # type: ignore[type-var]
    opened = replace(
        opened,
        versions=(version, version),
        feedback=(feedback,),
        trace=trace,
        read_from=HOSTILE,
        notices=(HOSTILE,),
    )
    review = a_review(note=HOSTILE, reviewer=HOSTILE, claim=HOSTILE)
    page = get(site_of_answers(opened, reviews=reviews_of(review)))
    allowed = {"/static/answer.js", "/static/ui.js"}
    assert {found.get("src") for tag, found in page.elements if tag == "script"} == allowed
    assert not {"img", "iframe", "object", "style"} & {*page.tags}
    names = {name for _, found in page.elements for name in found}
    assert not any(name.startswith("on") or name == "style" for name in names)
    safe = {
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
    }
    values = [found.get(name) or "" for _, found in page.elements for name in safe]
    assert not any("script" in value and not value.startswith("/static/") for value in values)
    assert page.text.count(HOSTILE) > 25
    assert "49" not in page.of.get("claims-title", "")


# -- around the answer ------------------------------------------------------------------------------------


def test_hundreds_of_spans_are_bounded_and_the_telling_ones_are_kept() -> None:
    judged = a_judged_trace()
    others = tuple(
        Span(
            trace_id=KEY.trace_id,
            span_id=f"{number + 4_096:016x}",
            parent_span_id=judged.spans[0].span_id,
            name=f"query {number}",
            start_ns=START_NS + number,
            end_ns=START_NS + number + 5,
            status_code=StatusCode.ERROR if number == 899 else StatusCode.UNSET,
            status_message="it broke",
        )
        for number in range(900)
    )
    page = get(site_of_answers(replace(judged, spans=(*judged.spans, *others)).opened()))
    assert "Timeline 904 spans in 900 ms, 1 error" in page.text
    assert "704 more spans are not on this page." in page.text
    assert "query 899 error it broke" in page.text
    assert "judged answer" in page.text


def test_spans_in_a_cycle_are_shown_once() -> None:
    judged = a_judged_trace()
    pair = [
        Span(
            trace_id=KEY.trace_id,
            span_id=own * 16,
            parent_span_id=parent * 16,
            name=f"round {own}",
            start_ns=START_NS,
            end_ns=START_NS,
        )
        for own, parent in (("b", "c"), ("c", "b"))
    ]
    page = get(site_of_answers(replace(judged, spans=(*judged.spans, *pair)).opened()))
    assert (page.texts.count("round b"), page.texts.count("round c")) == (1, 1)


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
    assert said in get(site_of_answers(judged.opened())).text


def test_feedback_is_shown() -> None:
    feedback = Span(
        trace_id=KEY.trace_id,
        span_id="f" * 16,
        parent_span_id=KEY.span_id,
        name="feedback down",
        start_ns=START_NS,
        end_ns=START_NS,
        attributes={OI_KIND: OI_EVALUATOR, FEEDBACK_LABEL: "down", FEEDBACK_COMMENT: "That is wrong."},
        scope=Scope(name="ragtrace"),
    )
    judged = a_judged_trace()
    text = get(site_of_answers(replace(judged, spans=(*judged.spans, feedback)).opened())).text
    assert "👎 down" in text
    assert "That is wrong." in text


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


def reviews_of(*reviews: Review, failure: Exception | None = None) -> ReviewFile:
    return MemoryReviews(reviews, failure)  # type: ignore[return-value]


def test_reviews_stand_at_their_claim() -> None:
    page = get(site_of_answers(a_judged_trace().opened(), reviews=reviews_of(a_review())))
    assert "A person overrules this: supported by Ada" in " ".join(page.of["claim-1"].split())
    assert "It says 14." in page.of["claim-1"]


def test_the_page_leads_to_its_review_if_the_viewer_may_review() -> None:
    site = site_of_answers(a_judged_trace().opened(), reviews=reviews_of())
    review = f"/review/{KEY.trace_id}/{KEY.span_id}"
    assert review in get(site).hrefs
    assert review not in get(site, viewer=Viewer(may_review=False)).hrefs
    assert review not in get(site_of_answers(a_judged_trace().opened())).hrefs


def test_reviews_that_only_the_trace_has_are_shown_once() -> None:
    judged = a_judged_trace()
    review = replace(a_review(), time_ns=START_NS + 10**9)
    assert judged.record.target is not None
    span = review_span(review, judged.record.target)
    opened = replace(judged, spans=(*judged.spans, span)).opened()
    page = get(site_of_answers(opened))
    assert "A person overrules this: supported by Ada" in " ".join(page.of["claim-1"].split())
    both = get(site_of_answers(opened, reviews=reviews_of(review)))
    assert (
        both.texts.count("It says 14.") == page.texts.count("It says 14.") == 2
    )  # at the claim, in the list


def test_reviews_that_cannot_be_read_are_said_to_be_missing() -> None:
    broken = reviews_of(failure=WriteError(SECRET))
    text = get(site_of_answers(a_judged_trace().opened(), reviews=broken)).text
    assert "The file of reviews cannot be read now" in text
    assert SECRET not in text


def two_versions() -> JudgedTrace:
    undecided = replace(WRONG, label=VerdictLabel.UNJUDGED)
    gone = a_verdict("Shipping is", VerdictLabel.UNSUPPORTED, index=2, chunk_ids=())
    first = JudgedTrace().judged(a_result(undecided, gone, score=0.9), version="1", seconds=1)
    return first.judged(a_result(WRONG, RIGHT, score=0.5), version="2", seconds=60)


def test_versions_are_listed_opened_by_number_or_id_and_compared() -> None:
    page = get(site_of_answers(two_versions().opened()))
    assert "evaluation 2 of 2" in page.text
    assert f"{PATH}?version=1" in page.hrefs
    assert "no, superseded" in page.text
    page = get(site_of_answers(two_versions().opened()), f"{PATH}?version=1")
    assert "A later evaluation replaces this one" in page.text
    assert "evaluation 1 of 2" in page.text
    judged = two_versions()
    page = get(site_of_answers(judged.opened()), f"{PATH}?version={judged.carriers[0].span_id}")
    assert "evaluation 1 of 2" in page.text
    page = get(site_of_answers(judged.opened()), f"{PATH}?version={'f' * 16}")
    assert "There is no evaluation ffffffffffffffff of this answer here" in page.text
    page = get(site_of_answers(two_versions().opened()), f"{PATH}?from=1&to=2")
    difference = " ".join(page.of["difference"].split())
    assert "From 1 to 2" in difference
    assert "The evaluator changed; the judge saw the same." in difference
    assert "faithfulness: 0.90 pass → 0.50 fail -0.40" in difference
    assert "judged otherwise unjudged → contradicted Refunds take 30 days." in difference
    assert "added supported Shipping is free." in difference
    assert "removed unsupported Shipping is" in difference
    site = site_of_answers(two_versions().opened())
    assert "There is no evaluation 9 of this answer" in get(site, f"{PATH}?version=9").text
    assert "evaluation 2 of 2" in get(site, f"{PATH}?version=-1&from=0&to=77").text


def two_judges() -> JudgedTrace:
    right = a_verdict("Refunds take 30 days.")
    first = JudgedTrace().judged(a_result(WRONG, RIGHT, score=0.5), version="1", seconds=1, model="strict")
    second = first.judged(a_result(right, RIGHT, score=1.0), version="2", seconds=9, model="lax", beside=True)
    return second.judged(a_result(right, score=1.0), version="3", seconds=60, model="lax", beside=True)


def test_judges_that_disagree_are_named_and_their_verdicts_compared() -> None:
    site = site_of_answers(two_judges().opened())
    page = get(site, f"{PATH}?version=1")
    said = " ".join(page.text.split())
    assert (
        "The evaluations disagree: openai:strict fails the answer, openai:lax passes it."
        " Their verdicts are compared below" in said
    )
    difference = " ".join(page.of["difference"].split())
    assert "to 1" in difference
    assert "judged otherwise supported → contradicted Refunds take 30 days." in difference
    other = get(site, f"{PATH}?version=3")
    assert "openai:lax passes the answer, openai:strict fails it" in " ".join(other.text.split())
    assert "From 1 to 3" in " ".join(other.of["difference"].split())
    assert "From 2 to 3" in " ".join(get(site, f"{PATH}?version=3&from=2&to=3").of["difference"].split())


def test_an_evaluation_that_overrules_the_one_that_it_replaces_says_so() -> None:
    said = "This evaluation overrules the one that it replaces: openai:some-model said pass."
    judged = two_versions()
    assert said in " ".join(get(site_of_answers(judged.opened())).text.split())
    assert said not in " ".join(get(site_of_answers(judged.opened()), f"{PATH}?version=1").text.split())
    again = judged.judged(
        a_result(WRONG, score=0.0), version="3", seconds=90
    )  # replaces one that said the same
    page = get(site_of_answers(again.opened()))
    assert "overrules" not in page.text
    assert "From 2 to 3" in " ".join(page.of["difference"].split())


def test_evaluations_that_agree_or_are_superseded_dispute_nothing() -> None:
    agreeing = JudgedTrace().judged(a_result(WRONG, score=0.0), version="1")
    agreeing = agreeing.judged(a_result(WRONG, score=0.0), version="2", seconds=9, model="lax", beside=True)
    for judged in (agreeing, two_versions()):
        for version in (1, 2):
            page = get(site_of_answers(judged.opened()), f"{PATH}?version={version}")
            assert "The evaluations disagree" not in page.text


def test_the_other_answers_of_the_session_are_listed_in_order() -> None:
    opened = a_judged_trace().opened()
    opened = replace(opened, record=replace(opened.record, session_id="s1"))
    own = summary_of(a_judged_trace().carriers[0])
    assert own is not None
    earlier = AnswerKey("9" * 32, "9" * 16)
    rows = [
        replace(own, session="s1"),
        replace(own, key=earlier, session="s1", time_ns=own.time_ns - 10**9),
        replace(own, key=AnswerKey("8" * 32, "9" * 16, "other"), session="s1"),
    ]
    page = get(site_of_answers(opened, rows=rows))
    assert f"/answers/{'9' * 32}/{'9' * 16}" in page.hrefs
    assert "this answer" in page.text
    assert not any("8" * 32 in href for href in page.hrefs)  # of another tenant


def test_links_lead_to_the_trace_and_only_to_web_addresses() -> None:
    links = (
        TraceLink(name="Jaeger", template="http://jaeger:16686/trace/{trace_id}?uiFind={span_id}"),
        TraceLink(name="Bad", template="javascript:alert(1)//{trace_id}"),
    )
    page = get(site_of_answers(a_judged_trace().opened(), links=links))
    assert f"http://jaeger:16686/trace/{KEY.trace_id}?uiFind={KEY.span_id}" in page.hrefs
    assert not any("javascript" in href for href in page.hrefs)


def test_the_carrier_is_there_as_json() -> None:
    site = site_of_answers(a_judged_trace().opened())
    page = get(site)
    (raw,) = [href for href in page.hrefs if href.endswith("carrier.json?version=1")]
    response = answer_client(site).get(raw)
    assert response.headers["content-type"] == "application/json"
    assert json.loads(response.text)["resourceSpans"]
    assert "ragtrace.score.faithfulness" in page.text


def test_an_answer_of_a_report_has_no_carrier_and_no_timeline() -> None:
    site = site_of_answers(from_report(WRONG))
    page = get(site)
    assert "The carrier as it is stored" not in page.text
    assert "Timeline" not in page.text
    assert answer_client(site).get(f"{PATH}/carrier.json").status_code == 404


# -- what is not there ------------------------------------------------------------------------------------
def known_rows() -> list[object]:
    own = summary_of(a_judged_trace().carriers[0])
    assert own is not None
    return [replace(own, model="some-llm", service="shop")]


def test_of_an_answer_that_is_gone_the_index_still_tells() -> None:
    page = get(site_of_answers(rows=known_rows()), status=410)  # type: ignore[arg-type]
    assert "This answer is not there" in page.text
    assert "memory:test" in page.text
    assert "faithfulness 0.50 fail" in page.text
    assert "1 supported, 1 contradicted, 0 unsupported, 0 unjudged" in page.text
    assert QUESTION not in page.text


def test_an_answer_that_nobody_knows_is_not_found() -> None:
    page = get(site_of_answers(), status=404)
    assert "It is not in the index either." in page.text


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ReadUnavailable(f"it said {SECRET}"), "memory:test cannot be reached, or fails."),
        (ReadError(f"it said {SECRET}"), "memory:test could not be read"),
    ],
)
def test_a_back_end_that_is_down_leaves_the_scores_and_a_way_on(failure: Exception, said: str) -> None:
    site = site_of_answers(rows=known_rows(), failure=failure)  # type: ignore[arg-type]
    page = get(site, status=503)
    assert said in page.text
    assert "faithfulness 0.50 fail" in page.text
    assert PATH in page.hrefs  # try again
    assert SECRET not in page.text
    assert SECRET not in answer_client(site).get(f"{PATH}/carrier.json").text


def test_place_and_index_may_both_be_down() -> None:
    site = site_of_answers(failure=ReadUnavailable(SECRET), index_failure=ReadError(SECRET))
    page = get(site, status=503)
    assert "Try again" in page.text
    assert SECRET not in page.text


def test_an_answer_that_the_index_does_not_know_is_shown_all_the_same() -> None:
    opened = a_judged_trace().opened()
    opened = replace(opened, record=replace(opened.record, session_id="s1"))
    page = get(site_of_answers(opened, index_failure=ReadError(SECRET)))
    assert "The index cannot be read now, so the other answers of the session are missing below" in page.text
    assert ANSWER.split(".", maxsplit=1)[0] in page.text
    assert SECRET not in page.text


@pytest.mark.parametrize(
    "path",
    [
        f"/answers/{'0' * 31}/{KEY.span_id}",
        f"/answers/{KEY.trace_id}/{'G' * 16}",
        f"/answers/{KEY.trace_id.upper()}x/{KEY.span_id}",
        f"/answers/{'%00' * 8}/{KEY.span_id}",
        f"/answers/{KEY.trace_id}/{KEY.span_id}%0a",
        f"/answers/{'é' * 32}/{KEY.span_id}",
    ],
)
def test_broken_ids_are_not_found(path: str) -> None:
    assert answer_client(site_of_answers(a_judged_trace().opened())).get(path).status_code == 404


def test_a_source_that_hands_out_another_tenants_answer_is_not_believed() -> None:
    judged = a_judged_trace()
    opened = judged.opened()
    assert opened.record.target is not None
    target = replace(opened.record.target, resource={"ragtrace.tenant": "b"})
    key = AnswerKey(*KEY[:2], "a")
    foreign = replace(opened, key=key, record=replace(opened.record, target=target))
    assert answer_client(site_of_answers(foreign), Viewer(tenant="a")).get(PATH).status_code == 404


def test_a_megabyte_in_every_field_makes_a_page_that_says_what_it_left_out() -> None:
    long = "x" * 1_000_000
    verdict = a_verdict(long, VerdictLabel.CONTRADICTED, of=long, chunk_ids=(long,), quote=long)
    opened = from_report(
        replace(verdict, reason=long),
        answer=long,
        question=long,
        chunks=[Chunk(id=long, text=long)],
        reference=long,
        model=long,
        session_id=long,
        retrieval_query=f"{long}!",
        gaps=(Gap(part=Part.ANSWER, reason=SkipReason.TRUNCATED, detail=long),),
    )
    response = answer_client(site_of_answers(opened, reviews=reviews_of(a_review(note=long)))).get(PATH)
    assert response.status_code == 200
    assert len(response.text) < 6_000_000
    text = AnswerHtml(response.text).text
    assert "[995,000 more characters not on this page]" in text
