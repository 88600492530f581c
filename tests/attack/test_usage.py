"""What endpoints say that requests took is believed as far as it can be, and opens or closes no budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.util.types import AttributeValue

from ragtrace import semconv
from ragtrace.budget import CostEstimator
from ragtrace.judge.layers import END_TOKENS, TEMPLATE_TOKENS, CallRequest, JudgeCall
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from tests.acceptance.replies import ANSWER
from tests.attack.hostile_judge import HostileJudge, Said, completion, hostile_judge
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

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
NOT_DOUBTED = {"no usage"}
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
