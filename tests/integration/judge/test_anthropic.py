"""``anthropic:MODEL``: Anthropic's Messages API, its own key and address."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragtrace.errors import (
    JudgeCutOff,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeUnavailable,
)
from ragtrace.judge import open_judge
from ragtrace.judge_forms import ExtractInput, ExtractReply, NumberedText
from ragtrace.ports import JudgeReply, JudgeRequest, SamplingParameters

SECRET = "sk-ant-very-secret"
QUESTION = "TOPSECRET-QUESTION"
GOOD: dict[str, Any] = {
    "claims": [{"id": 1, "sentence_ids": [1], "text": "It rains.", "kind": "factual", "relevance": "direct"}],
    "refusal": False,
}


def message(*content: dict[str, Any], stop: str = "tool_use") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 30,
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 7},
        },
    }


def called(value: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": "extract", "input": value}


def written(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def rejection(text: str, *, status: int = 400, kind: str = "invalid_request_error") -> tuple[int, Any]:
    return status, {"type": "error", "error": {"type": kind, "message": text}}


def request(reply_type: Any = ExtractReply, sampling: SamplingParameters | None = None) -> JudgeRequest[Any]:
    given = ExtractInput(question=QUESTION, sentences=(NumberedText(number=1, text="It rains."),))
    return JudgeRequest(
        step="extract",
        system="Extract.",
        user=f"{QUESTION} \ud800",
        reply_type=reply_type,
        inputs=given,
        max_output_tokens=400,
        sampling=sampling,
    )


def opened(endpoint: Any, **settings: Any) -> Any:
    environ = {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": endpoint.url.removesuffix("/v1")}
    return open_judge("anthropic:claude", **{"environ": environ, "max_retries": 0, **settings})


async def ask(endpoint: Any, *asked: JudgeRequest[Any], **settings: Any) -> JudgeReply[Any]:
    """Ask one judge each of the requests; return the last reply."""
    judge = opened(endpoint, **settings)
    try:
        assert (judge.identity.provider, judge.identity.model) == ("anthropic", "claude")
        return [await judge.ask(each) for each in asked or (request(),)][-1]
    finally:
        await judge.aclose()


async def test_a_form_is_asked_for_as_the_input_of_a_tool(endpoint: Any) -> None:
    endpoint.answers = lambda body: (200, message(called(GOOD)))
    reply = await ask(endpoint)
    [body], [headers] = endpoint.requests, endpoint.headers
    assert reply.value == ExtractReply.model_validate(GOOD)
    assert body["tool_choice"] == {"type": "tool", "name": "extract"}
    assert body["tools"][0]["input_schema"]["additionalProperties"] is False
    assert (body["temperature"], body["max_tokens"]) == (0, 400)
    assert " ".join(headers.values()).count(SECRET) == 1  # the SDK's version says in which
    assert headers["anthropic-version"]
    spent = reply.usage  # with what the provider counts apart
    assert (spent.calls, spent.input_tokens, spent.cached_tokens) == (1, 100, 60)
    assert (spent.output_tokens, spent.reasoning_tokens) == (20, 7)


@pytest.mark.parametrize(
    ("refuses", "complaint"),
    [
        ("temperature", "temperature: Extra inputs are not permitted"),
        ("cache_control", "system.0.cache_control: Extra inputs are not permitted"),
        ("maxLength", "tools.0.input_schema: a keyword is not supported"),
        ("tools", "tools: not supported by this model"),
    ],
)
async def test_what_the_endpoint_refuses_is_left_out_once_and_for_all(
    refuses: str, complaint: str, endpoint: Any
) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        shown = {**body, "system": body["system"] if refuses == "cache_control" else ""}
        if f'"{refuses}"' in json.dumps(shown):
            return rejection(complaint)
        return 200, message(written(f"Here: {json.dumps(GOOD)}"), stop="end_turn")

    endpoint.answers = answer
    judge = opened(endpoint)
    await judge.ask(request())
    first = len(endpoint.requests)
    await judge.ask(request())
    await judge.aclose()
    assert len(endpoint.requests) == first + 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, message(called(GOOD), stop="max_tokens")), JudgeCutOff),
        ((200, message(called({"claims": 3}))), JudgeNonsense),
        ((200, b"<html>"), JudgeNonsense),
        (rejection("Your credit balance is too low to access the API"), JudgeRefused),
        (rejection("prompt is too long: 210000 tokens > 200000 maximum"), JudgeNonsense),
        (rejection("no", status=429, kind="rate_limit_error"), JudgeUnavailable),
        (rejection("no", status=529, kind="overloaded_error"), JudgeUnavailable),
        ((200, rejection("prompt is too long: 210000 tokens > 200000 maximum")[1]), JudgeNonsense),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_each_way_to_fail_has_its_error(answer: Any, expected: type[JudgeError], endpoint: Any) -> None:
    endpoint.answers = lambda body: answer
    with pytest.raises(JudgeError) as caught:
        await ask(endpoint)
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("login", "headers", "sent"),
    [
        ("me:p%40w@", {}, {"authorization": "Basic bWU6cEB3"}),
        ("", {"Authorization": "Bearer of-a-gateway"}, {"authorization": "Bearer of-a-gateway"}),
        ("", {"x-api-key": "of-a-gateway"}, {"x-api-key": "of-a-gateway"}),
    ],
)
async def test_a_login_or_a_header_replaces_the_key(
    login: str, headers: dict[str, str], sent: dict[str, str], endpoint: Any
) -> None:
    endpoint.answers = lambda body: (200, message(called(GOOD)))
    url = endpoint.url.removesuffix("/v1").replace("//", f"//{login}")
    await ask(endpoint, base_url=url, headers=headers, extra_body={"service_tier": "standard_only"})
    [body], [received] = endpoint.requests, endpoint.headers
    keys = {name: value for name, value in received.items() if name in ("authorization", "x-api-key")}
    assert keys == sent
    assert body["service_tier"] == "standard_only"
