"""Who asked, in which session, with which prompt: told in a decorator, or anywhere below the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace import semconv

FACTS = {
    semconv.SESSION_ID: "c9",
    semconv.CONVERSATION_ID: "c9",
    semconv.USER_ID: "ada",
    semconv.PROMPT_VERSION: "v3",
    semconv.TAGS: ("beta", "web"),
    semconv.RAG_METADATA_PREFIX + "tenant": "acme",
}


def facts_of(recorded: Any) -> dict[str, Any]:
    attributes = recorded.span("rag").attributes
    return {key: attributes[key] for key in FACTS if key in attributes}


def test_a_decorator_takes_facts_from_parameters_functions_and_itself(recorded: Any) -> None:
    @ragtrace.rag(
        session_id="thread",
        conversation_id=lambda question, thread, request: thread,
        user_id=lambda question, thread, request: request["user"],
        prompt_version="v3",
        tags=lambda *_, **__: ["beta", "web"],
        metadata=lambda question, thread, request: {"tenant": request["tenant"]},
    )
    def ask(question: str, thread: str, request: dict[str, str]) -> str:
        return "Ada"

    ask("Who?", "c9", request={"user": "ada", "tenant": "acme"})
    assert facts_of(recorded) == FACTS
    assert recorded.question == "Who?"


def test_facts_are_told_anywhere_below_the_call(recorded: Any) -> None:
    @ragtrace.retrieval
    def search(query: str) -> list[str]:
        ragtrace.update(session_id="c9", user_id="ada", tags=["beta"], metadata={"tenant": "acme"})
        return []

    @ragtrace.rag
    def ask(question: str) -> Iterator[str]:
        ragtrace.update(conversation_id="c9", prompt_version="v3", metadata={"lang": "en"})
        search(question)
        yield "Ada"
        ragtrace.update(tags="web", reference="Ada Lovelace")
        ragtrace.current().set_question("Who wrote it?")

    assert list(ask("Who?")) == ["Ada"]
    attributes = recorded.span("rag").attributes
    assert facts_of(recorded) == FACTS
    assert attributes[semconv.RAG_METADATA_PREFIX + "lang"] == "en"
    assert attributes[semconv.REFERENCE_ANSWER] == "Ada Lovelace"
    assert recorded.question == "Who wrote it?"
    assert semconv.SESSION_ID not in recorded.span("retrieval").attributes


@pytest.mark.parametrize("wanted", ["sesion", "session"])
def test_an_id_is_never_the_text_of_its_setting(
    recorded: Any, caplog: pytest.LogCaptureFixture, wanted: str
) -> None:
    @ragtrace.rag(session_id=wanted)
    def ask(question: str, session: str) -> str:
        return "Ada"

    ask("Who?", "s1")
    assert recorded.span("rag").attributes.get(semconv.SESSION_ID) == ("s1" if wanted == "session" else None)
    warned = [message for message in caplog.messages if "has no parameter" in message]
    assert len(warned) == (wanted == "sesion")


def test_a_hook_that_fails_costs_its_fact_only(recorded: Any) -> None:
    @ragtrace.rag(session_id=lambda question: 1 // 0, user_id=lambda question: "ada")
    def ask(question: str) -> str:
        return "Ada"

    assert ask("Who?") == "Ada"
    assert facts_of(recorded) == {semconv.USER_ID: "ada"}


@pytest.mark.parametrize(
    "tell",
    [lambda: ragtrace.update(sesion_id="s"), lambda: ragtrace.rag(sesion_id="s")],
    ids=["update", "rag"],
)
def test_a_fact_of_an_unknown_name_is_refused_with_the_known_ones(tell: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="no 'sesion_id': there are session_id, conversation_id"):
        tell()


@pytest.mark.parametrize("helper", [ragtrace.rag, ragtrace.retrieval, ragtrace.generation])
@pytest.mark.parametrize("as_call", [True, False], ids=["call", "span"])
def test_a_parent_is_a_call_or_any_span(recorded: Any, helper: Any, as_call: bool) -> None:
    tracer = recorded.provider.get_tracer("app")
    request = tracer.start_span("request")
    call = ragtrace.rag("Who?", parent=request)
    call.start()
    with helper(parent=call if as_call else request):
        pass
    call.finish()
    request.end()
    inner = next(span for span in recorded.spans if span.name.startswith(("invoke", "retrieval", "chat")))
    assert inner.parent == (call.span if as_call else request).get_span_context()
    assert recorded.spans[-1].name == "request"
    assert recorded.spans[-2].parent == request.get_span_context()
