"""The page over a place without a collector: a search fills its index, goes on, and says what it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from ragtrace.answers.index import OwnIndex, open_index
from ragtrace.answers.port import AnswerFilter
from ragtrace.process import SystemClock
from ragtrace_collector.ui.serving import AnswerSearch, open_searched_place
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace


async def judge(folder: Path, number: int) -> list[str]:
    """Judge an answer; return the lines that it adds to the export."""
    await asyncio.to_thread(folder.mkdir)
    out = folder / "out.jsonl"
    config = config_of(folder, export=[{"endpoint": f"otlp-file:{out}", "forward": True}])
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(number)))
        await until(lambda: out.exists() and b"ragtrace.schema" in out.read_bytes())
    return out.read_text("utf-8").splitlines(keepends=True)


def search_of(address: str) -> AnswerSearch:
    return AnswerSearch(address=address, since_ns=0, clock=SystemClock(), pause_s=0.01)


@asynccontextmanager
async def searching(search: AnswerSearch) -> AsyncIterator[OwnIndex]:
    async with aclosing(open_index()) as index:
        task = asyncio.create_task(search.run(index))
        try:
            yield index
        finally:
            task.cancel()
            await asyncio.wait([task])


async def found(index: OwnIndex, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len((await index.page(AnswerFilter())).answers) != count:  # noqa: ASYNC110 -- another task's work
            await asyncio.sleep(0.01)


async def test_answers_that_come_later_are_found_too(tmp_path: Path) -> None:
    first, second = await judge(tmp_path / "0", 0), await judge(tmp_path / "1", 1)
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(first), "utf-8")
    search = search_of(f"otlp-file:{file}")
    assert "under way" in search.notices()[0]
    async with searching(search) as index:
        await found(index, 1)
        with file.open("a", encoding="utf-8") as more:
            more.writelines(second)
        await found(index, 2)
        assert search.notices() == ()


async def test_a_place_that_cannot_be_read_is_told_and_tried_again(tmp_path: Path) -> None:
    lines = await judge(tmp_path / "0", 0)
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(lines), "utf-8")
    search = search_of(f"otlp-file:{file}")
    file.unlink()
    async with searching(search) as index:
        await until(lambda: "The search stopped" in " ".join(search.notices()))
        assert "tried again" in search.notices()[0]
        file.write_text("".join(lines), "utf-8")
        await found(index, 1)
        await until(lambda: search.notices() == ())


async def test_the_search_ends_with_the_page(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(await judge(tmp_path / "0", 0)), "utf-8")
    async with open_searched_place(search_of(f"otlp-file:{file}")) as place:
        async with asyncio.timeout(PATIENCE_S):
            while not (page := await place.index.page(AnswerFilter())).answers:  # noqa: ASYNC110 -- a task's work
                await asyncio.sleep(0.01)
        opened = await place.source.open(page.answers[0].key)
        assert opened.versions
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "search"]
