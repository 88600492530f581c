"""A streamed answer is judged if it was read to its end; else its user is told what happened to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import ragtrace
from tests.acceptance.running_application import Seen, seen_of_application

QUESTION = "How long do refunds take?"
PIECES = ("Refunds take ", "14 days.")
READER_WENT_AWAY = "its reader went away before the end"
BROKE_OFF = "broke off with an error"


@ragtrace.retrieval(data_source="faq")
def search(query: str) -> list[str]:
    return ["Refunds take 14 days."]


@ragtrace.generation(model="m")
async def pieces_later(prompt: str) -> AsyncIterator[str]:
    for piece in PIECES:
        await asyncio.sleep(0)
        yield piece


@ragtrace.generation(model="m")
def pieces_that_fail(prompt: str) -> Iterator[str]:
    yield PIECES[0]
    raise ConnectionError("the model's server hung up")


@ragtrace.generation(model="m")
async def pieces_without_end(prompt: str) -> AsyncIterator[str]:
    yield PIECES[0]
    await asyncio.Event().wait()


async def async_generators_all_the_way() -> None:
    @ragtrace.rag
    async def ask(question: str) -> AsyncIterator[str]:
        search(question)
        async for piece in pieces_later(question):
            yield piece

    assert "".join([piece async for piece in ask(QUESTION)]) == "".join(PIECES)


def pieces_that_are_added() -> None:
    with ragtrace.rag(question=QUESTION) as call:
        search(QUESTION)
        with ragtrace.generation(model="m", prompt=QUESTION) as chat:
            for piece in PIECES:
                chat.add_answer(piece)
                call.add_answer(piece)


async def a_reader_that_is_cancelled() -> None:
    @ragtrace.rag
    async def ask(question: str) -> AsyncIterator[str]:
        search(question)
        async for piece in pieces_without_end(question):
            yield piece

    began = asyncio.Event()

    async def read() -> None:
        async for _ in ask(QUESTION):
            began.set()

    task = asyncio.create_task(read())
    await began.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def a_stream_that_fails() -> None:
    @ragtrace.rag
    def ask(question: str) -> Iterator[str]:
        search(question)
        yield from pieces_that_fail(question)

    with pytest.raises(ConnectionError):
        list(ask(QUESTION))


async def seen(folder: Path, application: Callable[[], object]) -> Seen:
    async def instrumented(endpoint: str) -> None:
        assert ragtrace.instrument(service_name="shop", endpoint=endpoint, protocol="grpc")
        if asyncio.iscoroutinefunction(application):
            await application()
        else:
            application()

    return await seen_of_application(folder, instrumented)


COMPLETE = [async_generators_all_the_way, pieces_that_are_added]
BROKEN = [(a_reader_that_is_cancelled, READER_WENT_AWAY), (a_stream_that_fails, BROKE_OFF)]


@pytest.mark.slow
@pytest.mark.parametrize("application", COMPLETE)
async def test_stream_that_was_read_to_its_end_is_judged(
    tmp_path: Path, application: Callable[[], object]
) -> None:
    told = await seen(tmp_path, application)
    report, carriers = await told.backfilled()
    assert (dict(told.outcomes), told.names) == ({"judged": 1}, ["evaluation pass"])
    assert (report["judged"], [each.name for each in carriers]) == (1, ["evaluation pass"])
    assert [record["gaps"] for record in await told.explained()] == [[]]
    assert "judged" in await told.why()


@pytest.mark.slow
@pytest.mark.parametrize(("application", "reason"), BROKEN)
async def test_stream_that_ended_early_is_incomplete_and_says_why(
    tmp_path: Path, application: Callable[[], object], reason: str
) -> None:
    told = await seen(tmp_path, application)
    report, _ = await told.backfilled()
    (record,) = await told.explained()
    assert (dict(told.outcomes), told.names) == ({"ineligible:incomplete": 1}, ["evaluation skipped"])
    assert report["ineligible"] == {"incomplete": 1}
    assert [(gap["part"], gap["reason"]) for gap in record["gaps"]] == [("answer", "incomplete")]
    assert reason in record["gaps"][0]["detail"]
    assert "incomplete" in await told.why()
