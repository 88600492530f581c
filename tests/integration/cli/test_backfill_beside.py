"""``ragtrace backfill`` beside a collector: its purse, and whose turn it is."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from ragtrace.budget import load_prices
from ragtrace.cli.backfill_run import OVER_BUDGET
from ragtrace.errors import ConfigError
from ragtrace.model import JudgeIdentity, Sample
from ragtrace_collector.cli.shared_budget import read_shared_budget
from ragtrace_collector.ledger import State
from ragtrace_collector.store.records import Job
from ragtrace_collector.store.store import Store
from tests.integration.cli.program import json_lines, run
from tests.integration.cli.terminal import OnTerminal
from tests.integration.collector.paid_judge import PAID, paid, prices
from tests.unit.backfill.stored_traces import rag_trace, write_traces

CONFIG = """
export: [{endpoint: "http://localhost:4317"}]
store: {path: "%s"}
budget: {backfill: {month: 8 calls}}
"""


@pytest.fixture
def config(path: Path, tmp_path: Path) -> Path:
    """A configuration that lets back-fill ask eight times a month: a day may end while a test runs."""
    file = tmp_path / "collector.yaml"
    file.write_text(CONFIG % path)
    return file


async def queue_live_answer(store: Store, trace_id: str = "a") -> None:
    job = Job(trace_id=trace_id, span_id="s", sample=Sample(rule="ratio", rate=1.0, probability=1.0))
    await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=False, now_ns=time.time_ns())


async def judge_live_answer(store: Store) -> None:
    (job,) = await store.take_jobs(1, now_ns=time.time_ns())
    await store.finish(job, State.JUDGED, outbox_items={}, now_ns=time.time_ns())


@pytest.mark.slow
async def test_a_run_shows_whom_it_waits_for_and_judges_then(
    store: Store, path: Path, config: Path, tmp_path: Path
) -> None:
    await queue_live_answer(store)
    out = tmp_path / "out.jsonl"
    traces = write_traces(tmp_path / "traces.jsonl", [rag_trace()])
    to = ("--to", f"otlp-file:{out}", "--collector", str(config), "--judge", "lexical")
    shown = OnTerminal(("backfill", "--from", f"otlp-file:{traces}", *to))
    await asyncio.to_thread(shown.read_until, "waiting for 1 live")
    assert not out.exists()
    await judge_live_answer(store)
    await asyncio.to_thread(shown.finish)
    assert (shown.process.returncode, out.read_text().count("\n")) == (0, 1)


async def test_back_fill_spends_from_its_own_purse_of_the_collector(
    store: Store, config: Path, tmp_path: Path
) -> None:
    traces = write_traces(tmp_path / "traces.jsonl", [rag_trace(number) for number in range(6)])
    asked = (
        "--judge",
        f"{PAID}beside",
        "--set",
        "judge.prices=" + prices(tmp_path, "beside"),
        "--concurrency",
        "1",
        "--yes",
    )
    to = ("--to", f"otlp-file:{tmp_path / 'out.jsonl'}", "--collector", str(config), "--json")
    result = await asyncio.to_thread(run, "backfill", "--from", f"otlp-file:{traces}", *to, *asked)
    (report,) = json_lines(result.stdout)
    assert (result.exit_code, report["judged"], report["left"]) == (OVER_BUDGET, 4, 2)
    assert paid("beside").calls == 8
    assert "the budget `backfill` has nothing left (month_calls)" in result.stderr
    shown = await asyncio.to_thread(run, "ledger", "--config", str(config), "--json")
    assert [(each["limit"], each["left"]) for each in json.loads(shown.stdout)["limits"]] == [
        ("month_calls", 0)
    ]


def test_a_purse_in_dollars_wants_a_price_for_the_judge(config: Path) -> None:
    config.write_text(config.read_text().replace("8 calls", "5 USD"))
    budget = read_shared_budget(config)
    budget.check(JudgeIdentity(provider="openai", model="gpt-4o-mini"), load_prices())
    with pytest.raises(ConfigError, match="no price for openai:some-model"):
        budget.check(JudgeIdentity(provider="openai", model="some-model"), load_prices())
