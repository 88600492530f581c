from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ragtrace.errors import ConfigError, JudgeTimeout
from ragtrace.judge import (
    Limited,
    ScriptedJudge,
    Timed,
    judge_named_by,
    open_judge,
    unwrapped,
)
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.model import Chunk, RagRecord
from ragtrace.pipeline import evaluate

RECORD = RagRecord(
    id="r",
    question="How long do refunds take?",
    chunks=(Chunk(id="faq", text="Refunds take 14 days. Shipping is free."),),
    answer="Refunds take 30 days. Shipping is free! Cats purr.",
)


def test_a_wrong_script_is_refused_with_its_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"claims": {"x": "maybe"}}')
    with pytest.raises(ConfigError, match=r"script\.json.*claims\.x"):
        open_judge(f"scripted:{path}")


async def test_no_more_requests_than_allowed_reach_the_judge_at_once() -> None:
    gate = asyncio.Event()
    judge = ScriptedJudge(gate=gate)
    narrow = Limited(judge, 2)
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(evaluate(RECORD, judge=narrow))
        await judge.asked.wait()
        await asyncio.sleep(0)
        waiting = len(judge.requests)
        gate.set()
    assert waiting == 2
    assert len(judge.requests) == 10


async def test_a_judge_that_keeps_silent_is_timed_out() -> None:
    silent = Timed(ScriptedJudge(gate=asyncio.Event()), 0.01)
    [failure] = (await evaluate(RECORD, judge=silent)).failures
    assert failure.error_type == JudgeTimeout.error_type


def test_without_a_key_the_environment_gives_the_lexical_judge() -> None:
    judge = open_judge(judge_named_by({}), environ={})
    assert isinstance(unwrapped(judge), LexicalJudge)
    assert (judge.identity.provider, judge.identity.model) == ("lexical", "lexical-v4")


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({"OPENAI_API_KEY": "k"}, "gpt-4o-mini"),
        ({"OPENAI_BASE_URL": "http://localhost:11434/v1", "RAGTRACE_JUDGE_MODEL": "qwen3"}, "qwen3"),
    ],
)
def test_a_key_or_a_url_in_the_environment_gives_that_judge(environ: dict[str, str], model: str) -> None:
    identity = open_judge(judge_named_by(environ), environ=environ).identity
    assert (identity.provider, identity.model) == ("openai", model)
