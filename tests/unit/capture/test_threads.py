"""What a call does in other threads belongs to it, as long as it lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.trace import get_current_span

import ragtrace
from ragtrace import semconv


@ragtrace.retrieval
def search(query: str) -> list[str]:
    return ["Refunds take 14 days."]


def by_submit(pool: ThreadPoolExecutor) -> None:
    pool.submit(search, "refunds").result()


def by_map(pool: ThreadPoolExecutor) -> None:
    list(pool.map(search, ["refunds"]))


def run_to_its_end(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


def by_thread(pool: ThreadPoolExecutor) -> None:
    run_to_its_end(threading.Thread(target=search, args=("refunds",)))


class Searching(threading.Thread):
    def run(self) -> None:
        search("refunds")


def by_own_thread(pool: ThreadPoolExecutor) -> None:
    run_to_its_end(Searching())


def by_timer(pool: ThreadPoolExecutor) -> None:
    run_to_its_end(threading.Timer(0, search, ["refunds"]))


def by_nested_pools(pool: ThreadPoolExecutor) -> None:
    with ThreadPoolExecutor(1) as inner:
        pool.submit(lambda: inner.submit(search, "refunds").result()).result()


def by_executor(pool: ThreadPoolExecutor) -> None:
    async def run() -> None:
        await asyncio.get_running_loop().run_in_executor(pool, search, "refunds")

    asyncio.run(run())


WAYS = [by_submit, by_map, by_thread, by_own_thread, by_timer, by_nested_pools, by_executor]


@pytest.mark.parametrize("way", WAYS)
def test_a_retrieval_in_a_thread_belongs_to_its_call(
    recorded: Any, way: Callable[[ThreadPoolExecutor], None]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        for question in ("Who?", "What?"):
            with ragtrace.rag(question=question):
                way(pool)
    roots = [span for span in recorded.spans if span.attributes[semconv.RAG_KIND] == "rag"]
    searches = [span for span in recorded.spans if span.attributes[semconv.RAG_KIND] == "retrieval"]
    assert [span.parent for span in searches] == [span.context for span in roots]


@pytest.mark.parametrize("way", WAYS)
def test_the_switch_leaves_threads_alone(
    recording: Callable[..., Any], way: Callable[[ThreadPoolExecutor], None]
) -> None:
    submit, start = ThreadPoolExecutor.submit, threading.Thread.start
    ragtrace.uninstrument()
    recorded = recording(threads=False)
    with ThreadPoolExecutor(1) as pool, ragtrace.rag(question="Who?"):
        way(pool)
    assert recorded.span("retrieval").parent is None
    assert (ThreadPoolExecutor.submit, threading.Thread.start) == (submit, start)


def test_a_worker_that_outlives_the_call_is_no_part_of_it_nor_its_pool(recorded: Any) -> None:
    work = threading.Event()
    tracer = recorded.provider.get_tracer("app")

    def later() -> None:
        search("early")
        work.wait()
        assert ragtrace.current() is None
        assert not get_current_span().get_span_context().is_valid
        search("late")

    with ThreadPoolExecutor(1) as pool:
        with ragtrace.rag(question="Who?"):
            thread = threading.Thread(target=later)
            thread.start()
            pool.submit(search, "pooled").result()
            pool.submit(ragtrace.update, session_id="s1").result()
        pool.submit(search, "outside").result()
        with tracer.start_as_current_span("request") as request:
            pool.submit(search, "of a request").result()
    work.set()
    thread.join()
    root = recorded.span("rag")
    assert root.attributes[semconv.SESSION_ID] == "s1"
    parents = {span.attributes.get(semconv.RETRIEVAL_QUERY): span.parent for span in recorded.spans}
    inside = dict.fromkeys(("early", "pooled"), root.context)
    outside = dict.fromkeys((None, "late", "outside"))
    assert parents == {**inside, **outside, "of a request": request.get_span_context()}
