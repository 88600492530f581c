"""Reading RAG calls out of traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.model import AttributeValue, Part, SkipReason
from ragtrace.traces.extract import Extraction, extract_records
from ragtrace.traces.trace import Span, SpanEvent, SpanLink, Trace
from tests.unit.traces.builders import (
    TRACE_ID,
    a_span,
    a_trace,
    documents,
    lines_run,
    messages,
    reasons,
    span_id,
    the_record,
)
from tests.unit.traces.recordings import all_recordings
from tests.unit.traces.strategies import values

WORKFLOW = "gen_ai.operation.name"
QUESTION, ANSWER = "How long can I return?", "14 days."


def workflow(number: int = 1, parent: int | None = None, **attributes: AttributeValue) -> Span:
    texts = {
        "gen_ai.input.messages": messages("user", QUESTION),
        "gen_ai.output.messages": messages("assistant", ANSWER),
    }
    return a_span(number, parent, attributes={WORKFLOW: "invoke_workflow", **texts, **attributes})


def retrieval(
    number: int = 2, parent: int = 1, *, at: tuple[int, int] = (10, 20), **attributes: AttributeValue
) -> Span:
    found = {"gen_ai.retrieval.documents": documents(d1="Within 14 days.")}
    return a_span(number, parent, at=at, attributes={WORKFLOW: "retrieval", **found, **attributes})


def chat(
    number: int = 3,
    parent: int = 1,
    *,
    at: tuple[int, int] = (30, 900),
    text: str = ANSWER,
    **attributes: AttributeValue,
) -> Span:
    said = {"gen_ai.output.messages": messages("assistant", text)} if text else {}
    return a_span(number, parent, at=at, attributes={WORKFLOW: "chat", **said, **attributes})


def oi(kind: str, **attributes: AttributeValue) -> Mapping[str, AttributeValue]:
    return {"openinference.span.kind": kind, **attributes}


def oi_documents(prefix: str, *texts: str, start: int = 0) -> dict[str, AttributeValue]:
    return {f"{prefix}.{start + i}.document.content": text for i, text in enumerate(texts)}


def test_genai_call_is_read_with_its_facts() -> None:
    record = the_record(
        workflow(**{"gen_ai.conversation.id": "c-1", "session.id": "s-1"}),
        retrieval(**{"gen_ai.retrieval.query.text": "return period"}),
        chat(
            **{
                "gen_ai.response.model": "gpt-4o-mini",
                "gen_ai.response.id": "r-1",
                "gen_ai.prompt.version": "7",
            }
        ),
    )
    assert (record.question, record.answer) == (QUESTION, ANSWER)
    assert [(chunk.id, chunk.text, chunk.score, chunk.span_id) for chunk in record.chunks] == [
        ("d1", "Within 14 days.", 0.5, span_id(2))
    ]
    assert record.retrieval_query == "return period"
    assert (record.model, record.response_id, record.prompt_version) == ("gpt-4o-mini", "r-1", "7")
    assert (record.session_id, record.conversation_id) == ("s-1", "c-1")
    assert record.gaps == ()


def test_record_points_at_the_span_that_holds_the_answer() -> None:
    root = workflow(parent=None)
    above = a_span(9, name="GET /ask")
    record = the_record(above, workflow(parent=9), retrieval(), chat())
    assert record.id == f"{TRACE_ID}:{root.span_id}"
    assert record.target is not None
    assert (record.target.span_id, record.target.name, record.target.root_name) == (
        span_id(1),
        "span 1",
        "GET /ask",
    )
    assert (record.target.start_ns, record.target.end_ns) == (root.start_ns, root.end_ns)
    assert record.target.resource == {"service.name": "support-bot"}


def test_a_span_without_a_parent_belongs_to_the_span_that_it_links_to() -> None:
    call = workflow()
    link = SpanLink(trace_id=TRACE_ID, span_id=call.span_id)
    queued = replace(retrieval(), parent_span_id=None, links=(link,))
    alone = replace(queued, links=())
    assert [chunk.id for chunk in the_record(call, queued, chat()).chunks] == ["d1"]
    other = replace(call, span_id="00000000000000ff", start_ns=call.start_ns + 1)
    first, second = extract_records(a_trace(call, other, queued)).records
    assert ([chunk.id for chunk in first.chunks], second.chunks) == (["d1"], ())
    assert not any(each.chunks for each in extract_records(a_trace(call, other, alone)).records)


def test_own_attributes_win_over_the_genai_ones_beside_them() -> None:
    elements = tuple(json.dumps({"id": key, "content": f"text {key}"}) for key in ("a", "b"))
    record = the_record(
        a_span(
            1,
            attributes={
                "ragtrace.kind": "rag",
                WORKFLOW: "invoke_workflow",
                "ragtrace.question": (QUESTION,),
                "ragtrace.answer": (ANSWER,),
                "ragtrace.reference.answer": ("Two weeks.",),
                "ragtrace.reference.context_ids": ("a",),
                "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"14 d',
            },
        ),
        retrieval(**{"ragtrace.kind": "retrieval", "ragtrace.retrieval.documents": elements}),
    )
    assert (record.question, record.answer, record.reference) == (QUESTION, ANSWER, "Two weeks.")
    assert record.reference_chunk_ids == ("a",)
    assert [chunk.id for chunk in record.chunks] == ["a", "b"]
    assert record.gaps == ()
    assert {where.convention for where in record.provenance} == {"ragtrace"}


@pytest.mark.parametrize(
    ("value", "mime", "expected"),
    [
        pytest.param('{"question": "Hello?"}', "application/json", "Hello?", id="json"),
        pytest.param('"{\\"query\\": \\"Hello?\\"}"', "application/json", "Hello?", id="doubly encoded"),
        pytest.param("{'user_input': 'Hello?', 'k': None}", None, "Hello?", id="python repr"),
        pytest.param('{"query": "Hello?"}', "text/plain", "Hello?", id="json that is said to be plain text"),
        pytest.param('{"colors": 3}', "text/plain", '{"colors": 3}', id="json without a question"),
        pytest.param("[1] see {above}", None, "[1] see {above}", id="text with brackets"),
    ],
)
def test_openinference_question_is_found_in_what_instrumentations_write(
    value: str, mime: str | None, expected: str
) -> None:
    attributes = oi(
        "CHAIN",
        **{"input.value": value, "output.value": ANSWER} | ({"input.mime_type": mime} if mime else {}),
    )
    assert the_record(a_span(1, attributes=attributes)).question == expected


@pytest.mark.parametrize(
    "output",
    [
        {"error": "rate limited by the provider"},
        {"error": {"message": "rate limited"}},
        {"documents": [{"page_content": "Refunds take 14 days."}]},
        {"sql": "SELECT 1"},
    ],
    ids=json.dumps,
)
def test_an_output_with_something_else_alone_is_no_answer(output: dict[str, object]) -> None:
    attributes = oi("CHAIN", **{"input.value": QUESTION, "output.value": json.dumps(output)})
    call = a_span(1, attributes=attributes | {"output.mime_type": "application/json"})
    assert extract_records(a_trace(call)).records == ()


def test_an_answer_that_quotes_a_conversation_is_no_prompt_of_many_turns() -> None:
    said = "User: How long can I return?\nAssistant: Within 14 days.\nThat is what support said."
    call = a_span(1, None, attributes=oi("CHAIN", **{"input.value": QUESTION, "output.value": said}))
    assert the_record(call).answer == said


def test_marked_rag_calls_inside_an_agent_are_the_records() -> None:
    mark = {"ragtrace.kind": "rag"}
    agent = a_span(
        9, attributes={WORKFLOW: "invoke_agent", "gen_ai.output.messages": messages("assistant", "all")}
    )
    records = extract_records(
        a_trace(agent, workflow(1, 9, **mark), retrieval(2, 1), workflow(4, 9, **mark), retrieval(5, 4))
    ).records
    assert [record.id for record in records] == [f"{TRACE_ID}:{span_id(1)}", f"{TRACE_ID}:{span_id(4)}"]


def test_steps_without_a_workflow_are_joined_under_their_common_ancestor() -> None:
    record = the_record(a_span(8), a_span(9, 8, name="handler"), retrieval(parent=9), chat(parent=9))
    assert record.answer == ANSWER
    assert record.target is not None
    assert (record.target.span_id, record.target.root_name) == (span_id(3), "span 8")


def test_agent_gets_the_retrieval_beside_it_and_steps_of_parents_not_seen_are_one_call() -> None:
    tool = retrieval(parent=77, **{WORKFLOW: "execute_tool", "gen_ai.tool.type": "datastore"})
    record = the_record(tool, chat(parent=78))
    assert (record.answer, len(record.chunks)) == (ANSWER, 1)
    agent = a_span(
        1,
        9,
        at=(30, 900),
        attributes={WORKFLOW: "invoke_agent", "gen_ai.output.messages": messages("assistant", ANSWER)},
    )
    assert [chunk.id for chunk in the_record(a_span(9), retrieval(2, 9), agent).chunks] == ["d1"]


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        pytest.param([a_span(1)], "no span follows a convention", id="foreign"),
        pytest.param([retrieval(1, 0)], "has only retrieval spans", id="search only"),
        pytest.param([], "no span", id="empty"),
    ],
)
def test_trace_without_a_rag_call_gives_a_note_and_no_record(spans: list[Span], says: str) -> None:
    extraction = extract_records(a_trace(*spans))
    assert extraction.records == ()
    assert says in extraction.notes[-1].text


@pytest.mark.parametrize(
    "evaluator",
    [
        a_span(7, 1, attributes=oi("EVALUATOR")),
        a_span(7, 1, attributes={WORKFLOW: "evaluation"}),
        a_span(7, 1, attributes={"langfuse.observation.type": "evaluator"}),
        a_span(7, 1, attributes={"mlflow.spanType": '"EVALUATOR"'}),
        a_span(7, 1, attributes={"ragtrace.eval.status": "ok"}),
        a_span(7, 1, scope="ragtrace.evaluation"),
    ],
    ids=["openinference", "genai", "langfuse", "mlflow", "own keys", "own scope"],
)
def test_evaluators_and_what_runs_under_them_are_never_judged(evaluator: Span) -> None:
    inside = [workflow(8, 7), retrieval(10, 7), chat(11, 7, at=(40, 950), text="judged")]
    alone = extract_records(a_trace(evaluator, *inside))
    beside = extract_records(a_trace(workflow(), retrieval(), evaluator, *inside))
    assert alone.records == ()
    assert [record.answer for record in beside.records] == [ANSWER]
    assert "never evaluated" in beside.notes[0].text


def test_generation_that_the_root_repeats_gives_the_model() -> None:
    title = chat(4, at=(910, 990), text="A title", **{"gen_ai.response.model": "small"})
    assert the_record(workflow(), retrieval(), chat(**{"gen_ai.response.model": "big"}), title).model == "big"


def test_same_id_with_another_text_is_another_chunk() -> None:
    twice = json.dumps([{"id": "faq.md", "content": "one"}, {"id": "faq.md", "content": "two"}])
    record = the_record(workflow(), retrieval(**{"gen_ai.retrieval.documents": twice}))
    assert [chunk.id for chunk in record.chunks] == ["faq.md", "faq.md#2"]


def test_documents_without_an_id_are_named_after_their_metadata_or_text() -> None:
    given_documents = json.dumps(
        [{"content": "x", "metadata": {"chunk_id": "c7"}}, {"content": "y"}, {"score": 1}]
    )
    ids = [
        chunk.id
        for chunk in the_record(
            workflow(), retrieval(**{"gen_ai.retrieval.documents": given_documents})
        ).chunks
    ]
    assert ids == ["c7", "a1fce4363854ff88", "unnamed-2"]


def test_documents_without_text_are_a_gap() -> None:
    record = the_record(
        workflow(), retrieval(**{"gen_ai.retrieval.documents": '[{"id": "d1", "score": 0.5}]'})
    )
    assert reasons(record) == {Part.CONTEXT: SkipReason.NO_CONTENT}
    assert [chunk.id for chunk in record.chunks] == ["d1"]


def test_content_capture_that_is_off_is_named() -> None:
    off = {"ragtrace.content.capture": False}
    record = the_record(
        a_span(1, attributes={"ragtrace.kind": "rag", **off}),
        a_span(2, 1, at=(10, 20), attributes={"ragtrace.kind": "retrieval", **off}),
    )
    assert set(reasons(record).items()) == {
        (part, SkipReason.NO_CONTENT) for part in (Part.QUESTION, Part.CONTEXT, Part.ANSWER)
    }
    assert all('content="on"' in gap.detail for gap in record.gaps)


def test_uploaded_messages_are_named() -> None:
    record = the_record(
        a_span(1, attributes={WORKFLOW: "invoke_workflow", "gen_ai.output.messages_ref": "s3://x"}),
        retrieval(),
    )
    gap = record.gap(Part.ANSWER)
    assert gap is not None
    assert "uploaded" in gap.detail


def test_chat_alone_is_a_call_for_which_nothing_was_retrieved() -> None:
    assert reasons(the_record(workflow(), chat())) == {Part.CONTEXT: SkipReason.NO_RETRIEVAL}
    record = the_record(chat(1, 0, **{"gen_ai.input.messages": messages("user", QUESTION)}))
    assert (record.question, record.answer) == (QUESTION, ANSWER)
    assert reasons(record) == {Part.CONTEXT: SkipReason.NO_RETRIEVAL}


def test_retrieval_that_found_nothing_has_no_context() -> None:
    record = the_record(workflow(), retrieval(**{"gen_ai.retrieval.documents": "[]"}))
    assert reasons(record) == {Part.CONTEXT: SkipReason.EMPTY_RETRIEVAL}


@pytest.mark.parametrize("mark", ["__REDACTED__", "[REDACTED]", "<redacted>"])
def test_redaction_marks_are_not_judged(mark: str) -> None:
    record = the_record(
        workflow(**{"gen_ai.output.messages": messages("assistant", mark)}),
        retrieval(**{"gen_ai.retrieval.documents": documents(d1=mark)}),
    )
    assert record.answer is None
    assert reasons(record) == {Part.CONTEXT: SkipReason.REDACTED, Part.ANSWER: SkipReason.REDACTED}


def test_answer_that_the_redaction_hook_dropped_is_redacted() -> None:
    root = a_span(
        1,
        attributes={
            "ragtrace.kind": "rag",
            "ragtrace.question": (QUESTION,),
            "ragtrace.content.redacted": ("answer",),
        },
    )
    assert reasons(the_record(root, retrieval())) == {Part.ANSWER: SkipReason.REDACTED}


def test_own_mark_of_truncation_is_believed() -> None:
    root = workflow(**{"ragtrace.kind": "rag", "ragtrace.content.truncated": ("answer",)})
    cut = (json.dumps({"id": "a", "content": "x", "truncated": True}),)
    retriever = a_span(
        2, 1, at=(10, 20), attributes={"ragtrace.kind": "retrieval", "ragtrace.retrieval.documents": cut}
    )
    record = the_record(root, retriever)
    assert reasons(record) == {Part.CONTEXT: SkipReason.TRUNCATED, Part.ANSWER: SkipReason.TRUNCATED}
    assert record.answer == ANSWER


def tempo_cut(text: str) -> str:
    return text.encode()[:2_048].decode(errors="replace")


@pytest.mark.parametrize("filler", ["x", "é", "漢", "😀"])
def test_documents_cut_by_tempo_are_salvaged_one_by_one(filler: str) -> None:
    whole = documents(d1="first", d2=filler * 4_000)
    record = the_record(workflow(), retrieval(**{"gen_ai.retrieval.documents": tempo_cut(whole)}))
    assert [chunk.id for chunk in record.chunks] == ["d1"]
    assert reasons(record) == {Part.CONTEXT: SkipReason.TRUNCATED}
    assert "2048 bytes" in record.gaps[0].detail


def test_messages_cut_by_tempo_are_no_answer_but_the_generation_may_have_it() -> None:
    cut = {"gen_ai.output.messages": tempo_cut(messages("assistant", "x" * 4_000))}
    assert reasons(the_record(workflow(**cut), retrieval())) == {Part.ANSWER: SkipReason.TRUNCATED}
    whole = the_record(workflow(**cut), retrieval(), chat())
    assert (whole.answer, whole.gaps) == (ANSWER, ())


@pytest.mark.parametrize(
    ("elements", "texts", "is_cut"),
    [
        (('{"id": "a", "content": "x"}', '{"id": "b", "cont'), ["x"], True),
        (('{"content": "Within 14 da',), [], True),
        (
            ('{"name": "Ann", "orders": [', "Within 14 days."),
            ['{"name": "Ann", "orders": [', "Within 14 days."],
            False,
        ),
        (("{not JSON}", "Within 14 days."), ["{not JSON}", "Within 14 days."], False),
    ],
    ids=["among documents", "by its first key", "a text that looks so", "no JSON at all"],
)
def test_documents_cut_out_of_their_json_are_left_out_of_a_list(
    elements: tuple[str, ...], texts: list[str], is_cut: bool
) -> None:
    record = the_record(workflow(), retrieval(**{"gen_ai.retrieval.documents": elements}))
    assert [chunk.text for chunk in record.chunks] == texts
    assert reasons(record) == ({Part.CONTEXT: SkipReason.TRUNCATED} if is_cut else {})


def test_dropped_attributes_leave_the_context_incomplete_and_the_indices_their_gaps() -> None:
    left = oi_documents("retrieval.documents", "i", "j", start=8)
    record = the_record(workflow(), a_span(2, 1, at=(10, 20), attributes=left, dropped=34), chat())
    assert [chunk.rank for chunk in record.chunks] == [8, 9]
    assert reasons(record) == {Part.CONTEXT: SkipReason.INCOMPLETE}
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in record.gaps[0].detail


@pytest.mark.parametrize(
    "output",
    [
        "<generator object stream at 0x7f3a>",
        '{"response": "", "writer": "<Thread(Thread-5 (run), started 139842)>"}',
        '{"response": "", "ready": "<threading.Event at 0x7f2f: unset>"}',
    ],
)
def test_name_of_an_object_is_no_answer(output: str) -> None:
    attributes = oi("CHAIN", **{"input.value": QUESTION, "output.value": output})
    assert (
        reasons(the_record(a_span(1, attributes=attributes), retrieval()))[Part.ANSWER]
        is SkipReason.NO_CONTENT
    )


def test_thousands_of_chunks_are_bounded() -> None:
    many = tuple(json.dumps({"id": f"d{number}", "content": f"text {number}"}) for number in range(3_000))
    record = the_record(workflow(), retrieval(**{"gen_ai.retrieval.documents": many}))
    assert len(record.chunks) == 1_000
    assert reasons(record) == {Part.CONTEXT: SkipReason.TRUNCATED}


def test_answer_of_200_kb_is_whole_and_a_larger_one_is_cut() -> None:
    assert (
        the_record(
            workflow(**{"gen_ai.output.messages": messages("assistant", "x" * 200_000)}), retrieval()
        ).gaps
        == ()
    )
    large = the_record(
        workflow(**{"gen_ai.output.messages": messages("assistant", "é" * 200_000)}), retrieval()
    )
    assert large.answer is not None
    assert len(large.answer.encode()) <= 262_144
    assert reasons(large) == {Part.ANSWER: SkipReason.TRUNCATED}


def test_lone_surrogates_and_nul_bytes_are_replaced() -> None:
    dirty = {"gen_ai.output.messages": '[{"role":"assistant","content":"a\\ud800b\\u0000c"}]'}
    assert the_record(workflow(**dirty), retrieval()).answer == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    "deep", ["[" * 100_000, '{"input":' * 50_000, "[" * 100_000 + "]" * 100_000, "{(" * 5_000]
)
def test_deeply_nested_json_is_no_crash(deep: str) -> None:
    attributes = oi(
        "CHAIN", **{"input.value": deep, "output.value": deep, "input.mime_type": "application/json"}
    )
    record = the_record(
        a_span(1, attributes=attributes),
        retrieval(**{"gen_ai.retrieval.documents": deep}),
        chat(text="", **{"gen_ai.output.messages": deep}),
    )
    assert record.gap(Part.QUESTION) is not None


def test_cycles_among_parents_are_no_endless_loop() -> None:
    record = the_record(workflow(1, 3), retrieval(2, 1), chat(3, 2))
    assert record.question == QUESTION


def long_line(spans: int) -> list[Span]:
    return [workflow(), *(chat(n, n - 1, at=(0, n)) for n in range(2, spans))]


def calls(spans: int) -> list[Span]:
    return [workflow(n) for n in range(1, spans)]


@pytest.mark.slow
def test_effort_grows_with_the_spans_and_not_with_their_square() -> None:
    deeper_than_calls_go = long_line, 600, 1
    for shape, spans, records in (deeper_than_calls_go, (calls, 100, 199)):
        few, many = a_trace(*shape(spans)), a_trace(*shape(2 * spans))
        assert len(extract_records(many).records) == records
        effort = lines_run(extract_records, few)
        assert lines_run(extract_records, many) < 2.2 * effort, shape


ATTRIBUTES = [span.attributes for recording in all_recordings() for span in recording.spans]
KEYS = sorted({key for each in ATTRIBUTES for key in each} | {"retrieval.documents.²..document"})
WORDS = sorted({value for each in ATTRIBUTES for value in each.values() if isinstance(value, str)})
FIELDS = ["args", "kwargs", "question", "input", "messages", "role", "content", "documents", "text", "index"]
payloads = st.recursive(
    st.sampled_from(["user", "assistant", "How long?", "", '{"a', "[REDACTED]", "{'a': (1,", "[[]]"])
    | st.none()
    | st.integers(-1, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)
odd_values = st.sampled_from(WORDS) | values | payloads.map(json.dumps)
odd_attributes = st.dictionaries(st.sampled_from(KEYS), odd_values, max_size=6)
odd_events = st.builds(
    SpanEvent,
    name=st.sampled_from(["db.query.result", "gen_ai.choice", "gen_ai.tool.message", "RetrievalEndEvent"]),
    time_ns=st.just(1),
    attributes=odd_attributes,
)
odd_spans = st.builds(
    lambda number, parent, attributes, events: replace(
        a_span(number, parent, attributes=attributes), events=tuple(events)
    ),
    st.integers(1, 4),
    st.integers(0, 4),
    odd_attributes,
    st.lists(odd_events, max_size=2),
)


@pytest.mark.slow
@given(st.lists(odd_spans, max_size=4))
def test_no_trace_makes_extraction_fail(spans: list[Span]) -> None:
    extraction = extract_records(Trace.of(TRACE_ID, spans))
    assert isinstance(extraction, Extraction)
    for record in extraction.records:
        assert len({chunk.id for chunk in record.chunks}) == len(record.chunks)
        covered = {gap.part for gap in record.gaps} | {where.part for where in record.provenance}
        assert {Part.QUESTION, Part.CONTEXT, Part.ANSWER} <= covered
        assert "" not in (record.question, record.answer)
        chosen = {(place.part, place.span_id) for place in record.provenance}
        assert chosen.isdisjoint((place.part, place.span_id) for place in record.passed_over)
