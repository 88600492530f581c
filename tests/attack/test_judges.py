"""Judges that fail, lie about usage, or ask for endless waits: no limit is passed, nothing stops for good."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.backfill import Progress
from ragtrace.backfill.progress import RunLedger, run_budget
from ragtrace.budget import BudgetGuard, CostEstimator, Limit
from ragtrace.cli.app import cli
from ragtrace.errors import JudgeOverBudget
from ragtrace.http import retry_after_s_of
from ragtrace.judge.layers import END_TOKENS, TEMPLATE_TOKENS, CallRequest, JudgeCall
from ragtrace.model import Usage
from ragtrace.process import SystemClock
from ragtrace.text import LONGEST_WAIT_S
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.acceptance.replies import ANSWER
from tests.attack.attacked import send
from tests.attack.hostile_judge import HostileJudge, Rule, Said, completion, hostile_judge, well
from tests.backends.process import eventually
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

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


def config(folder: Path, url: str, *limits: str, **changes: Any) -> CollectorConfig:
    own: dict[str, Any] = {
        "judge": {"use": "openai:m", "base_url": url, "sentinel_rate": 0},
        "evaluate": {"retry_delays": ["10ms"] * 5, "probe_delays": ["10ms"], "deadline": "12h"},
        "budget": {"live": {"month": [*limits]}} if limits else {},
        "drain_timeout": "0s",
    }
    return config_of(folder, **own | {key: own[key] | value for key, value in changes.items()})


async def judged(spans: Stepped, *numbers: int) -> None:
    """Send answers, and let them be queued and judged as far as that is possible now."""
    for number in numbers:
        await spans.send(*rag_trace(number, answer=ANSWER))
    await spans.pass_time(1)


def spent(folder: Path) -> tuple[int, int]:
    """Return the calls and tokens of this month, by the book itself."""
    with closing(sqlite3.connect(folder / "store.db")) as db:
        row = db.execute("SELECT SUM(calls), SUM(tokens) FROM spent WHERE period = 'month'").fetchone()
    return row[0] or 0, row[1] or 0


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
    most = 4
    judging = {"use": "openai:m", "sentinel_rate": 0, "timeout": "10m", "max_concurrency": 1}
    with hostile_judge(lambda _: Said(hangs=True)) as judge:
        settings = settings_of(
            tmp_path,
            judge={**judging, "base_url": judge.base_url},
            evaluate={"deadline": "12h"},
            budget={"live": {"month": f"{most} calls"}},
        )
        for kill in range(most + 1):
            with collector_process(tmp_path, settings) as collector:
                if not kill:
                    send(collector, range(12))
                eventually(lambda kill=kill: judge.requests > kill or is_spent(collector), what="a request")  # type: ignore[misc]
                is_over = is_spent(collector)
                collector.kill()
            assert judge.requests <= most
            assert spent(tmp_path)[0] >= judge.requests
        assert is_over
        counted = CliRunner().invoke(cli, ["ledger", "--from", f"store:{tmp_path}/store.db", "--json"])
    assert json.loads(counted.stdout)["seen"] == 12


def is_spent(collector: CollectorProcess) -> bool:
    told = collector.page("/status").json()
    return bool(told["judges"]["judge"]["state"] == "over_budget")


LIMITS = ("1000 calls", "10000000 tokens")
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
        async with stepped_collector(config(tmp_path, judge.base_url, *LIMITS, **changes)) as spans:
            await judged(spans, 0)
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
    async with stepped_collector(config(tmp_path, gone, *LIMITS)) as spans:
        await judged(spans, 0)
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


ABSURD: Mapping[str, object] = {
    "negative": {"prompt_tokens": -1_000_000_000, "completion_tokens": 20},
    "beyond 64 bits": {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    "strings": {"prompt_tokens": "100", "completion_tokens": "x" * 1000},
    "details": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 10**18},
        "completion_tokens_details": {"reasoning_tokens": -(10**18)},
    },
    "no usage": None,
    "a text": "100 tokens",
}
"""One of each kind; numbers of any kind are the subject of laws."""


def bounds(judge: HostileJudge) -> tuple[int, int]:
    """Return the least and the most tokens that its requests can have taken: one, or one a byte and more."""
    asked = [json.loads(body)["max_tokens"] for body in judge.bodies]
    most = sum(len(body) + TEMPLATE_TOKENS for body in judge.bodies) + sum(asked) + END_TOKENS * len(asked)
    return len(judge.bodies), most


@pytest.mark.parametrize("usage", ABSURD)
async def test_no_usage_opens_or_closes_a_budget(
    tmp_path: Path, usage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hostile_judge(lambda body: Said(body=completion(body, ABSURD[usage]))) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url, *LIMITS)) as spans:
            await judged(spans, 0)
            calls_of_one, tokens_of_one = spent(tmp_path)
            await judged(spans, 1, 2)
            calls, tokens = spent(tmp_path)
            assert await spans.outcomes() == {"judged": 3}
            ledger = await spans.collector.pipeline.store.ledger()
            readings = await spans.collector.vitals.readings()
        least, most = bounds(judge)
    assert (ledger.seen, ledger.adds_up) == (3, True)
    assert calls == 3 * calls_of_one == judge.requests
    assert least <= tokens <= most
    assert tokens > tokens_of_one > 0
    doubted = {each.attributes["judge"]: each.value for each in readings["ragtrace.judge.usages_doubted"]}
    assert doubted == {"judge": 0 if usage == "no usage" else judge.requests}
    told = [record for record in caplog.records if "are capped" in record.message]
    assert len(told) == (usage != "no usage")  # once a judge
    assert "x" * 20 not in caplog.text
    for span in spans.carriers():
        for name in (semconv.JUDGE_INPUT_TOKENS, semconv.JUDGE_OUTPUT_TOKENS):
            assert 0 <= int(str(span.attributes[name])) <= most


numbers = st.none() | st.booleans() | st.text(max_size=3) | st.integers() | st.floats()


@given(sent=numbers, came=numbers, cached=numbers, reasoned=numbers, size=st.integers(0, 9_999))
@example(sent=10**400, came=10**400, cached=-1, reasoned=float("nan"), size=0)
def test_whatever_is_said_tokens_are_of_a_number_that_can_be(
    sent: object, came: object, cached: object, reasoned: object, size: int
) -> None:
    call = JudgeCall(asked=CallRequest(body={"max_tokens": 100}, document=bytes(size), output_tokens=100))
    call.took(input_tokens=sent, output_tokens=came, cached_tokens=cached, reasoning_tokens=reasoned)
    usage = call.usage
    assert 0 <= usage.input_tokens <= size + TEMPLATE_TOKENS
    assert 0 <= usage.output_tokens <= 100 + END_TOKENS
    assert 0 <= usage.cached_tokens <= usage.input_tokens
    assert 0 <= usage.reasoning_tokens <= 1 << 17
    spend = CostEstimator(price=None).actual_of(
        call, CostEstimator(price=None).expected_of(call), is_first=True
    )
    assert 0 < spend.tokens <= size + TEMPLATE_TOKENS + 100 + END_TOKENS


NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
ENDLESS = ["99999999999", "9" * 5_000, "86000", "Fri, 31 Dec 9999 23:59:59 GMT"]


DELAYS = {"retry_delays": ["10s", "60s"], "probe_delays": ["5s", "20s"], "deadline": "10m"}


def pausing(wait: str, *, status: int = 429) -> Said:
    return Said(status=status, headers={"Retry-After": wait})


@given(header=st.text() | st.from_regex(r"[+-]?\d*[.e]?\d*", fullmatch=True))
@example(header="Fri, 31 Dec 9999 23:59:59 GMT")
@example(header="Mon, 01 Jan 99999999999 00:00:00 GMT")
@example(header="Mon, 01 Jan 2027 00:00:00 -9999")
@example(header="Sun, 01 Nov 2026 13:00:00")
@example(header="Sun, 01 Nov 2026 13:00:00 -0000")
@example(header="9" * 5_000)
@example(header="1e400")
def test_any_text_asks_for_a_wait_that_has_an_end_or_for_none(header: str) -> None:
    wait_s = retry_after_s_of(header, now=NOW)
    assert wait_s is None or 0 <= wait_s <= LONGEST_WAIT_S


async def test_a_judge_that_asks_for_ever_is_probed_and_used_as_soon_as_it_answers(tmp_path: Path) -> None:
    with hostile_judge(lambda _: pausing(ENDLESS[0])) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url, evaluate=DELAYS)) as spans:
            await judged(spans, 0, 1, 2)
            await spans.pass_time(5)
            assert await spans.outcomes() != {"judged": 3}
            judge.rule = well
            await spans.pass_time(20)
            assert await spans.outcomes() == {"judged": 3}
            assert spans.collector.counters.snapshot()["stage_errors"] == 0
            assert (await spans.collector.pipeline.store.ledger()).adds_up
        assert sorted(span.trace_id for span in spans.carriers()) == [trace_id_of(n) for n in range(3)]


async def test_while_it_waits_a_judge_is_asked_once_a_delay_and_answers_end_with_the_true_reason(
    tmp_path: Path,
) -> None:
    with hostile_judge(lambda _: pausing("99999999999", status=503)) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url, evaluate=DELAYS)) as spans:
            await judged(spans, *range(5))
            for _ in range(40):
                await spans.pass_time(20)
            assert await spans.outcomes() == {"failed:judge_unavailable": 5}
            ledger = await spans.collector.pipeline.store.ledger()
        assert (ledger.seen, ledger.adds_up) == (5, True)
        assert 5 < judge.requests <= 2 + 600 / 20
