"""An answer of a trace, opened."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.answers.carrier import open_answer
from ragtrace.answers.port import AnswerGone
from ragtrace.answers.summary import AnswerKey
from ragtrace.model import (
    Evaluation,
    RagRecord,
    Sample,
    VerdictLabel,
    content_sha256,
)
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import ExtractRules, extract_records
from ragtrace.traces.trace import Resource, Scope, Span, SpanLink, Trace
from tests.rag_spans import rag_trace
from tests.unit.traces.builders import a_claim, a_result, an_evaluation

RULES = ExtractRules()
SPANS = rag_trace(1)
TRACE_ID = SPANS[0].trace_id
BAD = an_evaluation(a_result(a_claim(0, VerdictLabel.CONTRADICTED)))
NOW_NS = SPANS[0].end_ns + 10**9


def trace_of(*more: Span, spans: tuple[Span, ...] = tuple(SPANS)) -> Trace:
    return Trace.of(TRACE_ID, (*spans, *more))


def the_record() -> RagRecord:
    (record,) = extract_records(trace_of()).records
    return record


def the_key(tenant: str = "") -> AnswerKey:
    target = the_record().target
    assert target is not None
    return AnswerKey(target.trace_id, target.span_id, tenant)


def a_carrier(evaluation: Evaluation = BAD, *, supersedes: str | None = None, mode: str = "append") -> Span:
    return carrier(
        evaluation,
        the_record(),
        sample=Sample(rule="ratio", rate=1.0, probability=1.0),
        options=AttachOptions(),
        now_ns=NOW_NS,
        supersedes=supersedes,
        mode="hold" if mode == "hold" else "append",
    )


def test_answer_has_its_record_its_trace_and_its_evaluation() -> None:
    opened = open_answer(trace_of(a_carrier()), the_key(), RULES, read_from="a test")
    assert opened.record == the_record()
    assert (opened.read_from, opened.notices) == ("a test", ())
    assert opened.trace is not None
    assert len(opened.trace.spans) == len(SPANS) + 1
    (version,) = opened.versions
    assert version.is_valid
    assert version.carrier == a_carrier()
    (result,) = version.judged.evaluation.results
    assert result.verdicts[0].label is VerdictLabel.CONTRADICTED


def test_claims_are_shown_if_the_record_cannot_be_read_any_more() -> None:
    opened = open_answer(Trace.of(TRACE_ID, [a_carrier()]), the_key(), RULES, read_from="a test")
    assert (opened.record.answer, opened.record.chunks) == (None, ())
    assert opened.record.target is not None
    assert opened.record.target.start_ns == SPANS[0].start_ns
    assert "can no longer be read from this trace" in opened.notices[0]
    (version,) = opened.versions
    (result,) = version.judged.evaluation.results
    assert result.verdicts[0].claim.text == "Claim 0."


def test_trace_without_the_span_or_without_an_evaluation_is_told() -> None:
    with pytest.raises(AnswerGone, match="but no evaluation of it: it was not judged yet"):
        open_answer(trace_of(), the_key(), RULES, read_from="a test")
    with pytest.raises(AnswerGone, match="but not its span ffffffffffffffff"):
        open_answer(trace_of(a_carrier()), AnswerKey(TRACE_ID, "f" * 16), RULES, read_from="a test")


def feedback(number: int, about: str | None) -> Span:
    links = (SpanLink(trace_id=TRACE_ID, span_id=about),) if about else ()
    return Span(
        trace_id=TRACE_ID,
        span_id=f"{number:016x}",
        parent_span_id=about,
        name="feedback down",
        start_ns=NOW_NS,
        end_ns=NOW_NS,
        attributes={
            "openinference.span.kind": "EVALUATOR",
            "ragtrace.feedback.label": "down",
            **({"ragtrace.target.span_id": about} if about else {}),
        },
        links=links,
        scope=Scope(name="ragtrace"),
    )


def test_feedback_on_the_answer_or_on_its_trace_is_there() -> None:
    on_answer, on_trace = feedback(0xFA, the_key().span_id), feedback(0xFB, None)
    opened = open_answer(trace_of(a_carrier(), on_answer, on_trace), the_key(), RULES, read_from="a test")
    assert {span.span_id for span in opened.feedback} == {on_answer.span_id, on_trace.span_id}
    assert len(opened.versions) == 1


def of_tenant(span: Span, tenant: str) -> Span:
    return replace(
        span, resource=Resource(attributes={**span.resource.attributes, "ragtrace.tenant": tenant})
    )


OWNERS = st.sampled_from(["acme", "other", None])


@given(
    spans=st.lists(st.tuples(OWNERS, st.sampled_from(["acme", "other"])), min_size=3, max_size=3),
    carriers=st.lists(st.tuples(OWNERS, st.sampled_from(["acme", "other"])), min_size=1, max_size=4),
    comment=OWNERS,
)
def test_a_tenant_is_shown_nothing_that_another_wrote(
    spans: list[tuple[str | None, str]], carriers: list[tuple[str | None, str]], comment: str | None
) -> None:
    """Who wrote a span, and whom it names: what names nobody may be anyone's."""
    texts = {who: f"Refunds of {who} take 14 days." for who in ("acme", "other")}
    own = {
        who: rag_trace(1, question=f"How {who}?", chunks=(texts[who],), answer=texts[who]) for who in texts
    }
    written = [own[owner or who][place] for place, (owner, who) in enumerate(spans)]
    given_spans = [
        of_tenant(span, owner) if owner else span for span, (owner, _) in zip(written, spans, strict=True)
    ]
    evaluations = set()
    for number, (owner, who) in enumerate(carriers):
        author = owner or who
        (record,) = extract_records(Trace.of(TRACE_ID, own[author])).records
        claim = replace(a_claim(0, VerdictLabel.CONTRADICTED), reason=texts[author])
        evaluation = replace(an_evaluation(a_result(claim)), input_sha256=content_sha256(record))
        one = replace(a_carrier(evaluation), span_id=f"{number + 1:016x}")
        given_spans.append(of_tenant(one, owner) if owner else one)
        if author == "acme":
            evaluations.add(one.span_id)
    if comment:
        said = replace(feedback(0xFA, the_key().span_id), name=f"feedback of {comment}")
        given_spans.append(of_tenant(said, comment))
    try:
        opened = open_answer(
            Trace.of(TRACE_ID, given_spans),
            the_key("acme"),
            RULES,
            read_from="a test",
            evaluations=evaluations,
        )
    except AnswerGone:
        assert not evaluations
        return
    assert evaluations
    assert "other" not in repr(opened)
