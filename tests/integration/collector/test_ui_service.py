"""The page of a collector, and over a place without one: what it shows of answers, and as long as what."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Any

import httpx
import pytest

from ragtrace import semconv
from ragtrace.answers.index import OwnIndex
from ragtrace.answers.port import AnswerFilter
from ragtrace.errors import ConfigError
from ragtrace.process import SystemClock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.check import check_config
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.ui.serving import AnswerSearch, open_searched_place
from tests.integration.cli.program import run
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

SECRET = base64.b64encode(bytes(32)).decode()
QUESTION, CHUNK = "How long do refunds take?", "Refunds take 14 days."


def config(folder: Path, **changes: Any) -> CollectorConfig:
    """Return a configuration that deletes spans as soon as their answers are judged."""
    quick = {"quiet_period": "50ms", "deadline": "2s", "linger": "0s"}
    return config_of(folder, **{"assemble": quick, "ui": {"listen": "127.0.0.1:0"}, **changes})


def page_of(collector: Collector) -> httpx.AsyncClient:
    """Return a reader of the page."""
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.ui.port}", timeout=PATIENCE_S)


async def judged(client: httpx.AsyncClient, count: int = 1) -> list[str]:
    """Wait for so many answers; return the paths of their pages."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            listed = (await client.get("/answers.jsonl?sort=oldest")).text
            if len(rows := [json.loads(line) for line in listed.splitlines()]) >= count:
                return [f"/answers/{row['trace_id']}/{row['span_id']}" for row in rows]
            await asyncio.sleep(0.05)


def answered(number: int) -> bytes:
    """Return the spans of an answer that was given now."""
    return request_of(*rag_trace(number, start_ns=time_ns()))


async def forget_spans(collector: Collector) -> None:
    await collector.pipeline._expire()
    assert [trace async for trace in collector.pipeline.store.content.traces()] == []


def stored(folder: Path) -> str:
    """Return the bytes of the store's file."""
    return b"".join(file.read_bytes() for file in folder.glob("store.db*")).decode("latin-1")


@pytest.mark.parametrize("keys", [[], [SECRET]], ids=["plain", "encrypted"])
async def test_the_page_shows_an_answer_as_long_as_its_row(tmp_path: Path, keys: list[str]) -> None:
    store = {"path": str(tmp_path / "store.db"), "encryption_keys": keys}
    ui = {"listen": "127.0.0.1:0", "links": {"Jaeger": "http://x/trace/{trace_id}"}}
    started = config(tmp_path, store=store, ui=ui)
    async with running_collector(started) as collector, page_of(collector) as page:
        assert "No answer was judged yet" in (await page.get("/answers")).text
        await post(collector, answered(0))
        (path,) = await judged(page)
        await forget_spans(collector)
        assert QUESTION in (await page.get("/answers")).text
        listed = json.loads((await page.get("/answers.jsonl")).text)
        assert (listed["question"], listed["pipeline"]) == (QUESTION, "ask")
    async with running_collector(started) as collector, page_of(collector) as page:
        opened = await page.get(path)
        assert opened.status_code == 200
        assert opened.headers["content-security-policy"]
        assert f"http://x/trace/{trace_id_of(0)}" in opened.text
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
    noise = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(120_000))
    async with running_collector(config(tmp_path, store=store)) as collector, page_of(collector) as page:
        for number in range(20):
            long = (CHUNK, noise[number * 1_000 :] + noise[: number * 1_000])
            await post(collector, request_of(*rag_trace(number, chunks=long, start_ns=time_ns())))
            paths = await judged(page, number + 1)
            await forget_spans(collector)
        first, last = await page.get(paths[0]), await page.get(paths[-1])
    assert (first.status_code, last.status_code) == (410, 200)
    assert "store.max_bytes" in first.text
    assert CHUNK in last.text


async def test_sessions_are_conversations_to_read_by_default(tmp_path: Path) -> None:
    asked, told = (QUESTION, "And who pays for the parcel?"), {semconv.SESSION_ID: "chat-7"}
    async with running_collector(config(tmp_path)) as collector, page_of(collector) as page:
        assert "No session yet" in (await page.get("/sessions")).text
        for number, question in enumerate(asked):
            spans = rag_trace(number, question=question, start_ns=time_ns() + number)
            spans_of_session = (replace(span, attributes={**span.attributes, **told}) for span in spans)
            await post(collector, request_of(*spans_of_session))
        await judged(page, 2)
        await forget_spans(collector)
        listed, conversation = [(await page.get(url)).text for url in ("/sessions", "/sessions/chat-7")]
    assert 'href="/sessions/chat-7"' in listed
    assert asked[0] in listed
    assert "2 turns" in conversation
    first, second = (conversation.index(question) for question in asked)
    assert first < conversation.index(CHUNK) < second < conversation.rindex(CHUNK)


@pytest.mark.parametrize("content", [True, False])
async def test_spans_of_reviews_have_texts_only_if_carriers_may(tmp_path: Path, content: bool) -> None:
    out = tmp_path / "out.jsonl"
    started = config(tmp_path, judge={"use": "lexical"}, attach={"content": content})
    async with running_collector(started) as collector, page_of(collector) as client:
        await post(collector, answered(0))
        (path,) = await judged(client)
        review = f"/review{path.removeprefix('/answers')}"
        csrf = re.search(r'name="csrf" value="([^"]+)"', (await client.get(review)).text)
        assert csrf
        said = {"csrf": csrf[1], "label-1": "contradicted", "note-1": "It is otherwise."}
        assert (await client.post(review, data=said)).status_code == 303
        await until(lambda: b"ragtrace.review.label" in out.read_bytes())
    (span,) = [each for each in carriers_in(out) if each.name == "review contradicted"]
    told = repr(span.attributes)
    assert (CHUNK in told) is ("It is otherwise." in told) is content


async def test_the_page_has_no_access_log_and_no_content_in_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with (
        running_collector(config(tmp_path, log_level="debug")) as collector,
        page_of(collector) as page,
    ):
        caplog.clear()
        await page.get("/answers?text=my-salary")
        await page.post("/login", data={"token": "rt_my-token"})
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not re.search("salary|my-token", " ".join(record.getMessage() for record in ours))


@pytest.mark.parametrize(
    ("ui", "said"),
    [
        ({"listen": "0.0.0.0:4330"}, "tokens"),
        ({"listen": "127.0.0.1:0", "traces": "ftp:x"}, "ui.traces"),
        ({"listen": "127.0.0.1:0", "reviews": "/no/such/folder/reviews.db"}, "ui.reviews"),
        ({"public_url": "https://user:secret@ragtrace.example.com"}, "ui.public_url"),
        ({"public_url": "https://ragtrace.example.com/?a=b"}, "ui.public_url"),
        ({"links": {"Jaeger": "http://localhost:16686/trace/"}}, "ui.links"),
        ({"links": {"Jaeger": "javascript:alert({trace_id})"}}, "ui.links"),
    ],
    ids=str,
)
def test_a_check_tells_what_the_page_cannot_use(tmp_path: Path, ui: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check_config(config_of(tmp_path, ui=ui, receive={"insecure": True}))
    assert "secret" not in str(caught.value)


# -- over a place without a collector ---------------------------------------------------------------------
async def found(index: OwnIndex, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len((await index.page(AnswerFilter())).answers) != count:  # noqa: ASYNC110 -- another task's work
            await asyncio.sleep(0.01)


async def test_a_search_goes_on_says_what_it_cannot_read_and_ends_with_the_page(tmp_path: Path) -> None:
    out, file = tmp_path / "out.jsonl", tmp_path / "spans.jsonl"
    written = config_of(tmp_path, export=[{"endpoint": f"otlp-file:{out}", "forward": True}])
    async with running_collector(written) as collector:
        for number in range(2):
            await post(collector, request_of(*rag_trace(number)))
            await until(lambda number=number: len(carriers_in(out)) == 4 * (number + 1))
    lines = out.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(line for line in lines if trace_id_of(0) in line), "utf-8")
    search = AnswerSearch(address=f"otlp-file:{file}", since_ns=0, clock=SystemClock(), pause_s=0.01)
    assert "under way" in search.notices()[0]
    async with open_searched_place(search) as place:
        await found(place.index, 1)
        file.unlink()
        await until(lambda: "tried again" in " ".join(search.notices()))
        file.write_text("".join(lines), "utf-8")
        await found(place.index, 2)
        await until(lambda: search.notices() == ())
        (answer, _) = (await place.index.page(AnswerFilter())).answers
        assert (await place.source.open(answer.key)).versions
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "search"]
