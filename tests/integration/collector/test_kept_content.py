"""What the page shows of an answer whose spans are gone: its content, as long as its row."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.integration.collector.test_index import SECRET
from tests.integration.collector.test_ui_service import judged, page_of
from tests.rag_spans import rag_trace

QUESTION, CHUNK = "How long do refunds take?", "Refunds take 14 days."


def config(folder: Path, **changes: Any) -> CollectorConfig:
    """Return a configuration that deletes spans as soon as their answers are judged."""
    quick = {"quiet_period": "50ms", "deadline": "2s", "linger": "0s"}
    return config_of(folder, assemble=quick, ui={"listen": "127.0.0.1:0"}, **changes)


def answered(number: int) -> bytes:
    """Return the spans of an answer that was given now."""
    return request_of(*rag_trace(number, start_ns=time_ns()))


async def forget_spans(collector: Collector) -> None:
    await collector.pipeline._expire()
    assert [trace async for trace in collector.pipeline.store.content.traces()] == []


@pytest.mark.parametrize("keys", [[], [SECRET]], ids=["plain", "encrypted"])
async def test_the_page_shows_an_answer_as_long_as_its_row(tmp_path: Path, keys: list[str]) -> None:
    store = {"path": str(tmp_path / "store.db"), "encryption_keys": keys}
    async with running_collector(config(tmp_path, store=store)) as collector, page_of(collector) as page:
        await post(collector, answered(0))
        (path,) = await judged(page)
        await forget_spans(collector)
        assert QUESTION in (await page.get("/answers")).text
    async with running_collector(config(tmp_path, store=store)) as collector, page_of(collector) as page:
        opened = await page.get(path)
        assert opened.status_code == 200
        assert QUESTION in opened.text
        assert opened.text.count(CHUNK) >= 3  # the answer, its claim, and the chunk
    assert (QUESTION in stored(tmp_path)) is not bool(keys)


async def test_content_is_deleted_with_its_row(tmp_path: Path) -> None:
    started = config(tmp_path, index={"max_age": "1s"})
    async with running_collector(started) as collector, page_of(collector) as page:
        await post(collector, request_of(*rag_trace(0)))  # of long ago
        (path,) = await judged(page)
        await forget_spans(collector)
        assert (await page.get(path)).status_code == 404
    assert QUESTION not in stored(tmp_path)


def stored(folder: Path) -> str:
    """Return the bytes of the store's file."""
    return b"".join(file.read_bytes() for file in folder.glob("store.db*")).decode("latin-1")


async def test_a_switch_keeps_no_content_and_the_page_says_what_to_set(tmp_path: Path) -> None:
    async with (
        running_collector(config(tmp_path, index={"content": False})) as collector,
        page_of(collector) as page,
    ):
        await post(collector, answered(0))
        (path,) = await judged(page)
        await forget_spans(collector)
        gone = await page.get(path)
        assert gone.status_code == 410
        assert "ui.traces" in gone.text
        assert QUESTION not in (await page.get("/answers")).text


async def test_the_switch_also_deletes_what_is_kept(tmp_path: Path) -> None:
    async with running_collector(config(tmp_path)) as collector, page_of(collector) as page:
        await post(collector, answered(0))
        (path,) = await judged(page)
        await collector.reload(config(tmp_path, index={"content": False}))
        await forget_spans(collector)
        assert (await page.get(path)).status_code == 410
        assert QUESTION not in (await page.get("/answers")).text


async def test_oldest_content_goes_first_when_the_store_is_full_and_its_row_says_so(tmp_path: Path) -> None:
    store = {"path": str(tmp_path / "store.db"), "max_bytes": "4MiB"}
    async with running_collector(config(tmp_path, store=store)) as collector, page_of(collector) as page:
        noise = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(60_000))
        for number in range(40):
            long = (CHUNK, noise[number * 1_000 :] + noise[: number * 1_000])
            await post(collector, request_of(*rag_trace(number, chunks=long, start_ns=time_ns())))
            paths = await judged(page, number + 1)
            await forget_spans(collector)
        first, last = await page.get(paths[0]), await page.get(paths[-1])
    assert (first.status_code, last.status_code) == (410, 200)
    assert "store.max_bytes" in first.text
    assert CHUNK in last.text


async def test_lists_and_exports_have_question_and_pipeline(tmp_path: Path) -> None:
    async with running_collector(config(tmp_path)) as collector, page_of(collector) as page:
        await post(collector, answered(0))
        await judged(page)
        for url in ("/answers", "/"):
            text = (await page.get(url)).text
            assert QUESTION in text, url
            assert "invoke_workflow ask" in text, url
        line = json.loads((await page.get("/answers.jsonl")).text)
        (row,) = csv.DictReader(io.StringIO((await page.get("/answers.csv")).text.removeprefix("\ufeff")))
        for told in (line, row):
            assert (told["question"], told["pipeline"]) == (QUESTION, "invoke_workflow ask")


async def test_sessions_are_conversations_to_read_by_default(tmp_path: Path) -> None:
    asked = ("How long do refunds take?", "And who pays for the parcel?")
    async with running_collector(config(tmp_path)) as collector, page_of(collector) as page:
        assert "No session yet" in (await page.get("/sessions")).text
        for number, question in enumerate(asked):
            told = {semconv.SESSION_ID: "chat-7"}
            spans = rag_trace(number, question=question, start_ns=time_ns() + number)
            await post(
                collector, request_of(*(replace(s, attributes={**s.attributes, **told}) for s in spans))
            )
        await judged(page, 2)
        await forget_spans(collector)
        listed = (await page.get("/sessions")).text
        assert 'href="/sessions/chat-7"' in listed
        assert asked[0] in listed
        assert "invoke_workflow ask" in listed
        conversation = (await page.get("/sessions/chat-7")).text
        assert "2 turns" in conversation
        first, second = (conversation.index(question) for question in asked)
        assert first < conversation.index(CHUNK) < second < conversation.rindex(CHUNK)
