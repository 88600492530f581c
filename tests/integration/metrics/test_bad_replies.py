"""Whatever a model writes ends as verdicts or as a typed failure: never as NaN, never as a default number."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragtrace.judge import open_judge
from ragtrace.metrics import StepLimits
from ragtrace.metrics.settings import VerifySettings
from ragtrace.model import Chunk, MetricFailure, MetricOutcome, MetricResult, RagRecord
from ragtrace.pipeline import evaluate
from tests.gullible_model import completion, gullible_reply, running_model

RECORD = RagRecord(
    id="r",
    question="How long?",
    chunks=(Chunk(id="a", text="Refunds take 14 days."), Chunk(id="b", text="Shipping is free in Europe.")),
    answer="Refunds take 14 days. Refunds take 30 days. Gift cards never expire.",
)
UNPLANTED = StepLimits(verify=VerifySettings(sentinel_rate=0.0))
WORDS = {1: "supported", 2: "contradicted", 3: "not_mentioned"}
QUOTE = "Refunds take 14 days."
SCORED = ["supported", "contradicted", "unsupported"]


class Scripted:
    """Answers verify requests with what it is told; the others honestly."""

    def __init__(self) -> None:
        self.url = ""
        self.says: Any = ""

    def reply(self, body: Mapping[str, Any]) -> Any:
        if "<<claims" not in body["messages"][1]["content"]:
            return gullible_reply(body)
        if callable(self.says):
            return self.says(body)
        return completion(body, self.says)


@pytest.fixture(scope="module")
def model() -> Iterator[Scripted]:
    scripted = Scripted()
    with running_model(scripted.reply) as scripted.url:
        yield scripted


def outcome_of(model: Scripted, says: Any) -> MetricOutcome:
    async def judged() -> MetricOutcome:
        judge = open_judge("openai:m", base_url=model.url, max_retries=0, environ={})
        try:
            return (await evaluate(RECORD, judge=judge, limits=UNPLANTED)).outcomes[0]
        finally:
            await judge.aclose()

    model.says = says
    return asyncio.run(judged())


def verdicts(**changes: Any) -> str:
    """Write verdicts for the three claims, with fields changed in each."""
    given = [
        {"id": n, "chunks": [1], "quote": QUOTE, "label": word, "reason": "", **changes}
        for n, word in WORDS.items()
    ]
    return json.dumps({"verdicts": given})


def numbered(*numbers: Any) -> str:
    given = [{"id": n, "chunks": [1], "quote": "", "label": "supported", "reason": ""} for n in numbers]
    return json.dumps({"verdicts": given})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"```json\n{verdicts()}\n```", id="fenced"),
        pytest.param(f"Sure! Here it is:\n{verdicts()}\nI hope this helps.", id="in prose"),
        pytest.param(verdicts().replace("]}", ",]}"), id="trailing comma"),
        pytest.param(f"<think>{{maybe}}</think>{verdicts()}", id="after thoughts"),
        pytest.param(f"{numbered(1, 2, 3)} Final answer: {verdicts()}", id="after an example"),
        pytest.param(verdicts().replace('"id": 1', '"id": "1"'), id="a number as a string"),
        pytest.param(verdicts().replace('"not_mentioned"', '"Not mentioned"'), id="another case"),
    ],
)
def test_malformed_replies_that_hold_the_verdicts_are_read(model: Scripted, text: str) -> None:
    outcome = outcome_of(model, text)
    assert isinstance(outcome, MetricResult)
    assert [verdict.label for verdict in outcome.verdicts] == SCORED
    assert outcome.score == pytest.approx(1 / 3)


_pieces = st.sampled_from(
    [
        *(
            *('{"verdicts": [', "]}", "{", "}", "[", ",", '"id": 1', '"id": 2', '"id": 4'),
            *('"chunks": [1]', "NaN"),
        ),
        *(
            *('"quote": "Refunds take 14 days."', '"label": "supported"', '"label": "no"'),
            *('"reason": ""', "1e999"),
        ),
        *(
            *(numbered(1, 2, 3)[14:-2], numbered(1)[14:-2], "```json\n", "```", "<think>", "</think>"),
            *("null", "-1"),
        ),
    ]
)
_replies = st.lists(_pieces | st.text(max_size=6), max_size=12).map("".join) | st.text(max_size=40)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_replies)
def test_any_text_ends_as_verdicts_or_as_a_failure(model: Scripted, text: str) -> None:
    outcome = outcome_of(model, text)
    if isinstance(outcome, MetricFailure):
        assert outcome.error_type in ("judge_nonsense", "judge_compromised", "judge_declined")  # "null"
        return
    numbers = [*outcome.details.values(), *([] if outcome.score is None else [outcome.score])]
    assert all(math.isfinite(number) for number in numbers)
    assert (outcome.score is None) == (outcome.counts.judged == 0)
    assert outcome.score is None or outcome.score == outcome.counts.supported / outcome.counts.judged
