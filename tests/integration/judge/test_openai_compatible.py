"""``openai:MODEL``: what is asked of an endpoint and read of it, each server in its own way."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ragtrace.errors import (
    ConfigError,
    JudgeCutOff,
    JudgeDeclined,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeUnable,
    JudgeUnavailable,
)
from ragtrace.judge import open_judge
from ragtrace.judge.openai import LanguageModelJudge, Likelihoods, OutputMode
from ragtrace.judge_forms import ExtractInput, ExtractReply, NumberedText
from ragtrace.model import Usage
from ragtrace.ports import FreeText, JudgeRequest, YesProbability
from tests.integration.judge.conftest import SECRET, rejection

QUESTION = "TOPSECRET-QUESTION"
GOOD = {
    "claims": [{"id": 1, "sentence_ids": [1], "text": "It rains.", "kind": "factual", "relevance": "direct"}],
    "refusal": False,
}


def completion(content: Any, *, finish: str = "stop", reasoning: int = 0, **message: Any) -> dict[str, Any]:
    text = content if isinstance(content, str) else json.dumps(content)
    choice = {"finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    spent = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}
    return {"choices": [choice], "usage": spent | details}


def request() -> JudgeRequest[ExtractReply]:
    given = ExtractInput(question=QUESTION, sentences=(NumberedText(number=1, text="It rains."),))
    return JudgeRequest(
        step="extract",
        system="Extract.",
        user=QUESTION,
        reply_type=ExtractReply,
        inputs=given,
        max_output_tokens=400,
    )


def rung_of(body: dict[str, Any]) -> OutputMode:
    if "tools" in body:
        return OutputMode.TOOLS
    kind = body.get("response_format", {}).get("type", "text")
    return OutputMode(kind)


async def test_a_request_bounds_its_schema_and_its_tokens_and_usage_counts_all_kinds(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: (200, completion(GOOD, reasoning=7))
    reply = await judge.ask(request())
    assert reply.value == ExtractReply.model_validate(GOOD)
    spent = Usage(calls=1, input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=7)
    assert reply.usage == spent
    [body] = endpoint.requests
    schema = body["response_format"]["json_schema"]
    claim = schema["schema"]["properties"]["claims"]["items"]
    assert schema["strict"] is True
    assert claim["additionalProperties"] is False
    assert claim["properties"]["text"]["maxLength"] == 1000
    assert sorted(claim["required"]) == sorted(claim["properties"])
    assert (body["temperature"], body["max_tokens"]) == (0, 400)
    assert endpoint.headers[0]["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("works", list(OutputMode))
async def test_the_ladder_stops_at_the_first_rung_the_endpoint_takes(
    works: OutputMode, endpoint: Any, judge: LanguageModelJudge
) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if rung_of(body) is not works:
            return rejection("'response_format' is not supported")
        if works is OutputMode.TOOLS:
            call = {
                "id": "c",
                "type": "function",
                "function": {"name": "extract", "arguments": json.dumps(GOOD)},
            }
            return 200, completion("", tool_calls=[call])
        return 200, completion(GOOD)

    endpoint.answers = answer
    first = await judge.ask(request())
    tried = [rung_of(body) for body in endpoint.requests]
    await judge.ask(request())
    assert judge.output_mode is works
    assert tried == list(OutputMode)[: list(OutputMode).index(works) + 1]
    assert [rung_of(body) for body in endpoint.requests[len(tried) :]] == [works]
    assert first.usage.calls == len(tried)


async def test_an_endpoint_that_ignores_the_form_is_met_on_a_lower_rung(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: (
        200,
        completion("It rains!" if "schema of the reply" not in body["messages"][0]["content"] else GOOD),
    )
    reply = await judge.ask(request())
    assert reply.value.claims[0].text == "It rains."
    assert judge.output_mode is OutputMode.JSON_OBJECT
    assert reply.usage.calls == 3


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0 with this model."),
        ("seed", "Unrecognized request argument supplied: seed"),
        ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
    ],
)
async def test_an_unsupported_parameter_is_dropped_once_and_for_all(
    parameter: str, message: str, endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: rejection(message) if parameter in body else (200, completion(GOOD))
    await judge.ask(request())
    await judge.ask(request())
    assert [parameter in body for body in endpoint.requests] == [True, False, False]
    assert judge.output_mode is OutputMode.JSON_SCHEMA
    if parameter == "max_tokens":
        assert endpoint.requests[-1]["max_completion_tokens"] == 400


async def test_a_reply_of_the_wrong_form_is_sent_back_once(endpoint: Any) -> None:
    endpoint.answers = lambda body: (200, completion({"claims": 3}))
    judge = open_judge("openai:m", base_url=endpoint.url)
    with pytest.raises(JudgeNonsense, match=r"does not have the form that was asked for, twice$") as caught:
        await judge.ask(request())
    assert caught.value.usage.calls == len(endpoint.requests) == 2
    assert len(endpoint.requests[-1]["messages"]) == 4
    await judge.aclose()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, completion(GOOD, finish="length")), JudgeCutOff),
        ((200, completion("", finish="content_filter")), JudgeDeclined),
        ((200, completion("", refusal="I won't")), JudgeDeclined),
        ((200, {}), JudgeNonsense),
        ((200, b"<html>"), JudgeNonsense),
        (rejection("no", status=401, code="invalid_api_key"), JudgeRefused),
        (rejection("no", status=413), JudgeNonsense),
        (rejection("no", status=429), JudgeUnavailable),
        (rejection("no", status=429, code="insufficient_quota"), JudgeRefused),
        (rejection("no", status=500), JudgeUnavailable),
        (rejection("no", code="content_filter"), JudgeDeclined),
        (rejection("no", code="context_length_exceeded"), JudgeNonsense),
        (rejection("the request exceeds the available context size"), JudgeNonsense),
        (rejection("never"), JudgeRefused),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_each_way_to_fail_has_its_error(
    answer: Any, expected: type[JudgeError], endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: answer
    with pytest.raises(JudgeError) as caught:
        await judge.ask(request())
    assert type(caught.value) is expected


async def test_reasoning_that_used_up_the_limit_gets_more_room(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: (
        (200, completion(GOOD, reasoning=900))
        if body["max_tokens"] > 3000
        else (200, completion("", finish="length", reasoning=900))
    )
    await judge.ask(request())
    await judge.ask(request())
    assert [body["max_tokens"] for body in endpoint.requests] == [400, 4000, 4000]


async def test_errors_never_quote_prompts_or_keys(endpoint: Any, judge: LanguageModelJudge) -> None:
    endpoint.answers = lambda body: rejection(
        f"bad key {SECRET} for {QUESTION}", status=401, code=f"bad key {SECRET}"
    )
    with pytest.raises(JudgeRefused) as caught:
        await judge.ask(request())
    told = f"{caught.value} {caught.value.__cause__!r}"
    assert SECRET not in told
    assert QUESTION not in told
    assert "environment variable" in told


@pytest.mark.parametrize(
    ("spec", "settings", "named"),
    [
        ("openai:m", {"environ": {}}, "OPENAI_API_KEY"),
        ("openai:m", {"environ": {}, "api_key_env": "MY_KEY", "base_url": "http://x/v1"}, "MY_KEY"),
        ("openai:m", {"environ": {"OPENAI_BASE_URL": "localhost:80"}}, "OPENAI_BASE_URL"),
        ("gpt-4o", {}, "lexical"),
        ("scripted:/nowhere.json", {}, "/nowhere.json"),
    ],
)
def test_a_wrong_judge_setting_is_named(spec: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        open_judge(spec, **settings)


Places = list[dict[str, float]]
"""Probabilities of the likeliest tokens, place by place."""


def yes_request() -> JudgeRequest[YesProbability]:
    return JudgeRequest(
        step="verify",
        system="Answer Yes or No.",
        user="Is it?",
        reply_type=YesProbability,
        inputs=FreeText(text="?"),
        max_output_tokens=16,
    )


def likely(places: Places | None, *, text: str = "Yes") -> tuple[int, Any]:
    logs = [{token: math.log(p) for token, p in place.items()} for place in places or ()]
    content = [
        {"token": max(log, key=log.__getitem__, default="Yes"), "logprob": -0.1, "top_logprobs": tops(log)}
        for log in logs
    ]
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "message": {"content": text}}
    if places is not None:
        choice["logprobs"] = {"content": content}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 30, "completion_tokens": 1}}


def tops(log: dict[str, float]) -> list[dict[str, Any]]:
    return [{"token": token, "logprob": value} for token, value in log.items()]


async def test_one_token_is_asked_for_with_the_likeliest_twenty(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: likely([{"Yes": 0.6, "No": 0.2}])
    reply = await judge.ask(yes_request())
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
    place: dict[str, float], p_yes: float, endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: likely([place])
    assert (await judge.ask(yes_request())).value.p_yes == pytest.approx(p_yes)


async def test_a_model_that_says_something_else_has_no_probability(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: likely([{"The": 0.99, "Yes": 0.001, "No": 0.0001}], text="The")
    with pytest.raises(JudgeNonsense) as caught:
        await judge.ask(yes_request())
    assert caught.value.usage.calls == 1


async def test_a_model_that_begins_with_a_blank_is_read_on_from_then_on(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    places: Places = [{"\n": 0.9, "Yes": 0.1}, {" **": 1.0}, {"No": 0.8, "Yes": 0.2}]
    endpoint.answers = lambda body: (
        likely(places[:1], text="\n") if body["max_tokens"] == 1 else likely(places, text="\n **No")
    )
    assert (await judge.ask(yes_request())).value.p_yes == pytest.approx(0.2)
    await judge.ask(yes_request())
    assert [body["max_tokens"] for body in endpoint.requests] == [1, 8, 8]


async def test_a_model_that_thinks_first_is_unable(endpoint: Any, judge: LanguageModelJudge) -> None:
    endpoint.answers = lambda body: likely([{"<think>": 1.0}], text="<think>")
    with pytest.raises(JudgeUnable, match="reasons before it answers"):
        await judge.ask(yes_request())


async def test_a_server_that_gives_five_at_most_is_asked_for_five(
    endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: (
        likely([{"Yes": 1.0}]) if body["top_logprobs"] <= 5 else rejection("top_logprobs must be at most 5")
    )
    await judge.ask(yes_request())
    await judge.ask(yes_request())
    assert [body["top_logprobs"] for body in endpoint.requests] == [20, 5, 5]
    assert judge.likelihoods is Likelihoods.TOP_5


@pytest.mark.parametrize(
    "answer", [likely(None), rejection("logprobs is not supported")], ids=["without", "refused"]
)
async def test_a_server_without_likelihoods_is_found_out_once(
    answer: Any, endpoint: Any, judge: LanguageModelJudge
) -> None:
    endpoint.answers = lambda body: answer
    with pytest.raises(JudgeUnable, match="no log-probabilities"):
        await judge.ask(yes_request())
    asked = len(endpoint.requests)
    with pytest.raises(JudgeUnable) as caught:
        await judge.ask(yes_request())
    assert len(endpoint.requests) == asked == 2
    assert caught.value.usage.calls == 0
