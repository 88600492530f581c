"""``ragtrace tail``: verdicts of a store or a file, each once, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from ragtrace_collector.service.collector import Collector
from tests.integration.cli.program import json_lines, run, start
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.test_revisions import second_retrieval
from tests.patience import PATIENCE_S
from tests.rag_spans import START_NS, rag_trace, trace_id_of

WRONG = "Refunds take 14 days. Shipping takes 3 days."


async def receive(
    collector: Collector, out: Path, number: int, *, answer: str, service: str = "shop"
) -> None:
    """Send an answer, and wait for its carrier."""
    spans = rag_trace(number, answer=answer, service=service, start_ns=START_NS + number)
    await post(collector, request_of(*spans))
    await until(lambda: out.exists() and out.read_bytes().count(b"ragtrace.schema") > number)


@pytest.fixture
async def judged(tmp_path: Path) -> Path:
    """Return a folder with the store and the export of a collector: of three answers, the second is wrong."""
    out = tmp_path / "out.jsonl"
    config = config_of(
        tmp_path, judge={"use": "lexical"}, export=[{"endpoint": f"otlp-file:{out}", "forward": True}]
    )
    async with running_collector(config) as collector:
        await receive(collector, out, 0, answer="Refunds take 14 days.")
        await receive(collector, out, 1, answer=WRONG)
        await receive(collector, out, 2, answer="Refunds take 14 days.", service="bank\x1b[31m")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("source", ["store:{}/store.db", "{}/out.jsonl"])
async def test_newest_answers_are_lines_of_at_most_80_columns_in_the_order_of_judging(
    judged: Path, source: str
) -> None:
    result = await asyncio.to_thread(run, "tail", "--from", source.format(judged), "--no-follow")
    printed = result.stdout.splitlines()
    lines, asked = printed[::2], printed[1::2]
    assert result.exit_code == 0
    assert [line.strip() for line in asked] == ["ask: How long do refunds take?"] * 3
    assert [line[-32:] for line in lines] == [trace_id_of(number) for number in range(3)]
    assert all(len(line) <= 80 for line in lines)
    assert lines[0][11:].split()[:4] == ["pass", "1.00", "shop", "0/1"]
    assert lines[1][11:].split()[:4] == ["fail", "0.50", "shop", "1/2"]
    assert "\x1b" not in result.stdout


async def test_filters_and_number_narrow_and_claims_show_what_is_wrong(judged: Path) -> None:
    store = ("tail", "--from", f"store:{judged}/store.db", "--no-follow")

    def shown(*args: str) -> list[str]:
        return [row["trace_id"] for row in json_lines(run(*store, "--json", *args).stdout)]

    def all_of_them() -> None:
        assert shown("--label", "fail") == [trace_id_of(1)]
        assert shown("--metric", "faithfulness", "--max-score", "0.5") == [trace_id_of(1)]
        assert shown("--service", "shop") == [trace_id_of(0), trace_id_of(1)]
        assert shown("-n", "1") == [trace_id_of(2)]
        assert shown("-n", "0") == shown("--since", "1h") == shown("--service", "nobody") == []
        told = run(*store, "--label", "fail", "--claims").stdout
        assert "Shipping takes 3 days." in told
        assert "Shipping" not in run(*store).stdout

    await asyncio.to_thread(all_of_them)


@pytest.mark.slow
async def test_a_running_collectors_verdicts_come_each_once_and_revisions_are_marked(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    config = config_of(tmp_path, judge={"use": "lexical"}, assemble={"linger": "1h"})
    async with running_collector(config) as collector:
        await receive(collector, out, 0, answer=WRONG)
        process = start("tail", "--from", f"store:{tmp_path}/store.db", "--json")
        assert process.stdout
        try:
            first = json.loads(await asyncio.to_thread(process.stdout.readline))
            await post(collector, request_of(second_retrieval()))
            second = json.loads(await asyncio.to_thread(process.stdout.readline))
            await receive(collector, out, 2, answer=WRONG)
            third = json.loads(await asyncio.to_thread(process.stdout.readline))
        finally:
            process.send_signal(signal.SIGINT)
            rest, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert (first["supersedes"], second["supersedes"]) == ("", first["carrier_span_id"])
    assert (first["metrics"]["faithfulness"]["score"], second["metrics"]["faithfulness"]["score"]) == (
        0.5,
        1.0,
    )
    assert third["trace_id"] == trace_id_of(2)
    assert rest == b""
    assert process.returncode == 0
    assert b"Traceback" not in errors
