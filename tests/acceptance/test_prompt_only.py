"""An LLM call alone is judged if its prompt holds the passages, whoever traced it, live and later alike."""

from __future__ import annotations

from pathlib import Path

import pytest

import ragtrace
from ragtrace import semconv
from ragtrace.model import RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Span, Trace
from tests.acceptance.running_application import Seen, seen_of_application, seen_of_spans
from tests.unit.traces.recordings import Recording, all_recordings

QUESTION = "How long do refunds take?"
PASSAGE = "Refunds take 14 days."
PROMPT = f"<context>{PASSAGE}</context>\n\n{QUESTION}"
UNMARKED = f"{PASSAGE}\n\n{QUESTION}"
TRACED = (
    "otel-genai.openai-chat",
    "otel-genai.openai-responses",
    "otel-genai.openai-streaming",
    "otel-genai.anthropic",
    "openai-v2.openai-chat",
    "openinference.openai-chat",
    "openinference.openai-choices",
    "openinference.anthropic",
    "openllmetry.openai-chat",
    "openllmetry.openai-streaming",
    "logfire.openai-chat",
)
TALKS = tuple(each.name for each in all_recordings() if each.name.endswith("-talk"))


def recording(name: str) -> Recording:
    (found,) = (each for each in all_recordings() if each.name == name)
    return found


def only_record(spans: tuple[Span, ...]) -> RagRecord:
    (record,) = extract_records(Trace.of(spans[0].trace_id, spans)).records
    return record


async def generate(folder: Path, prompt: str, answer: str = PASSAGE, **changes: object) -> Seen:
    """Be an application that marks nothing but its call of the model."""

    def application(endpoint: str) -> None:
        assert ragtrace.instrument(service_name="shop", endpoint=endpoint, protocol="grpc")
        with ragtrace.generation(model="m", prompt=prompt) as chat:
            chat.set_answer(answer)

    return await seen_of_application(folder, application, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACED)
async def test_chat_whose_prompt_holds_passages_is_judged_live_and_later_alike(
    tmp_path: Path, name: str
) -> None:
    traced = recording(name)
    told = await seen_of_spans(tmp_path, *traced.spans)
    report, (later,) = await told.backfilled()
    (explained,) = await told.explained()
    (live,) = told.carriers
    assert (dict(told.outcomes), live.name) == ({"judged": 1}, "evaluation pass")
    assert (report["judged"], later.name) == (1, "evaluation pass")
    for carrier in (live, later):
        assert carrier.attributes[semconv.CONTEXT_SOURCE] == "prompt"
        assert carrier.attributes[semconv.CONTEXT_COUNT] == len(traced.chunks)
    assert live.attributes[semconv.EVAL_INPUT_SHA256] == later.attributes[semconv.EVAL_INPUT_SHA256]
    assert [each["text"] for each in explained["contexts"]] == [each["text"] for each in traced.chunks]
    assert [each["id"] for each in explained["contexts"]] == [
        chunk.id for chunk in only_record(traced.spans).chunks
    ]
    assert explained["question"] == traced.question


@pytest.mark.slow
@pytest.mark.parametrize("name", TALKS)
async def test_conversation_is_not_judged_and_its_user_hears_of_the_switch(tmp_path: Path, name: str) -> None:
    told = await seen_of_spans(tmp_path, *recording(name).spans)
    report, carriers = await told.backfilled()
    (explained,) = await told.explained()
    assert (dict(told.outcomes), told.carriers) == ({"ineligible:no_retrieval": 1}, [])
    assert (report["ineligible"], carriers) == ({"no_retrieval": 1}, ())
    (gap,) = explained["gaps"]
    assert "`extract.context: prompt`" in gap["detail"]
    assert "`--set extract.context=prompt`" in gap["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "verdict"), [(PASSAGE, "evaluation pass"), ("Refunds take 30 days.", "evaluation fail")]
)
async def test_generation_without_a_retrieval_is_judged_by_its_prompt(
    tmp_path: Path, answer: str, verdict: str
) -> None:
    told = await generate(tmp_path, PROMPT, answer)
    assert (dict(told.outcomes), told.names) == ({"judged": 1}, [verdict])
    assert told.carriers[0].attributes[semconv.CONTEXT_SOURCE] == "prompt"
    assert "judged" in await told.why()


@pytest.mark.slow
async def test_passages_that_nothing_sets_off_are_judged_where_the_configuration_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "auto").mkdir()
    auto = await generate(tmp_path / "auto", UNMARKED)
    prompt = await generate(tmp_path, UNMARKED, extract={"context": "prompt"})
    assert (dict(auto.outcomes), auto.names) == ({"ineligible:no_retrieval": 1}, [])
    assert (dict(prompt.outcomes), prompt.names) == ({"judged": 1}, ["evaluation pass"])


@pytest.mark.slow
async def test_back_fill_and_explain_take_the_same_switch(tmp_path: Path) -> None:
    told = await generate(tmp_path, UNMARKED)
    report, (carrier,) = await told.backfilled("--set", "extract.context=prompt")
    (record,) = await told.explained("--set", "extract.context=prompt")
    assert (report["judged"], carrier.name) == (1, "evaluation pass")
    assert carrier.attributes[semconv.CONTEXT_SOURCE] == "prompt"
    assert ([each["text"] for each in record["contexts"]], record["question"]) == ([PASSAGE], QUESTION)


@pytest.mark.slow
async def test_a_key_that_is_set_says_where_context_is_from(tmp_path: Path) -> None:
    told = await generate(tmp_path, PROMPT, extract={"context": "spans"})
    of_spans, _ = await told.backfilled("--set", "extract.context=spans")
    of_default, _ = await told.backfilled()
    assert dict(told.outcomes) == {"ineligible:no_retrieval": 1}
    assert (of_spans["judged"], of_spans["ineligible"]) == (0, {"no_retrieval": 1})
    assert of_default["judged"] == 1


@pytest.mark.slow
async def test_held_answer_span_says_that_its_prompt_was_the_context(tmp_path: Path) -> None:
    told = await generate(tmp_path, PROMPT, attach={"mode": "hold", "hold_timeout": "10s"})
    (span,) = told.spans
    assert dict(told.outcomes) == {"judged": 1}
    assert span.attributes[semconv.CONTEXT_SOURCE] == "prompt"
    assert span.attributes[semconv.PASS] is True


@pytest.mark.slow
async def test_chat_inside_a_call_with_a_retrieval_is_counted_once(tmp_path: Path) -> None:
    def application(endpoint: str) -> None:
        assert ragtrace.instrument(service_name="shop", endpoint=endpoint, protocol="grpc")
        with ragtrace.rag(question=QUESTION) as call:
            with ragtrace.retrieval(query=QUESTION) as retrieval:
                retrieval.set_chunks([PASSAGE])
            with ragtrace.generation(model="m", prompt=PROMPT) as chat:
                chat.set_answer(PASSAGE)
            call.answer = PASSAGE

    told = await seen_of_application(tmp_path, application)
    assert (dict(told.outcomes), told.names) == ({"judged": 1}, ["evaluation pass"])
    assert semconv.CONTEXT_SOURCE not in told.carriers[0].attributes
