"""Judged answers in the store of a collector: their rows, and their carriers while the spans are there."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.answers.carrier import summary_of
from ragtrace.answers.port import TrafficScope
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import ReadError
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.store.cipher import open_cipher
from ragtrace_collector.store.reader import StoreReader, index_of
from ragtrace_collector.store.records import IndexSize
from ragtrace_collector.store.recovery import save_readable
from ragtrace_collector.store.sqlite import SqliteFile
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace

QUIET_S, LINGER_S = 5, 600
ROOT, RETRIEVAL, GENERATION = rag_trace(0, answer="Refunds take 14 days. Shipping takes 3 days.")
KEY = AnswerKey(ROOT.trace_id, ROOT.span_id)
SECRET = base64.b64encode(bytes(32)).decode()


def config(folder: Path, **others: Any) -> CollectorConfig:
    times = {"quiet_period": f"{QUIET_S}s", "deadline": "60s", "linger": f"{LINGER_S}s"}
    return config_of(folder, assemble=times, judge={"use": "lexical"}, **others)


def reader(folder: Path, *keys: str) -> StoreReader:
    return StoreReader(SqliteFile(config(folder).store.file), open_cipher(keys))


def late_retrieval() -> Span:
    other = rag_trace(0, chunks=["Shipping takes 3 days."])[1]
    documents = str(other.attributes[semconv.RAG_DOCUMENTS][0]).replace("chunk-0", "chunk-1")  # type: ignore[index]
    attributes = {**other.attributes, semconv.RAG_DOCUMENTS: (documents,)}
    return replace(other, span_id="00000000000000b2", start_ns=other.start_ns + 1000, attributes=attributes)


def said(label: str, number: int = 1, *, on: str | None = ROOT.span_id) -> Span:
    return replace(
        ROOT,
        span_id=f"{0xF0 + number:016x}",
        parent_span_id=on,
        name=semconv.FEEDBACK_SPAN,
        end_ns=ROOT.end_ns + number,
        attributes={semconv.FEEDBACK_NAME: "thumbs", semconv.FEEDBACK_LABEL: label},
    )


async def judge(spans: Stepped) -> None:
    await spans.send(ROOT, RETRIEVAL, GENERATION)
    await spans.pass_time(QUIET_S)


async def test_the_row_of_a_judged_answer_is_what_its_carrier_says(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await judge(spans)
        (row,) = await index_of(SqliteFile(config(tmp_path).store.file)).versions(KEY)
        told = summary_of(spans.carriers()[0])
        assert told is not None
        assert row == replace(told, question="How long do refunds take?")


async def test_a_store_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="there is no store"):
        await index_of(SqliteFile(tmp_path / "none.db")).versions(KEY)


@pytest.mark.parametrize("is_revised", [False, True], ids=["judged once", "revised"])
async def test_an_answer_with_its_scores_on_its_own_span_is_kept_too(
    tmp_path: Path, is_revised: bool
) -> None:
    export = {"endpoint": f"otlp-file:{tmp_path / 'out.jsonl'}", "forward": True}
    held = config(tmp_path, attach={"mode": "hold"}, export=[export])
    async with stepped_collector(held) as spans:
        await judge(spans)
        if is_revised:
            await spans.send(late_retrieval())
            await spans.pass_time(QUIET_S)
        carriers = (await reader(tmp_path).kept(KEY)).carriers
        assert (await spans.collector.pipeline.store.index_size()).rows == len(carriers) == 1 + is_revised
    assert [span.attributes.get(semconv.EVAL_SUPERSEDES) for span in carriers] == [
        None,
        *([carriers[0].span_id] if is_revised else []),
    ]


async def test_the_status_page_and_the_metrics_tell_how_much_the_index_holds(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        vitals = spans.collector.vitals
        assert (await vitals.status())["index"] == {"rows": 0, "oldest": None}
        await judge(spans)
        oldest = datetime.fromtimestamp(ROOT.start_ns // 10**9, UTC).isoformat()
        assert (await vitals.status())["index"] == {"rows": 1, "oldest": oldest}
        (rows,) = (await vitals.readings())["ragtrace.index.rows"]
        assert rows.value == 1


async def feedback_on(folder: Path) -> list[str]:
    index = index_of(SqliteFile(config(folder).store.file))
    return [summary.feedback for summary in await index.versions(KEY)]


@pytest.mark.parametrize(
    "on", [ROOT.span_id, GENERATION.span_id, None], ids=["the answer", "a step", "the trace"]
)
async def test_late_feedback_is_on_the_row(tmp_path: Path, on: str | None) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await judge(spans)
        assert await feedback_on(tmp_path) == [""]
        await spans.send(said("down", on=on))
        await spans.pass_time(QUIET_S)
        assert await feedback_on(tmp_path) == ["down"]


def vacuum_into(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(to),))


@pytest.mark.parametrize("copy", [vacuum_into, save_readable], ids=["backup", "salvage"])
async def test_a_copy_of_the_store_has_the_index_and_the_carriers(
    tmp_path: Path, copy: Callable[[Path, Path], object]
) -> None:
    path, to = config(tmp_path).store.file, tmp_path / "copy.db"
    async with stepped_collector(config(tmp_path)) as spans:
        await judge(spans)
        row = await index_of(SqliteFile(path)).versions(KEY)
        sums = await index_of(SqliteFile(path)).sums(TrafficScope())
        kept = (await StoreReader(SqliteFile(path)).kept(KEY)).carriers
    await asyncio.to_thread(copy, path, to)
    assert await index_of(SqliteFile(to)).versions(KEY) == row
    assert await index_of(SqliteFile(to)).sums(TrafficScope()) == sums
    assert (await StoreReader(SqliteFile(to)).kept(KEY)).carriers == kept
    async with stepped_collector(config(tmp_path, store={"path": str(to)})) as spans:
        assert await spans.collector.pipeline.store.index_size() == IndexSize(rows=1, oldest_ns=ROOT.start_ns)


@pytest.mark.parametrize(("max_bytes", "most"), [("2GiB", 1_073_741), ("160MB", 80_000)])
def test_the_index_takes_at_most_two_fifths_of_the_store(tmp_path: Path, max_bytes: str, most: int) -> None:
    store = {"path": str(tmp_path / "store.db"), "max_bytes": max_bytes}
    assert config(tmp_path, store=store).most_index_rows == most
