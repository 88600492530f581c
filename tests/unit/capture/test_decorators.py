"""Decorated functions of every kind record what they take and give, and behave as before."""

from __future__ import annotations

import contextvars
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace import semconv


def test_question_is_the_parameter_of_that_name_and_answer_the_return_value(recorded: Any) -> None:
    class Desk:
        @ragtrace.rag(answer=lambda result: result[0])
        def ask(self, tenant: str, *, question: str = "?") -> tuple[str, int]:
            """Answer."""
            return question.upper(), 1

    assert Desk().ask("t", question="who?") == ("WHO?", 1)
    assert (recorded.question, recorded.answer) == ("who?", "WHO?")
    assert (Desk.ask.__name__, Desk.ask.__doc__) == ("ask", "Answer.")


def test_retrieval_takes_chunks_from_what_is_returned_or_yielded(recording: Any) -> None:
    @ragtrace.retrieval(data_source="kb", chunks=lambda result: result["documents"])
    def search(query: str) -> dict[str, list[str]]:
        return {"documents": ["a", "b"]}

    @ragtrace.retrieval
    def found(query: str) -> Iterator[str]:
        yield from ("a", "b")

    for search_all in (search, lambda query: list(found(query))):
        recorded = recording()
        search_all("Who?")
        assert [chunk["content"] for chunk in recorded.chunks] == ["a", "b"]
        assert recorded.span("retrieval").attributes[semconv.RETRIEVAL_QUERY] == "Who?"


@ragtrace.rag
def stream(question: str) -> Iterator[str]:
    yield "A"
    with ragtrace.retrieval(query=question):
        yield "d"
    yield "a"


@ragtrace.rag
async def async_stream(question: str) -> AsyncIterator[str]:
    yield "A"
    with ragtrace.retrieval(query=question):
        yield "d"
    yield "a"


async def everything(stream: Any) -> list[Any]:
    return [piece async for piece in stream] if hasattr(stream, "__aiter__") else list(stream)


both = pytest.mark.parametrize("streaming", [stream, async_stream])


@both
async def test_a_streamed_answer_is_complete_when_the_stream_ends(recorded: Any, streaming: Any) -> None:
    assert inspect.isgeneratorfunction(streaming) or inspect.isasyncgenfunction(streaming)
    assert await everything(streaming("Who?")) == ["A", "d", "a"]
    assert (recorded.question, recorded.answer) == ("Who?", "Ada")
    assert recorded.span("rag").attributes[semconv.RAG_STREAM_COMPLETE] is True
    assert recorded.span("retrieval").parent == recorded.span("rag").context


@pytest.mark.parametrize("decorator", [ragtrace.rag, ragtrace.generation])
async def test_a_piece_is_passed_on_before_the_next_is_made(recorded: Any, decorator: Any) -> None:
    made: list[str] = []

    @decorator
    def answer(question: str) -> Iterator[str]:
        for piece in ("Two ", "years."):
            made.append(piece)
            yield piece

    @decorator
    async def answer_later(question: str) -> AsyncIterator[str]:
        for piece in answer(question):
            yield piece

    reading = answer_later("How long?")
    assert not made
    assert await anext(reading) == "Two "
    assert made == ["Two "]
    assert await everything(reading) == ["years."]


async def test_the_readers_spans_are_not_the_streams_children(recorded: Any) -> None:
    tracer = recorded.provider.get_tracer("app")
    for piece in stream("Who?"):
        tracer.start_span(f"read {piece}").end()
    async for piece in async_stream("Who?"):
        tracer.start_span(f"read {piece}").end()
    readers = [span for span in recorded.spans if span.name.startswith("read")]
    assert [span.parent for span in readers] == [None] * 6


def test_a_stream_read_in_changing_contexts_leaves_nothing_behind(
    recorded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reading = stream("Who?")
    # Web frameworks run every step of a generator in a copy of the request's context.
    while contextvars.copy_context().run(next, reading, None) is not None:
        pass
    assert recorded.answer == "Ada"
    assert recorded.span("retrieval").parent == recorded.span("rag").context
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    recorded.provider.get_tracer("app").start_span("after").end()
    assert recorded.spans[-1].parent is None


async def test_what_a_reader_sends_and_throws_reaches_the_function(recorded: Any) -> None:
    @ragtrace.rag
    def ask(question: str) -> Iterator[str]:
        got = yield "A"
        try:
            yield got
        except LookupError:
            yield "caught"
        return "done"

    @ragtrace.rag
    async def ask_later(question: str) -> AsyncIterator[str]:
        got = yield "A"
        try:
            yield got
        except LookupError:
            yield "caught"

    reading: Any = ask("Who?")
    assert [next(reading), reading.send("sent"), reading.throw(LookupError())] == ["A", "sent", "caught"]
    with pytest.raises(StopIteration) as stop:
        next(reading)
    assert stop.value.value == "done"
    assert recorded.answer == "Asentcaught"
    reading = ask_later("Who?")
    assert [await anext(reading), await reading.asend("sent")] == ["A", "sent"]
    assert await reading.athrow(LookupError()) == "caught"
    assert await everything(reading) == []


async def test_a_function_that_returns_a_generator_or_coroutine_ends_with_it(recording: Any) -> None:
    async def later() -> AsyncIterator[str]:
        for letter in "Ada":
            yield letter

    async def answer() -> str:
        return "Ada"

    for make in (lambda: iter(letter for letter in "Ada"), later, answer):
        recorded = recording()
        result: Any = ragtrace.rag(lambda question, make=make: make())("Who?")
        assert "".join(await result if inspect.isawaitable(result) else await everything(result)) == "Ada"
        assert recorded.answer == "Ada"


def test_a_stream_left_open_ends_its_span_in_whatever_thread_it_is_collected(recorded: Any) -> None:
    reading = [stream("Who?")]
    assert next(reading[0]) == "A"
    collector = threading.Thread(target=reading.clear)
    collector.start()
    collector.join()
    assert recorded.span("rag").attributes[semconv.RAG_STREAM_COMPLETE] is False
    recorded.provider.get_tracer("app").start_span("after").end()
    assert recorded.spans[-1].parent is None


async def test_without_instrument_decorated_functions_only_do_their_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    assert list(stream("Who?")) == ["A", "d", "a"]
    assert [piece async for piece in async_stream("Who?")] == ["A", "d", "a"]
    assert ragtrace.rag(len)("Who?") == 4
    assert caplog.records == []
