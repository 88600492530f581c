"""Asking for what the model writes, as it is, in the way another tool would."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.errors import JudgeNonsense
from ragtrace.judge.openai import OpenAICompatibleJudge
from ragtrace.ports import FreeText, JudgeRequest, SamplingParameters

RAGAS_LIKE = SamplingParameters(temperature=0.01, top_p=0.1, json_object=True)


def request(sampling: SamplingParameters | None = None) -> JudgeRequest[FreeText]:
    return JudgeRequest(
        step="statements",
        system="",
        user="Why?",
        reply_type=FreeText,
        inputs=FreeText(text="?"),
        max_output_tokens=1024,
        sampling=sampling,
    )


def completion(text: str, *, finish: str = "stop", reasoning: int = 0) -> tuple[int, Any]:
    spent = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    return 200, {"choices": [choice], "usage": spent}


@pytest.mark.parametrize("text", ["Because.", "", "```json\n{]", "<think>x</think> y"])
async def test_the_text_comes_back_as_it_is(text: str, endpoint: Any, judge: OpenAICompatibleJudge) -> None:
    endpoint.answers = lambda body: completion(text)
    reply = await judge.ask(request())
    assert reply.value == FreeText(text=text)
    [body] = endpoint.requests
    assert body["messages"] == [{"role": "user", "content": "Why?"}]
    assert {"response_format", "tools"}.isdisjoint(body)
    assert (body["max_tokens"], body["temperature"]) == (1024, 0)


@pytest.mark.parametrize("content", [7, ["x"], [{"type": "text", "text": 7}]], ids=str)
async def test_what_is_no_text_is_an_error(content: Any, endpoint: Any, judge: OpenAICompatibleJudge) -> None:
    endpoint.answers = lambda body: completion(content)
    with pytest.raises(JudgeNonsense, match="not a chat completion"):
        await judge.ask(request())


async def test_a_text_that_was_cut_off_says_so(endpoint: Any, judge: OpenAICompatibleJudge) -> None:
    endpoint.answers = lambda body: completion("Because of", finish="length")
    reply = await judge.ask(request())
    assert reply.value == FreeText(text="Because of", cut_off=True)
    assert reply.usage.calls == 1


async def test_prescribed_sampling_is_sent_and_nothing_else(
    endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    endpoint.answers = lambda body: completion("{}")
    await judge.ask(request(RAGAS_LIKE))
    [body] = endpoint.requests
    assert (body["temperature"], body["top_p"]) == (0.01, 0.1)
    assert body["response_format"] == {"type": "json_object"}
    assert "seed" not in body
