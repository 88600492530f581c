"""An LLM call alone is judged if its prompt holds the passages, whoever traced it, live and later alike."""

from __future__ import annotations

from pathlib import Path

import pytest

import ragtrace
from ragtrace import semconv
from tests.acceptance.running_application import Seen, seen_of_application, seen_of_spans
from tests.unit.traces.recordings import all_recordings

QUESTION = "How long do refunds take?"
PASSAGE = "Refunds take 14 days."
PROMPT = f"<context>{PASSAGE}</context>\n\n{QUESTION}"
UNMARKED = f"{PASSAGE}\n\n{QUESTION}"
TALK = next(each for each in all_recordings() if each.name.endswith("-talk"))


async def generate(folder: Path, prompt: str, answer: str = PASSAGE, **changes: object) -> Seen:
    """Be an application that marks nothing but its call of the model."""

    def application(endpoint: str) -> None:
        assert ragtrace.instrument(service_name="shop", endpoint=endpoint, protocol="grpc")
        with ragtrace.generation(model="m", prompt=prompt) as chat:
            chat.set_answer(answer)

    return await seen_of_application(folder, application, **changes)


@pytest.mark.slow
async def test_conversation_is_not_judged_and_its_user_hears_of_the_switch(tmp_path: Path) -> None:
    told = await seen_of_spans(tmp_path, *TALK.spans)
    report, carriers = await told.backfilled()
    (explained,) = await told.explained()
    assert (dict(told.outcomes), told.carriers) == ({"ineligible:no_retrieval": 1}, [])
    assert (report["ineligible"], carriers) == ({"no_retrieval": 1}, ())
    (gap,) = explained["gaps"]
    assert "`extract.context: prompt`" in gap["detail"]
    assert "`--set extract.context=prompt`" in gap["detail"]


@pytest.mark.slow
async def test_generation_without_a_retrieval_is_judged_by_its_prompt(tmp_path: Path) -> None:
    told = await generate(tmp_path, PROMPT, "Refunds take 30 days.")
    assert (dict(told.outcomes), told.names) == ({"judged": 1}, ["evaluation fail"])
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
    report, (carrier,) = await auto.backfilled("--set", "extract.context=prompt")
    (record,) = await auto.explained("--set", "extract.context=prompt")
    assert (report["judged"], carrier.attributes[semconv.CONTEXT_SOURCE]) == (1, "prompt")
    assert ([each["text"] for each in record["contexts"]], record["question"]) == ([PASSAGE], QUESTION)


@pytest.mark.slow
async def test_a_key_that_is_set_says_where_context_is_from(tmp_path: Path) -> None:
    told = await generate(tmp_path, PROMPT, extract={"context": "spans"})
    of_spans, _ = await told.backfilled("--set", "extract.context=spans")
    of_default, _ = await told.backfilled()
    assert dict(told.outcomes) == {"ineligible:no_retrieval": 1}
    assert (of_spans["judged"], of_spans["ineligible"]) == (0, {"no_retrieval": 1})
    assert of_default["judged"] == 1
