"""What endpoints say that requests took is believed as far as it can be, and opens or closes no budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.util.types import AttributeValue

from ragtrace import semconv
from ragtrace.backfill import Progress
from ragtrace.backfill.progress import RunLedger, run_budget
from ragtrace.budget import BudgetGuard, CostEstimator, Limit, budgeted
from ragtrace.judge import open_embedder, open_judge
from ragtrace.judge.layers import END_TOKENS, TEMPLATE_TOKENS, CallRequest, JudgeCall
from ragtrace.judge.spec import BatchSettings
from ragtrace.model import Usage
from ragtrace.ports import FreeText, JudgeRequest
from ragtrace.process import SystemClock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.judge import guards_of
from ragtrace_collector.service.collector import Collector
from tests.acceptance.replies import ANSWER
from tests.attack.hostile_judge import HostileJudge, Said, completion, hostile_judge
from tests.batch_server import running_batch_server
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import StandingClock, Stepped, stepped_collector
from tests.rag_spans import rag_trace
from tests.stores.place import open_budget

pytestmark = pytest.mark.slow

ABSURD: Mapping[str, object] = {
    "negative": {"prompt_tokens": -1_000_000_000, "completion_tokens": 20},
    "beyond 64 bits": {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    "null": {"prompt_tokens": None, "completion_tokens": None},
    "strings": {"prompt_tokens": "100", "completion_tokens": "x" * 1000},
    "no number": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
    "details": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 10**18},
        "completion_tokens_details": {"reasoning_tokens": -(10**18)},
    },
    "details that are none": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": "none",
        "completion_tokens_details": [1],
    },
    "no usage": None,
    "a text": "100 tokens",
}
"""One of each kind; numbers of any kind are the subject of laws."""
FEW = ("negative", "details", "a text")
"""For doors behind which the same reader stands."""
NOT_DOUBTED = {"null", "details that are none", "no usage"}
CALLS = 2


def config(folder: Path, url: str, *, tokens: int = 10_000_000) -> CollectorConfig:
    return config_of(
        folder,
        judge={"use": "openai:m", "base_url": url, "sentinel_rate": 0},
        budget={"live": {"month": ["1000 calls", f"{tokens} tokens"]}},
    )


def saying(usage: object) -> Callable[[Mapping[str, Any]], Said]:
    return lambda body: Said(body=completion(body, usage))


async def judged(spans: Stepped, *numbers: int) -> None:
    for number in numbers:
        await spans.send(*rag_trace(number, answer=ANSWER))
    await spans.pass_time(1)


async def booked(collector: Collector) -> dict[str, int]:
    guards = collector.live.shared_evaluator.guarded.guards
    assert guards is not None
    assert guards.budget_guard is not None
    status = await guards.budget_guard.ledger.status(guards.budget, now_ns=guards.clock.now_ns())
    return {left.limit.removeprefix("month_"): left.spent for left in status.left()}


def bounds(judge: HostileJudge) -> tuple[int, int]:
    """Return the least and the most tokens that its requests can have taken: one, or one a byte and more."""
    asked = [json.loads(body)["max_tokens"] for body in judge.bodies]
    most = sum(len(body) + TEMPLATE_TOKENS for body in judge.bodies) + sum(asked) + END_TOKENS * len(asked)
    return len(judge.bodies), most


@pytest.mark.parametrize("usage", ABSURD)
async def test_no_usage_opens_or_closes_a_budget(
    tmp_path: Path, usage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with hostile_judge(saying(ABSURD[usage])) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url)) as spans:
            await judged(spans, 0)
            first = await booked(spans.collector)
            await judged(spans, 1, 2)
            all_three = await booked(spans.collector)
            assert await spans.outcomes() == {"judged": 3}
            ledger = await spans.collector.pipeline.store.ledger()
            readings = await spans.collector.vitals.readings()
        least, most = bounds(judge)
    assert (ledger.seen, ledger.adds_up) == (3, True)
    assert all_three["calls"] == 3 * first["calls"] == 3 * CALLS == judge.requests
    assert least <= all_three["tokens"] <= most
    assert all_three["tokens"] > first["tokens"] > 0
    doubted = {each.attributes["judge"]: each.value for each in readings["ragtrace.judge.usages_doubted"]}
    assert doubted == {"judge": 0 if usage in NOT_DOUBTED else 3 * CALLS}
    told = [record for record in caplog.records if "are capped" in record.message]
    assert len(told) == (usage not in NOT_DOUBTED)  # once a judge
    assert "x" * 20 not in caplog.text
    for span in spans.carriers():
        assert all(0 <= _number(span.attributes[name]) <= most for name in TOKENS)


TOKENS = (semconv.JUDGE_INPUT_TOKENS, semconv.JUDGE_OUTPUT_TOKENS)


def _number(value: AttributeValue) -> int:
    assert isinstance(value, int)
    return value


async def test_less_than_none_does_not_make_room(tmp_path: Path) -> None:
    minus = {"prompt_tokens": -(10**9), "completion_tokens": -(10**9)}
    with hostile_judge(saying(minus)) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url, tokens=20_000)) as spans:
            await judged(spans, *range(30))
            tokens = (await booked(spans.collector))["tokens"]
            assert (await spans.outcomes())["judged"] < 30
    assert 10_000 < tokens <= 20_000


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


@given(calls=st.integers(-(10**30), 64), sent=st.integers(), came=st.integers(), cached=st.integers())
def test_what_a_plug_in_says_is_bounded_by_the_estimate(
    calls: int, sent: int, came: int, cached: int
) -> None:
    cost_estimator = CostEstimator(price=None)
    estimate = cost_estimator.estimate(Usage(calls=1, input_tokens=100, output_tokens=100))
    said = Usage(calls=calls, input_tokens=sent, output_tokens=came, cached_tokens=cached)
    spend = cost_estimator.actual(said, estimate)
    assert 0 <= spend.tokens <= 2 * 64 * 200
    assert spend.calls == max(0, calls)


# --- embedders and batches


@pytest.mark.parametrize("usage", FEW)
async def test_embedders_are_believed_no_more(tmp_path: Path, usage: str) -> None:
    data = [{"index": 0, "embedding": [1.0]}]
    answer = json.dumps({"data": data, "usage": ABSURD[usage]}).encode()
    purse = config(tmp_path, "http://127.0.0.1:9")
    with hostile_judge(lambda _: Said(body=answer)) as endpoint:
        async with open_budget(tmp_path / "store.db") as store:
            guards = guards_of(purse, clock=StandingClock(), spend_ledger=store)
            opened = open_embedder(
                "openai:e", base_url=endpoint.base_url, environ={}, around=guards.embedder("embedder")
            )
            async with aclosing(opened) as embedder:
                for number in range(1, 4):
                    assert (await embedder.embed(["How long do refunds take?"])).vectors == ((1.0,),)
                    assert guards.budget_guard is not None
                    status = await store.status(guards.budget, now_ns=guards.clock.now_ns())
                    calls, tokens = (left.spent for left in status.left())
                    assert calls == number == endpoint.requests
                    most = sum(len(body) + TEMPLATE_TOKENS for body in endpoint.bodies)
                    assert number <= tokens <= most


@pytest.mark.parametrize("usage", FEW)
async def test_batches_are_believed_no_more(tmp_path: Path, usage: str) -> None:
    def model(body: Mapping[str, Any]) -> tuple[int, Any]:
        return 200, json.loads(completion(body, ABSURD[usage], text="Yes."))

    request = JudgeRequest(
        step="ask", system="", user="Is it so?", reply_type=FreeText, inputs=None, max_output_tokens=50
    )
    with running_batch_server(model) as server, Progress(tmp_path / "progress.db") as progress:
        budget = run_budget("run", Limit(calls=9, tokens=1_000_000))
        guard = BudgetGuard(budget=budget, ledger=RunLedger(progress=progress), clock=SystemClock())
        judge = open_judge(
            "openai:gpt-4o-mini",
            base_url=server.url,
            environ={},
            batches=BatchSettings(path=tmp_path / "batches.db", poll_s=0.02),
            around=lambda judge: budgeted(judge, [guard.spending], None),
        )
        async with aclosing(judge):
            assert (await judge.ask(request)).value.text == "Yes."
        spent = progress.spent("run")
    (sent,) = [body for name, body in server.files.items() if b"custom_id" in body and b"Is it so?" in body]
    assert spent.calls == 1
    assert 0 < spent.tokens <= len(sent) + TEMPLATE_TOKENS + 50 + END_TOKENS
