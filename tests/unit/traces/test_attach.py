"""The carrier span, what is written onto a held span, and the digest that tells a revision."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.model import (
    AttributeValue,
    Compat,
    CompatStatus,
    Diagnosis,
    Evaluation,
    Gap,
    Intermediate,
    JudgeIdentity,
    MetricResult,
    Part,
    RagRecord,
    Sample,
    SkipReason,
    VerdictLabel,
)
from ragtrace.traces.attach import (
    AttachOptions,
    add_to_spans,
    carrier,
    carrier_span_id,
    encode_addition,
    record_sha256,
    without_evaluation_objects,
)
from ragtrace.traces.otlp import decode, drop_spans, encode, split_by_trace
from ragtrace.traces.trace import Span, SpanEvent, StatusCode
from tests.rag_spans import rag_trace
from tests.unit.traces.builders import (
    MS,
    START_NS,
    TRACE_ID,
    a_chunk_verdict,
    a_claim,
    a_failure,
    a_record,
    a_result,
    a_target,
    an_evaluation,
    span_id,
)
from tests.unit.traces.strategies import spans

SAMPLE = Sample(rule="ratio", rate=0.1, probability=0.1)
NOW_NS = START_NS + 61_000 * MS
BAD = an_evaluation(
    a_result(
        a_claim(
            0, VerdictLabel.CONTRADICTED, text="Orders can be returned within 30 days.", chunk_ids=("faq-12",)
        ),
        a_claim(1, VerdictLabel.SUPPORTED, text="Refunds take 5 working days."),
        explanation="1 of 2 claims is contradicted",
    )
)


OPENINFERENCE = AttachOptions(openinference=True)


def a_carrier(
    evaluation: Evaluation = BAD,
    record: RagRecord | None = None,
    *,
    options: AttachOptions | None = None,
    now_ns: int = NOW_NS,
) -> Span:
    return carrier(
        evaluation, record or a_record(), sample=SAMPLE, options=options or AttachOptions(), now_ns=now_ns
    )


def test_span_id_is_the_hash_of_target_and_evaluator() -> None:
    expected = hashlib.sha256(f"{TRACE_ID}|{span_id(3)}|faithfulness/ragtrace|1".encode()).hexdigest()[:16]
    assert a_carrier().span_id == expected
    ids = {"trace_id": TRACE_ID, "span_id": span_id(3), "evaluator_set": "faithfulness/ragtrace"}
    assert carrier_span_id(**ids, evaluator_version="1") == expected
    assert carrier_span_id(**ids, evaluator_version="2") != expected


@pytest.mark.parametrize(
    ("evaluation", "name", "status", "brief"),
    [
        pytest.param(
            an_evaluation(a_result(a_claim(0, VerdictLabel.SUPPORTED), score=1.0)),
            "evaluation pass",
            "ok",
            "faithfulness 1.00 pass: its one claim is supported",
            id="pass",
        ),
        pytest.param(
            an_evaluation(a_result(score=None, skip_reason=SkipReason.NO_CONTENT)),
            "evaluation skipped",
            "skipped",
            "faithfulness skipped: no_content",
            id="skipped",
        ),
        pytest.param(
            an_evaluation(a_failure()),
            "evaluation error",
            "error",
            "faithfulness error: judge_timeout",
            id="error",
        ),
        pytest.param(
            an_evaluation(a_result(score=0.9), a_failure("relevance")),
            "evaluation pass",
            "partial",
            "relevance error: judge_timeout; faithfulness 0.90 pass",
            id="partial",
        ),
    ],
)
def test_name_status_and_brief_tell_the_outcome(
    evaluation: Evaluation, name: str, status: str, brief: str
) -> None:
    span = a_carrier(evaluation)
    assert span.name == name
    assert span.attributes["ragtrace.eval.status"] == status
    assert span.attributes["ragtrace.brief"] == brief
    skipped = evaluation.results and evaluation.results[0].skip_reason
    assert span.attributes.get("ragtrace.eval.skip_reason") == (skipped or None)
    assert ("ragtrace.pass" in span.attributes) == (name == "evaluation pass")


def test_result_event_comes_first_and_then_the_claims_failing_first() -> None:
    labels = [
        VerdictLabel.SUPPORTED,
        VerdictLabel.UNJUDGED,
        VerdictLabel.UNSUPPORTED,
        VerdictLabel.CONTRADICTED,
    ]
    verdicts = [a_claim(index, label) for index, label in enumerate(labels)]
    assert [event.name for event in a_carrier(an_evaluation(a_result(*verdicts))).events] == [
        "gen_ai.evaluation.result",
        "ragtrace.claim.contradicted",
        "ragtrace.claim.unsupported",
        "ragtrace.claim.unjudged",
        "ragtrace.claim.supported",
    ]


def test_without_content_no_text_is_written() -> None:
    span = a_carrier(options=AttachOptions(content=False))
    assert span.status_code is StatusCode.UNSET  # a failing answer is no error of the application
    of_chunks = a_carrier(SEVERAL, options=AttachOptions(content=False))
    assert "opening hours" not in repr(of_chunks)
    assert of_chunks.events[11].attributes["ragtrace.chunk.id"] == "faq-1"
    written = repr(span)
    assert "30 days" not in written
    assert "14 days" not in written
    assert span.events[1].attributes["ragtrace.claim.chunk_ids"] == ("faq-12",)
    assert span.events[1].attributes["ragtrace.claim.offset_end"] == 9


def test_a_reason_stands_in_the_explanation_where_content_may() -> None:
    result = a_result(a_claim(0, VerdictLabel.CONTRADICTED))
    reasoned = replace(result, explanation="1 of 1 contradicted", reason="It says 30 days.")
    made = replace(reasoned, intermediate=Intermediate(truths=("SECRET",)))
    shown, hidden = (
        a_carrier(an_evaluation(made), options=AttachOptions(content=content)) for content in (True, False)
    )
    said = shown.events[0].attributes["gen_ai.evaluation.explanation"]
    assert said == "1 of 1 contradicted: It says 30 days."
    assert "It says" not in repr(hidden)
    assert shown.events[0].attributes["ragtrace.intermediate"] == ('{"truth":"SECRET"}',)
    assert "SECRET" not in repr(hidden)
    assert hidden.events[0].attributes["ragtrace.intermediate.total"] == 1


def test_long_texts_are_cut_between_characters_and_the_quote_stays_verbatim() -> None:
    long = a_claim(0, VerdictLabel.CONTRADICTED, text="漢" * 2_000, chunk_ids=("c",))
    long = replace(long, quote="é" * 2_000)
    attributes = a_carrier(an_evaluation(a_result(long))).events[1].attributes
    assert attributes["ragtrace.claim.assertion"] == "漢" * 599 + "…"
    assert attributes["ragtrace.claim.quote"] == "é" * 900


def test_openinferences_objects_are_for_back_ends_that_read_them() -> None:
    whole, plain = a_carrier(options=OPENINFERENCE), a_carrier()
    assert any(key.startswith("evaluations.") for key in whole.attributes)
    assert without_evaluation_objects(whole) == plain


@pytest.mark.parametrize(
    ("tenant", "query"), [("", ""), ("acme", "?tenant=acme"), ("a&b /?", "?tenant=a%26b%20%2F%3F")]
)
def test_the_carrier_links_to_the_answers_page(tenant: str, query: str) -> None:
    record = a_record()
    assert record.target
    resource = {**record.target.resource, **({"ragtrace.tenant": tenant} if tenant else {})}
    record = replace(record, target=replace(record.target, resource=resource))
    span = a_carrier(record=record, options=AttachOptions(page_url="https://rag.example/pages"))
    target = record.target
    assert target
    assert span.attributes["ragtrace.url"] == (
        f"https://rag.example/pages/answers/{target.trace_id}/{target.span_id}{query}"
    )
    assert "ragtrace.url" not in a_carrier().attributes


def test_carrier_of_a_target_at_the_ends_of_time_can_be_written() -> None:
    for moment_ns, carrier_time in product((0, 1, 2**64 - 2, 2**64 - 1), ("target", "auto", "now")):
        target = a_target(start_ns=moment_ns, end_ns=moment_ns)
        span = a_carrier(record=a_record(target), options=AttachOptions(carrier_time=carrier_time))  # type: ignore[arg-type]
        assert decode(encode([span])) == (span,), (moment_ns, carrier_time)


@given(st.integers(0, 2**62), st.integers(0, 10**10))
def test_carrier_lies_inside_its_target(start_ns: int, duration_ns: int) -> None:
    target = a_target(start_ns=start_ns, end_ns=start_ns + duration_ns)
    span = a_carrier(record=a_record(target), options=AttachOptions(carrier_time="target"))
    assert start_ns <= span.start_ns < span.end_ns
    if duration_ns:
        assert span.end_ns <= target.end_ns
    if duration_ns > 3_000:
        assert span.end_ns <= target.end_ns - 2_000
    assert all(span.start_ns <= event.time_ns <= span.end_ns for event in span.events)


@pytest.mark.parametrize(
    ("carrier_time", "age_s", "is_inside"),
    [
        ("auto", 60, True),
        ("auto", 119, True),
        ("auto", 121, False),
        ("target", 10**6, True),
        ("now", 1, False),
    ],
)
def test_old_targets_get_a_carrier_dated_now_where_auto_says_so(
    carrier_time: str, age_s: int, is_inside: bool
) -> None:
    now_ns = a_target().end_ns + age_s * 1_000 * MS
    options = AttachOptions(carrier_time=carrier_time)  # type: ignore[arg-type]
    span = a_carrier(options=options, now_ns=now_ns)
    assert (span.end_ns < a_target().end_ns) is is_inside
    assert is_inside or span.end_ns == now_ns
    assert span.end_ns > span.start_ns


OF_CLAIMS = (
    a_claim(0, VerdictLabel.SUPPORTED),
    a_claim(1, VerdictLabel.CONTRADICTED, chunk_ids=("faq-12",)),
)
OF_STATEMENTS = (a_claim(0, VerdictLabel.RELEVANT), a_claim(1, VerdictLabel.IRRELEVANT, kind="opinion"))
OF_REFERENCE = (a_claim(0, VerdictLabel.CONTRADICTED, text="Within 14 days.", kind="reference"),)
OF_CHUNKS = (
    a_chunk_verdict(0, VerdictLabel.RELEVANT),
    a_chunk_verdict(1, VerdictLabel.IRRELEVANT, reason="it is about opening hours"),
)
SEVERAL = an_evaluation(
    a_result(*OF_CLAIMS),
    a_result(*OF_CLAIMS, metric="hallucination"),
    a_result(*OF_STATEMENTS, metric="answer_relevance", score=0.5),
    a_result(*OF_REFERENCE, metric="context_recall", score=0.0),
    a_result(metric="context_precision", score=1.0, chunk_verdicts=OF_CHUNKS),
    a_result(metric="chunk_precision", score=0.5, chunk_verdicts=OF_CHUNKS),
)


def test_each_verdict_stands_once_whichever_metrics_rest_on_it() -> None:
    assert [event.name for event in a_carrier(SEVERAL).events[6:]] == [
        *("ragtrace.claim.contradicted", "ragtrace.reference.contradicted", "ragtrace.claim.irrelevant"),
        *("ragtrace.claim.supported", "ragtrace.claim.relevant", "ragtrace.chunk.irrelevant"),
        "ragtrace.chunk.relevant",
    ]


def test_a_shared_verdict_names_all_its_metrics_and_counts_for_each() -> None:
    events = a_carrier(SEVERAL).events
    assert events[6].attributes["ragtrace.claim.metric"] == "faithfulness"
    assert events[6].attributes["ragtrace.claim.metrics"] == ("faithfulness", "hallucination")
    assert [event.attributes.get("ragtrace.claims.emitted") for event in events[:6]] == [
        2,
        2,
        2,
        1,
        None,
        None,
    ]
    assert [event.attributes.get("ragtrace.chunks.emitted") for event in events[:6]] == [*[None] * 4, 2, 2]


def test_result_events_count_in_the_words_of_their_metric() -> None:
    claims, _, statements, _, chunks, _, *_ = (event.attributes for event in a_carrier(SEVERAL).events)
    assert claims["ragtrace.claims.contradicted"] == 1
    assert claims["ragtrace.claims.unsupported"] == 0
    assert "ragtrace.claims.irrelevant" not in claims
    assert (statements["ragtrace.claims.total"], statements["ragtrace.claims.irrelevant"]) == (2, 1)
    assert "ragtrace.claims.supported" not in statements
    assert (chunks["ragtrace.chunks.total"], chunks["ragtrace.chunks.relevant"]) == (2, 1)
    assert not [key for key in chunks if key.startswith("ragtrace.claims.")]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (a_result(*OF_STATEMENTS), "1 of 2 statements irrelevant"),
        (a_result(*OF_REFERENCE), "1 of 1 reference sentence contradicted"),
        (a_result(a_claim(0, VerdictLabel.UNSUPPORTED, kind="sentence")), "1 of 1 sentence unsupported"),
        (a_result(chunk_verdicts=OF_CHUNKS), "1 of 2 chunks irrelevant"),
        (a_result(chunk_verdicts=OF_CHUNKS[:1]), "its one chunk is relevant"),
        (a_result(*OF_STATEMENTS[:1] * 2), "all 2 statements relevant"),
        (replace(a_result(*OF_CLAIMS), diagnosis=Diagnosis.GENERATION_PROBLEM), "generation problem"),
    ],
)
def test_brief_counts_in_the_words_of_its_metric(result: MetricResult, told: str) -> None:
    brief = str(a_carrier(an_evaluation(result)).attributes["ragtrace.brief"])
    assert brief.partition(": ")[2].partition(" (")[0] == told


def test_brief_of_many_metrics_says_first_what_failed_and_how_many_it_leaves_out() -> None:
    passing = [a_result(metric=f"a_metric_with_a_long_name_{number}", score=1.0) for number in range(9)]
    brief = str(a_carrier(an_evaluation(*passing, a_result(*OF_CLAIMS))).attributes["ragtrace.brief"])
    assert brief.startswith("faithfulness 0.50 fail: 1 of 2 claims contradicted (faq-12); a_metric_with_a_")
    assert brief.endswith("pass; 6 more")


def test_composite_diagnosis_and_another_tools_number_are_searchable() -> None:
    compat = Compat(status=CompatStatus.OK, score=2.0)
    attributes = a_carrier(
        an_evaluation(
            replace(a_result(metric="rag_score"), diagnosis=Diagnosis.RETRIEVAL_NOISE),
            replace(
                a_result(metric="context_precision", score=None, skip_reason=SkipReason.OUT_OF_RANGE),
                compat=compat,
            ),
            replace(a_failure(), compat=Compat(status=CompatStatus.NAN)),
        )
    ).attributes
    assert attributes["ragtrace.composite"] == 0.5
    assert attributes["ragtrace.diagnosis"] == "retrieval_noise"
    assert attributes["ragtrace.compat.score.context_precision"] == 2.0
    assert attributes["ragtrace.compat.status.context_precision"] == "ok"
    assert attributes["ragtrace.compat.status.faithfulness"] == "nan"
    assert "ragtrace.compat.score.faithfulness" not in attributes
    assert "ragtrace.score.context_precision" not in attributes


def test_result_of_a_second_judge_names_it_and_the_carrier_says_why() -> None:
    second = JudgeIdentity(provider="lexical", model="lexical-v2", computes=True)
    evaluation = replace(
        an_evaluation(replace(a_result(), judge=second), a_failure("relevance")), compromised=True
    )
    span = a_carrier(evaluation, options=OPENINFERENCE)
    assert span.attributes["ragtrace.eval.compromised"] is True
    assert span.attributes["evaluations.0.evaluation.annotator_kind"] == "CODE"
    assert span.events[0].attributes["ragtrace.judge.model"] == "lexical-v2"
    assert span.events[0].attributes["ragtrace.evaluator.type"] == "deterministic"
    assert span.events[1].attributes["ragtrace.judge.model"] == "gpt-4o-mini"


claim_labels = st.lists(st.sampled_from(VerdictLabel), max_size=40)
chunk_verdicts = st.lists(st.builds(a_chunk_verdict, st.integers(0, 60), st.sampled_from(VerdictLabel)))
outcomes = st.one_of(
    st.builds(a_failure, st.sampled_from(["a", "b"])),
    st.builds(
        lambda labels, times, score, metric, chunks: a_result(
            *(a_claim(index, label) for index, label in enumerate(labels * times)),
            score=score,
            metric=metric,
            chunk_verdicts=tuple(chunks),
        ),
        claim_labels,
        st.integers(1, 4),
        st.floats(0, 1),
        st.sampled_from(["a", "b"]),
        chunk_verdicts,
    ),
)


@given(st.lists(outcomes, max_size=4), st.integers(-5, 500))
def test_caps_hold_for_any_evaluation(chosen: list[object], max_claims: int) -> None:
    evaluation = an_evaluation(*chosen)  # type: ignore[arg-type]
    span = a_carrier(evaluation, options=AttachOptions(max_claims=max_claims))
    strings = [
        value for event in span.events for value in event.attributes.values() if isinstance(value, str)
    ]
    strings += [value for value in span.attributes.values() if isinstance(value, str)]
    assert len(span.events) <= 128
    assert len(span.attributes) <= 128
    assert all(len(text.encode(errors="replace")) <= 1_800 for text in strings)
    assert len(str(span.attributes["ragtrace.brief"])) <= 200
    claims = [event for event in span.events if event.name.startswith("ragtrace.claim.")]
    assert len(claims) <= max(0, max_claims)


@given(st.lists(outcomes, max_size=4), st.integers(-5, 500))
def test_emitted_says_for_each_metric_how_many_events_name_it(chosen: list[object], max_claims: int) -> None:
    events = a_carrier(an_evaluation(*chosen), options=AttachOptions(max_claims=max_claims)).events  # type: ignore[arg-type]
    for what in ("claim", "chunk"):
        naming = Counter(name for event in events for name in _named_by(event, what))
        for event in events[: len(chosen)]:
            said = event.attributes.get(f"ragtrace.{what}s.emitted", 0)
            assert said == naming[event.attributes["gen_ai.evaluation.name"]]


def _named_by(event: SpanEvent, what: str) -> Iterable[AttributeValue]:
    alone = event.attributes.get(f"ragtrace.{what}.metric")
    several = event.attributes.get(f"ragtrace.{what}.metrics")
    return several if isinstance(several, tuple) else [alone] if alone else []


UNKNOWN = b"\xa2\x1f\x02hi"
"""Field 500, which no message of OTLP has."""
ROOT = rag_trace(0)[0].span_id
ADDITION = encode_addition(
    {"ragtrace.pass": False, "ragtrace.kind": "other"},
    (SpanEvent(name="ragtrace.claim.contradicted", time_ns=5, attributes={"n": 1}),),
)


def parsed(payload: bytes) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(payload)


def with_unknown_fields(payload: bytes) -> bytes:
    """Add a field of a later version of OTLP to the request, its resources, scopes and spans."""
    request = parsed(payload)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                span.dropped_events_count = 7
                span.MergeFromString(UNKNOWN)
            scope_spans.MergeFromString(UNKNOWN)
        resource_spans.MergeFromString(UNKNOWN)
    return request.SerializeToString() + UNKNOWN


def taken_off(payload: bytes, attributes: int, events: int) -> bytes:
    """Undo an addition to the first span."""
    request = parsed(payload)
    span = request.resource_spans[0].scope_spans[0].spans[0]
    del span.attributes[len(span.attributes) - attributes :]
    del span.events[len(span.events) - events :]
    return request.SerializeToString()


def test_only_what_is_added_differs() -> None:
    original = with_unknown_fields(encode(rag_trace(0)))
    written = add_to_spans(original, {ROOT: ADDITION})
    span = parsed(written).resource_spans[0].scope_spans[0].spans[0]
    assert (span.attributes[-1].key, span.events[-1].name) == ("ragtrace.pass", "ragtrace.claim.contradicted")
    assert taken_off(written, attributes=1, events=1) == original


def test_what_the_application_wrote_is_not_overwritten() -> None:
    span = (
        parsed(add_to_spans(encode(rag_trace(0)), {ROOT: ADDITION})).resource_spans[0].scope_spans[0].spans[0]
    )
    kinds = [each.value.string_value for each in span.attributes if each.key == "ragtrace.kind"]
    assert kinds == ["rag"]


def test_every_copy_of_a_span_gets_its_addition() -> None:
    payload = encode(rag_trace(0)) * 2
    request = parsed(add_to_spans(payload, {ROOT: ADDITION}))
    assert [len(each.scope_spans[0].spans[0].events) for each in request.resource_spans] == [1, 1]


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_request_is_parted_without_loss(wanted: int) -> None:
    request = parsed(with_unknown_fields(encode([*rag_trace(0), *rag_trace(1)])))
    chosen = f"{wanted + 1:032x}"
    (part,) = split_by_trace(request, wanted=lambda trace_id, _: trace_id == chosen).slices
    drop_spans(request, lambda span: span.trace_id.hex() == chosen)
    assert part.payload + UNKNOWN == with_unknown_fields(encode(rag_trace(wanted)))
    assert request.SerializeToString() == with_unknown_fields(encode(rag_trace(1 - wanted)))


@pytest.mark.slow
@given(span=spans())
def test_spans_that_get_nothing_keep_their_bytes(span: Any) -> None:
    payload = encode([span])
    assert add_to_spans(payload, {"0123456789abcdef": ADDITION}) == payload


JUDGED = replace(
    RagRecord.of(
        question="How long?",
        contexts={"faq-1": "14 days.", "faq-2": "Free."},
        answer="14 days.",
        reference="14 days.",
    ),
    reference_chunk_ids=("faq-1",),
)
FIRST_CHUNK, SECOND_CHUNK = JUDGED.chunks


def test_what_is_judged_makes_another_digest_and_what_is_copied_for_filtering_does_not() -> None:
    for changed in (
        replace(JUDGED, question=None),
        replace(JUDGED, reference=None),
        replace(JUDGED, reference_chunk_ids=()),
        replace(JUDGED, chunks=(SECOND_CHUNK, FIRST_CHUNK)),
        replace(JUDGED, chunks=(FIRST_CHUNK, replace(SECOND_CHUNK, id="faq-3"))),
        replace(JUDGED, gaps=(Gap(part=Part.ANSWER, reason=SkipReason.TRUNCATED, detail="cut"),)),
    ):
        assert record_sha256(changed) != record_sha256(JUDGED), changed
    for same in (
        replace(JUDGED, session_id="s-1", conversation_id="c-1", response_id="r-1"),
        replace(JUDGED, model="m", prompt_version="2", id="another"),
        replace(JUDGED, chunks=(replace(FIRST_CHUNK, span_id="01", score=0.5), SECOND_CHUNK)),
    ):
        assert record_sha256(same) == record_sha256(JUDGED), same
