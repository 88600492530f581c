"""The context of an LLM call alone: passages of its prompt that are set off, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.model import Part, RagRecord, SkipReason
from ragtrace.traces.extract import ContextFrom, ExtractRules, extract_records
from ragtrace.traces.trace import Span
from tests.docs.prompt_shapes import QUESTION, RETURNS, SHAPES, WARRANTY, Shape
from tests.unit.traces.builders import a_span, a_trace, lines_run, reasons

ANSWER = "The warranty lasts 24 months."
SYSTEM = "You are the assistant of a shop for lamps. Be polite."
LIBERAL = ExtractRules(context=ContextFrom.PROMPT)
SPANS_ONLY = ExtractRules(context=ContextFrom.SPANS)


def chat(
    messages: Sequence[Mapping[str, Any]],
    number: int = 1,
    parent: int | None = None,
    *,
    at: tuple[int, int] = (0, 1_000),
    answer: str = ANSWER,
    **attributes: Any,
) -> Span:
    asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(messages)}
    answered = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "content": answer}])}
    return a_span(number, parent, at=at, attributes={**asked, **answered, **attributes})


WORKFLOW = {"gen_ai.operation.name": "invoke_workflow", "ragtrace.kind": "rag"}


def said(*turns: str | tuple[str, str]) -> list[dict[str, str]]:
    """Write messages: a text is the user's."""
    named = (("user", turn) if isinstance(turn, str) else turn for turn in turns)
    return [{"role": role, "content": text} for role, text in named]


def read(messages: Sequence[Mapping[str, Any]], rules: ExtractRules | None = None, *more: Span) -> RagRecord:
    (record,) = extract_records(a_trace(chat(messages), *more), rules or ExtractRules()).records
    return record


def texts(record: RagRecord) -> list[str | None]:
    return [chunk.text for chunk in record.chunks]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_passages_of_a_shape_are_told_from_question_and_instructions(shape: Shape) -> None:
    record = read(shape.messages)
    assert record.gaps == ()
    assert (texts(record), record.question) == (list(shape.passages), QUESTION)
    assert record.context_from_prompt
    (provenance,) = (each for each in record.provenance if each.part is Part.CONTEXT)
    assert provenance.attribute == "gen_ai.input.messages"
    assert "so its prompt is the context" in provenance.why
    liberal = read(shape.messages, LIBERAL)
    assert set(shape.passages) <= set(texts(liberal))
    assert liberal.question == QUESTION
    assert not any(QUESTION in (chunk.text or "") for chunk in liberal.chunks)
    alone = read(shape.messages, SPANS_ONLY)
    assert (reasons(alone), alone.context_from_prompt) == ({Part.CONTEXT: SkipReason.NO_RETRIEVAL}, False)


PLAIN = (  # a system prompt, if any, and what the user says
    (
        "# Role\nYou help customers.\n\n# Rules\n- Be short.\n- Cite your sources.\n\n# Tone\nFriendly.",
        QUESTION,
    ),
    ("<role>You help.</role>\n<rules>\n- Be short.\n</rules>\n<output_format>JSON</output_format>", QUESTION),
    ("Follow these rules:\n1. Be short.\n2. Never invent prices.", QUESTION),
    ("You answer questions about our documents. Cite sources.\n\nNever talk about prices.", QUESTION),
    (f"{SYSTEM}\n\nContext: the user is Bob, on the page of bills.", QUESTION),
    (f"{SYSTEM}\n\nSources: always cite them as [1], [2] and so on.", QUESTION),
    ("The user may send text in <context></context> tags.", QUESTION),
    ("", "What is wrong here?\n\n```python\nfor i in range(3)\n    print(i)\n```"),
    ("", "Why does it fail?\n\n[INFO] started the job\n[ERROR] could not open the file"),
    ("", "Write a poem about:\n1. a lamp that is lit\n2. a warranty that ends"),
    ("", "Use the list below and plan my day:\n\n- [ ] buy some milk\n- [x] call the bank"),
    ("", 'Make YAML of this: [{"name": "lamp", "price": 12}, {"name": "bulb", "price": 2}]'),
    ("", f"<examples><example><document>{WARRANTY}</document></example></examples>\n\n{QUESTION}"),
    ("", "Why is it not shown?\n<article><p>A lamp with a warranty.</p></article>"),
    ("", "Why does it not render?\n<Document><Page size='A4'>Hello lamp world</Page></Document>"),
    ("", "Section 1: The parties agree to sell lamps.\nSection 2: The price is 12 euros.\n\nIs that fair?"),
    ("", "Documents:\n- my passport\n- my visa\n- two photos\n\nDo I need anything else?"),
    ("", "Use the following information for a letter:\n\nBob moved to Paris in May.\n\nIs it polite?"),
)


def test_plain_chat_is_not_judged_and_the_message_names_the_switch() -> None:
    for system, user in PLAIN:
        record = read(said(*([("system", system)] if system else []), user))
        assert reasons(record) == {Part.CONTEXT: SkipReason.NO_RETRIEVAL}, user
        assert (record.chunks, record.context_from_prompt) == ((), False), user
        assert "`extract.context: prompt`" in record.gaps[0].detail
        assert "`--set extract.context=prompt`" in record.gaps[0].detail


TOOL_CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather"}}],
}
TOOL_RESULT = {"role": "tool", "tool_call_id": "c", "content": "It rains in Paris."}
FRAMED = f"Answer from the context.\n\n<context>{WARRANTY}</context>\n\n{QUESTION}"


def test_turn_of_an_agent_is_not_judged_by_its_prompt() -> None:
    record = read([*said(FRAMED), TOOL_CALL, TOOL_RESULT])
    assert reasons(record) == {Part.CONTEXT: SkipReason.NO_RETRIEVAL}


def test_call_that_ran_a_tool_is_not_judged_by_its_prompt() -> None:
    tool = a_span(2, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"})
    (record,) = extract_records(a_trace(a_span(9), chat(said(FRAMED)), tool)).records
    assert reasons(record) == {Part.CONTEXT: SkipReason.NO_RETRIEVAL}


def test_retrieval_that_found_nothing_stays_empty() -> None:
    empty = a_span(2, 1, attributes={"ragtrace.kind": "retrieval", "ragtrace.retrieval.documents": ()})
    for rules in (ExtractRules(), LIBERAL):
        record = read(said(FRAMED), rules, empty)
        assert reasons(record) == {Part.CONTEXT: SkipReason.EMPTY_RETRIEVAL}


def test_retrieval_comes_before_the_prompt() -> None:
    found = a_span(
        2,
        1,
        attributes={"ragtrace.kind": "retrieval", "ragtrace.retrieval.documents": ('{"content": "Found."}',)},
    )
    record = read(said(FRAMED), LIBERAL, found)
    assert (texts(record), record.context_from_prompt) == (["Found."], False)


def test_question_of_the_call_around_the_model_is_not_in_the_context() -> None:
    root = chat(said(QUESTION), 9, **WORKFLOW)
    inner = chat(said(f"{WARRANTY} {RETURNS} {QUESTION}"), 1, 9)
    (record,) = extract_records(a_trace(root, inner), LIBERAL).records
    assert (texts(record), record.question) == ([f"{WARRANTY} {RETURNS}"], QUESTION)


def test_prompt_takes_unmarked_material_and_leaves_question_and_instructions_out() -> None:
    record = read(said(("system", f"{SYSTEM}\n\n{WARRANTY}"), f"{RETURNS}\n\n{QUESTION}"), LIBERAL)
    assert (texts(record), record.question) == ([WARRANTY, RETURNS], QUESTION)


def test_prompt_that_holds_nothing_but_a_question_says_so() -> None:
    record = read(said(("system", SYSTEM), QUESTION), LIBERAL)
    assert reasons(record) == {Part.CONTEXT: SkipReason.NO_RETRIEVAL}
    assert "holds nothing beside the question and instructions" in record.gaps[0].detail


def test_prompt_that_the_policy_cut_is_not_judged() -> None:
    cut = chat(said(FRAMED), **{"ragtrace.kind": "generation", "ragtrace.content.truncated": ("messages",)})
    (record,) = extract_records(a_trace(cut)).records
    assert reasons(record) == {Part.CONTEXT: SkipReason.TRUNCATED}


HUGE: Mapping[str, Callable[[int], str]] = {
    "lines": lambda n: "Context:\n" + "a b c\n" * n + f"\nQuestion: {QUESTION}",
    "tags": lambda n: "<context>" * n + "x" + "</context>" * n,
    "tags that do not end": lambda n: "<document>" * n,
    "brackets": lambda n: "Use these passages.\n" + "[1] a b c d\n" * n,
    "verbs": lambda n: "use from answer given " * n,
    "questions": lambda n: "Context: x\n\n" + "why?\n\n" * n,
    "fences": lambda n: "Context:\n" + "```\n" * n,
}


@pytest.mark.slow
def test_work_grows_with_the_prompt_and_not_with_its_square() -> None:
    for name, text in HUGE.items():
        effort = lines_run(read, said(text(200)), LIBERAL)
        assert lines_run(read, said(text(800)), LIBERAL) <= 5 * effort, name


@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text(max_size=200)), max_size=5)
)
def test_any_prompt_gives_one_record_and_no_exception(turns: list[tuple[str, str]]) -> None:
    for rules in (ExtractRules(), LIBERAL):
        (record,) = extract_records(a_trace(chat(said(*turns))), rules).records
        assert record == extract_records(a_trace(chat(said(*turns))), rules).records[0]
        assert record.question is None or record.question not in texts(record)
