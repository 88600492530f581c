"""``anthropic:MODEL``: Anthropic's routes for OpenAI's protocol, its own key and address."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeUnable,
    JudgeUnavailable,
)
from ragtrace.judge import open_judge
from ragtrace.ports import JudgeReply, JudgeRequest, YesProbability
from tests.integration.judge.test_openai_compatible import GOOD, completion, rejection
from tests.integration.judge.test_openai_compatible import request as form
from tests.integration.judge.test_openai_likelihoods import request as yes_or_no

KEYS = {"ANTHROPIC_API_KEY": "sk-ant", "OPENAI_API_KEY": "sk-of-openai"}


async def ask(endpoint: Any, asked: JudgeRequest[Any], **settings: Any) -> JudgeReply[Any]:
    given = {"environ": KEYS, "base_url": endpoint.url.removesuffix("/v1"), "max_retries": 0, **settings}
    judge = open_judge("anthropic:claude", **given)
    try:
        assert (judge.identity.provider, judge.identity.model) == ("anthropic", "claude")
        return await judge.ask(asked)
    finally:
        await judge.aclose()


def called(value: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "extract", "arguments": json.dumps(value)}}
    return completion("", tool_calls=[call])


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_a_form_is_asked_for_as_a_tool_at_once(path: str, endpoint: Any) -> None:
    endpoint.answers = lambda body: (200, called(GOOD))
    url = endpoint.url.removesuffix("/v1") + path
    environ = {**KEYS, "ANTHROPIC_BASE_URL": url}
    reply = await ask(endpoint, form(), base_url=None, environ=environ)
    [body], [headers] = endpoint.requests, endpoint.headers
    assert reply.value.claims[0].text == "It rains."
    assert body["tool_choice"] == {"type": "function", "function": {"name": "extract"}}
    assert "response_format" not in body
    assert headers["authorization"] == "Bearer sk-ant"
    assert (reply.usage.calls, reply.usage.input_tokens) == (1, 100)


async def test_it_has_no_probabilities(endpoint: Any) -> None:
    asked: JudgeRequest[YesProbability] = yes_or_no()
    with pytest.raises(JudgeUnable, match="no log-probabilities"):
        await ask(endpoint, asked)
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (rejection("Your credit balance is too low to access the API"), JudgeRefused),
        (rejection("prompt is too long: 210000 tokens > 200000 maximum"), JudgeNonsense),
        (rejection("no", status=402, type="billing_error"), JudgeRefused),
        (rejection("no", status=529, type="overloaded_error"), JudgeUnavailable),
        ((200, rejection("no", type="overloaded_error")[1]), JudgeUnavailable),
        ((200, rejection("no", type="authentication_error")[1]), JudgeRefused),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_its_own_ways_to_fail_have_their_errors(
    answer: Any, expected: type[JudgeError], endpoint: Any
) -> None:
    endpoint.answers = lambda body: answer
    with pytest.raises(JudgeError) as caught:
        await ask(endpoint, form())
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("spec", "settings", "named"),
    [
        ("anthropic:", {}, "anthropic:MODEL"),
        ("anthropic:m", {"environ": {}}, "ANTHROPIC_API_KEY"),
        ("anthropic:m", {"environ": {}, "api_key_env": "MY_KEY"}, "MY_KEY"),
        ("anthropic:m", {"environ": KEYS, "base_url": "localhost:80"}, "localhost"),
    ],
)
def test_a_wrong_setting_is_named(spec: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        open_judge(spec, **settings)
