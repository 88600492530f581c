"""Judge calls that fail count: no storm of them passes a limit, over kills neither, and the book has each."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.backfill import Progress
from ragtrace.backfill.progress import RunLedger, run_budget
from ragtrace.budget import BudgetGuard, CostEstimator, Limit
from ragtrace.cli.app import cli
from ragtrace.errors import JudgeOverBudget
from ragtrace.judge.layers import CallRequest, JudgeCall
from ragtrace.model import Usage
from ragtrace.process import SystemClock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.acceptance.replies import ANSWER
from tests.attack.attacked import send
from tests.attack.hostile_judge import HostileJudge, Rule, Said, completion, hostile_judge, well
from tests.backends.process import eventually
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.stepping import stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

NO_PAUSE = {"retry-after-ms": "1"}
LONG_PAUSE = {"Retry-After": "3600"}
AGAIN: Rule = lambda _: Said(status=500, headers=NO_PAUSE)  # noqa: E731
STORMS: Mapping[str, Rule] = {
    "500": AGAIN,
    "400": lambda _: Said(status=400, body=b'{"error": {"message": "temperature"}}'),
    "no form": lambda body: Said(body=completion(body, text="Sorry, no.")),
    "half of them": lambda body: well(body) if '"claims"' in json.dumps(body) else AGAIN(body),
}


def config(folder: Path, url: str, limit: Mapping[str, Any], **changes: Any) -> CollectorConfig:
    own: dict[str, Any] = {
        "judge": {"use": "openai:m", "base_url": url, "sentinel_rate": 0},
        "evaluate": {"retry_delays": ["10ms"] * 5, "probe_delays": ["10ms"], "deadline": "12h"},
        "budget": {"live": {"month": limit}},
        "drain_timeout": "0s",
    }
    for key, value in changes.items():
        own[key] = {**own.get(key, {}), **value} if isinstance(value, Mapping) else value
    return config_of(folder, **own)


def spent(folder: Path) -> tuple[int, int]:
    """Return the calls and tokens of this month, by the book itself."""
    with closing(sqlite3.connect(folder / "store.db")) as db:
        row = db.execute("SELECT SUM(calls), SUM(tokens) FROM spent WHERE period = 'month'").fetchone()
    return row[0] or 0, row[1] or 0


@pytest.mark.slow
@pytest.mark.parametrize("storm", STORMS)
async def test_no_storm_of_failures_passes_a_limit_of_calls(tmp_path: Path, storm: str) -> None:
    answers, most = 16, 10
    with hostile_judge(STORMS[storm]) as judge:
        async with running_collector(config(tmp_path, judge.base_url, f"{most} calls")) as collector:
            for number in range(answers):
                await post(collector, request_of(*rag_trace(number, answer=ANSWER)))
            stopped = collector.vitals.judge_stopped
            await until(
                lambda: judge.requests > most or stopped() == "over_budget:month_calls" or done(collector)
            )
            ledger = await collector.pipeline.store.ledger()
        assert judge.requests <= most
        assert spent(tmp_path)[0] == judge.requests
    assert ledger.adds_up


def done(collector: Collector) -> bool:
    """Whether all answers ended: a judge that rejects everything is not asked for long."""
    counted = collector.counters.snapshot()
    return counted["answers_failed"] + counted["answers_judged"] == counted["answers_queued"] > 0


def test_a_limit_of_calls_holds_over_kills(tmp_path: Path) -> None:
    kills, most = 12, 5
    replies = [completion_of_no_form] * 2 + [Said(hangs=True)]
    with hostile_judge(lambda _: Said(hangs=True)) as judge:
        for _ in range(kills):
            judge.rule, came = following(replies), judge.requests + len(replies)
            with collector_process(tmp_path, process_config(tmp_path, judge, most)) as collector:
                if came == len(replies):
                    send(collector, range(12))
                eventually(partial(is_stuck, judge, came, collector), what="a request that hangs")
                is_over = is_spent(collector)
                collector.kill()
            assert judge.requests <= most
            assert spent(tmp_path)[0] >= judge.requests
            if is_over:
                break
        assert is_over
        counted = CliRunner().invoke(cli, ["ledger", "--from", f"store:{tmp_path}/store.db", "--json"])
    assert json.loads(counted.stdout)["seen"] == 12


def is_stuck(judge: HostileJudge, came: int, collector: CollectorProcess) -> bool:
    return judge.requests >= came or is_spent(collector)


def completion_of_no_form(body: Mapping[str, Any]) -> Said:
    return Said(body=completion(body, text="Sorry, no."))


def following(replies: list[Any]) -> Rule:
    """Answer by these replies, one after the other, and by the last of them from then on."""
    left = list(replies)

    def rule(body: Mapping[str, Any]) -> Said:
        reply = left.pop(0) if len(left) > 1 else left[0]
        said: Said = reply(body) if callable(reply) else reply
        return said

    return rule


def process_config(folder: Path, judge: HostileJudge, most: int) -> Mapping[str, Any]:
    slow = {"sentinel_rate": 0, "timeout": "10m", "max_concurrency": 1}
    return settings_of(
        folder,
        judge={"use": "openai:m", "base_url": judge.base_url, **slow},
        evaluate={"deadline": "12h"},
        budget={"live": {"month": f"{most} calls"}},
    )


def is_spent(collector: CollectorProcess) -> bool:
    told = httpx.get(f"http://127.0.0.1:{collector.pages_port}/status", timeout=30).json()
    return bool(told["judges"]["judge"]["state"] == "over_budget")


WORKED_ON: Mapping[str, Rule] = {
    "500": lambda _: Said(status=500, headers=LONG_PAUSE),
    "400 for what it reads": lambda _: Said(status=400, body=b'{"error": {"code": "content_filter"}}'),
    "hangs": lambda _: Said(hangs=True),
}
TURNED_DOWN: Mapping[str, Rule] = {
    "401": lambda _: Said(status=401),
    "429": lambda _: Said(status=429, headers=LONG_PAUSE),
}


@pytest.mark.parametrize("way", [*WORKED_ON, *TURNED_DOWN])
async def test_a_call_counts_and_its_tokens_do_unless_nobody_worked_on_it(tmp_path: Path, way: str) -> None:
    changes = {"judge": {"timeout": "2s"}, "evaluate": {"retry_delays": []}}
    with hostile_judge({**WORKED_ON, **TURNED_DOWN}[way]) as judge:
        limits = ["100 calls", "1000000 tokens"]
        async with stepped_collector(config(tmp_path, judge.base_url, limits, **changes)) as spans:
            await spans.send(*rag_trace(0, answer=ANSWER))
            await spans.pass_time(1)
    estimates = [
        CallRequest(body=json.loads(document), document=document, output_tokens=0).largest
        for document in judge.bodies
    ]
    least = sum(usage.input_tokens + usage.output_tokens for usage in estimates)
    calls, tokens = spent(tmp_path)
    assert calls == judge.requests > 0
    assert tokens >= least if way in WORKED_ON else tokens == 0


async def test_a_call_that_never_left_is_none(tmp_path: Path) -> None:
    with hostile_judge(well) as judge:
        gone = judge.base_url
    unreachable = config(tmp_path, gone, ["100 calls", "1000000 tokens"])
    async with stepped_collector(unreachable) as spans:
        await spans.send(*rag_trace(0, answer=ANSWER))
        await spans.pass_time(1)
        assert await spans.outcomes() == {"postponed:judge_unavailable": 1}
    assert spent(tmp_path) == (0, 0)


class Lost(Exception):
    """Nobody knows what became of an attempt."""


attempts = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 900), st.booleans()), max_size=8)
"""So many requests, of so many bytes each, and whether the attempt is lost in the end."""


async def attempt(guard: BudgetGuard, turns: asyncio.Semaphore, how: tuple[int, int, bool]) -> int:
    """Make the requests of an attempt, in its turn; return how many left."""
    left = 0
    with suppress(JudgeOverBudget, Lost):
        async with (
            guard.spending(CostEstimator(price=None), Usage(calls=1, input_tokens=how[1])) as request_cost,
            turns,
        ):
            asked = CallRequest(body={}, document=bytes(how[1]), output_tokens=0)
            for _ in range(how[0]):
                call = JudgeCall(asked=asked)
                async with request_cost.request(call):
                    left += 1
                    await asyncio.sleep(0)
                    call.took(input_tokens=max(1, how[1] // 4))
            if how[2]:
                raise Lost
    return left


@given(wanted=attempts, at_once=st.integers(1, 3), most=st.integers(1, 12))
def test_attempts_of_several_requests_pass_no_limit_and_none_waits_for_ever(
    wanted: list[tuple[int, int, bool]], at_once: int, most: int
) -> None:
    async def all_at_once(guard: BudgetGuard) -> int:
        turns = asyncio.Semaphore(at_once)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            made = [group.create_task(attempt(guard, turns, how)) for how in wanted]
        return sum(task.result() for task in made)

    with TemporaryDirectory() as folder, Progress(Path(folder) / "progress.db") as progress:
        budget = run_budget("run", Limit(calls=most, tokens=2_000))
        guard = BudgetGuard(budget=budget, ledger=RunLedger(progress=progress), clock=SystemClock())
        left = asyncio.run(all_at_once(guard))
        spent = progress.spent("run")
    assert left <= spent.calls <= most
    assert spent.tokens <= 2_000
