"""What the page shows of an answer whose spans are gone: its content, as long as its row."""

from __future__ import annotations

import asyncio
import base64
import csv
import html
import io
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.traces.trace import Resource
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector
from tests.integration.collector.test_ui_service import judged, page_of
from tests.rag_spans import rag_trace, trace_id_of

SECRET = base64.b64encode(bytes(32)).decode()
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


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        ("payload = x'ff'", "content of trace"),
        ("record = CAST(x'ff' || record AS TEXT)", "Could not decode to UTF-8 column 'record'"),
    ],
)
async def test_kept_content_that_is_damaged_is_told_as_damaged(
    tmp_path: Path, damaged: str, told: str
) -> None:
    async with running_collector(config(tmp_path)) as collector, page_of(collector) as page:
        await post(collector, answered(0))
        (path,) = await judged(page)
        await forget_spans(collector)
        with closing(sqlite3.connect(tmp_path / "store.db")) as db, db:
            db.execute(f"UPDATE kept_carrier SET {damaged}")
        opened = await page.get(path)
    assert opened.status_code == 503
    why = await asyncio.to_thread(run, "why", trace_id_of(0), "--from", f"store:{tmp_path}/store.db")
    for text in (html.unescape(opened.text), " ".join(why.output.split())):
        assert told in text
        assert "\ufffd" not in text


def stored(folder: Path) -> str:
    """Return the bytes of the store's file."""
    return b"".join(file.read_bytes() for file in folder.glob("store.db*")).decode("latin-1")


async def test_content_is_deleted_with_its_row(tmp_path: Path) -> None:
    started = config(tmp_path, index={"max_age": "1s"})
    async with running_collector(started) as collector, page_of(collector) as page:
        await post(collector, request_of(*rag_trace(0)))  # of long ago
        (path,) = await judged(page)
        await forget_spans(collector)
        assert (await page.get(path)).status_code == 404
    assert QUESTION not in stored(tmp_path)


@pytest.mark.parametrize("is_on_at_first", [True, False])
async def test_a_switch_keeps_no_content_and_deletes_what_is_kept(
    tmp_path: Path, is_on_at_first: bool
) -> None:
    first, off = (config(tmp_path, index={"content": is_on}) for is_on in (is_on_at_first, False))
    async with running_collector(first) as collector, page_of(collector) as page:
        await post(collector, answered(0))
        (path,) = await judged(page)
        await collector.reload(off)
        await forget_spans(collector)
        gone = await page.get(path)
        assert gone.status_code == 410
        assert is_on_at_first or "ui.traces" in gone.text
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
            assert '<bdi class="quiet">ask</bdi>' in text, url
        line = json.loads((await page.get("/answers.jsonl")).text)
        (row,) = csv.DictReader(io.StringIO((await page.get("/answers.csv")).text.removeprefix("\ufeff")))
        for told in (line, row):
            assert (told["question"], told["pipeline"]) == (QUESTION, "ask")


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
        assert '<bdi class="quiet">ask</bdi>' in listed
        conversation = (await page.get("/sessions/chat-7")).text
        assert "2 turns" in conversation
        first, second = (conversation.index(question) for question in asked)
        assert first < conversation.index(CHUNK) < second < conversation.rindex(CHUNK)


async def test_releases_are_marked_in_the_trend_and_versions_stand_side_by_side(tmp_path: Path) -> None:
    hour_ns = 3_600 * 10**9
    async with running_collector(config(tmp_path)) as collector, page_of(collector) as page:
        for number, (version, prompt) in enumerate([("1.0", "v1"), ("1.0", "v2"), ("1.1", "v2")]):
            spans = rag_trace(number, start_ns=time_ns() - (3 - number) * hour_ns)
            resource = Resource(attributes={**spans[0].resource.attributes, "service.version": version})
            root, *steps = (replace(span, resource=resource) for span in spans)
            told = {semconv.PROMPT_VERSION: prompt}
            await post(collector, request_of(replace(root, attributes={**root.attributes, **told}), *steps))
        await judged(page, 3)
        overview = (await page.get("/")).text
    assert "<bdi>shop prompt version v2</bdi>" in overview
    assert "<bdi>shop service version 1.1</bdi>" in overview
    assert "version 1.0</bdi>" not in overview
    assert overview.count('<path class="mark"') == 2
    assert "Side by side" in overview
    assert "prompt_version=v1" in overview
