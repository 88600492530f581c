"""Asking for the probability of a *yes*, on servers that give log-probabilities each in its own way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ragtrace.errors import JudgeNonsense, JudgeUnable
from ragtrace.judge.openai import Likelihoods, OpenAICompatibleJudge
from ragtrace.ports import FreeText, JudgeRequest, YesProbability
from tests.integration.judge.conftest import rejection

Places = list[dict[str, float]]
"""Probabilities of the likeliest tokens, place by place."""


def request() -> JudgeRequest[YesProbability]:
    return JudgeRequest(
        step="verify",
        system="Answer Yes or No.",
        user="Is it?",
        reply_type=YesProbability,
        inputs=FreeText(text="?"),
        max_output_tokens=16,
    )


def completion(places: Places | None, *, text: str = "Yes", legacy: bool = False) -> tuple[int, Any]:
    logs = [{token: math.log(p) for token, p in place.items()} for place in places or ()]
    content = [
        {"token": max(log, key=log.__getitem__, default="Yes"), "logprob": -0.1, "top_logprobs": tops(log)}
        for log in logs
    ]
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "message": {"content": text}}
    if places is not None:
        choice["logprobs"] = {"top_logprobs": logs} if legacy else {"content": content}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 30, "completion_tokens": 1}}


def tops(log: dict[str, float]) -> list[dict[str, Any]]:
    return [{"token": token, "logprob": value} for token, value in log.items()]


async def test_one_token_is_asked_for_with_the_likeliest_twenty(
    endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    endpoint.answers = lambda body: completion([{"Yes": 0.6, "No": 0.2}])
    reply = await judge.ask(request())
    [body] = endpoint.requests
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)
    assert "response_format" not in body
    assert reply.value.p_yes == pytest.approx(0.75)
    assert (reply.usage.calls, reply.usage.input_tokens) == (1, 30)


@pytest.mark.parametrize(
    ("place", "p_yes"),
    [
        ({"Yes": 0.3, " yes": 0.2, "YES": 0.1, "No": 0.1, " no": 0.1}, 0.75),
        ({"▁Yes": 0.5, "ĠNo": 0.5}, 0.5),
        ({'"no': 0.9, "Yes,": 0.1}, 0.1),
        ({"The": 0.5, "No": 0.4, "Not": 0.1}, 0.0),
    ],
    ids=str,
)
async def test_every_spelling_of_yes_and_no_counts(
    place: dict[str, float], p_yes: float, endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    endpoint.answers = lambda body: completion([place])
    assert (await judge.ask(request())).value.p_yes == pytest.approx(p_yes)


async def test_a_model_that_says_something_else_has_no_probability(
    endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    place = {"The": 0.99, "Yes": 0.001, "No": 0.0001}
    endpoint.answers = lambda body: completion([place], text="The")
    with pytest.raises(JudgeNonsense) as caught:
        await judge.ask(request())
    assert caught.value.usage.calls == 1


async def test_a_model_that_begins_with_a_blank_is_read_on_from_then_on(
    endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    places: Places = [{"\n": 0.9, "Yes": 0.1}, {" **": 1.0}, {"No": 0.8, "Yes": 0.2}]
    endpoint.answers = lambda body: (
        completion(places[:1], text="\n") if body["max_tokens"] == 1 else completion(places, text="\n **No")
    )
    assert (await judge.ask(request())).value.p_yes == pytest.approx(0.2)
    await judge.ask(request())
    assert [body["max_tokens"] for body in endpoint.requests] == [1, 8, 8]


async def test_a_model_that_thinks_first_is_unable(endpoint: Any, judge: OpenAICompatibleJudge) -> None:
    endpoint.answers = lambda body: completion([{"<think>": 1.0}], text="<think>")
    with pytest.raises(JudgeUnable, match="reasons before it answers"):
        await judge.ask(request())


async def test_a_server_that_gives_five_at_most_is_asked_for_five(
    endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    endpoint.answers = lambda body: (
        completion([{"Yes": 1.0}])
        if body["top_logprobs"] <= 5
        else rejection("top_logprobs must be at most 5")
    )
    await judge.ask(request())
    await judge.ask(request())
    assert [body["top_logprobs"] for body in endpoint.requests] == [20, 5, 5]
    assert judge.likelihoods is Likelihoods.TOP_5


async def test_a_server_that_wants_a_number_gets_one(endpoint: Any, judge: OpenAICompatibleJudge) -> None:
    endpoint.answers = lambda body: (
        rejection("logprobs: Input should be a valid integer")
        if body["logprobs"] is True
        else completion([{"Yes": 0.6, "No": 0.4}], legacy=True)
    )
    assert (await judge.ask(request())).value.p_yes == pytest.approx(0.6)
    assert endpoint.requests[-1]["logprobs"] == 5
    assert "top_logprobs" not in endpoint.requests[-1]


@pytest.mark.parametrize(
    "answer", [completion(None), rejection("logprobs is not supported")], ids=["without", "refused"]
)
async def test_a_server_without_likelihoods_is_found_out_once(
    answer: Any, endpoint: Any, judge: OpenAICompatibleJudge
) -> None:
    endpoint.answers = lambda body: answer
    with pytest.raises(JudgeUnable, match="no log-probabilities"):
        await judge.ask(request())
    asked = len(endpoint.requests)
    with pytest.raises(JudgeUnable) as caught:
        await judge.ask(request())
    assert len(endpoint.requests) == asked == 3
    assert caught.value.usage.calls == 0
