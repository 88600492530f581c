from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeNonsense, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.judge import (
    Backoff,
    CacheSettings,
    JudgeSettings,
    Limited,
    Metered,
    Retrying,
    ScriptedJudge,
    open_judge,
    spent_by,
    unwrapped,
)
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import FreeText, Judge, JudgeReply, JudgeRequest

TEN = Usage(calls=1, input_tokens=10, output_tokens=1, cached_tokens=4, reasoning_tokens=1)


def text_request(reply_type: type[BaseModel] = FreeText) -> JudgeRequest[Any]:
    return JudgeRequest(
        step="text",
        system="Talk.",
        user="?",
        reply_type=reply_type,
        inputs=FreeText(text="?"),
        max_output_tokens=100,
    )


class Waits:
    """Time that passes without waiting."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


def failing(*errors: JudgeError, kind: type[ScriptedJudge] = ScriptedJudge) -> ScriptedJudge:
    """Return a judge that raises the errors one after the other, then answers."""
    left = list(errors)

    def respond(request: JudgeRequest[Any]) -> JudgeReply[Any]:
        if left:
            raise left.pop(0)
        return JudgeReply(value=FreeText(text="hm"), usage=TEN)

    return kind(respond)


def busy(retry_after_s: float | None = None, calls: int = 0) -> JudgeUnavailable:
    return JudgeUnavailable("busy", usage=Usage(calls=calls), retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    ("error", "asked", "pauses"),
    [
        (busy(), 3, 2),
        (busy(retry_after_s=3600), 1, 0),  # longer than its patience
        *((kind("no"), 1, 0) for kind in (JudgeTimeout, JudgeRefused, JudgeNonsense)),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_retries_end_and_begin_only_where_they_may_help(
    error: JudgeError, asked: int, pauses: int
) -> None:
    waits, inner = Waits(), failing(*[error] * 9)
    with pytest.raises(type(error)) as caught:
        await Retrying(inner, Backoff(max_retries=2), sleep=waits.sleep).ask(text_request())
    assert (len(inner.requests), len(waits.taken), caught.value) == (asked, pauses, error)


@given(
    retry=st.integers(0, 2000),
    told=st.none() | st.floats(0, 1e9),
    draw=st.floats(0, 1, exclude_max=True),
    most=st.integers(0, 2000),
)
def test_no_pause_is_shorter_than_asked_for_or_longer_than_patience(
    retry: int, told: float | None, draw: float, most: int
) -> None:
    backoff = Backoff(max_retries=most)
    waited = backoff.wait_s(retry, told, draw)
    if retry >= most or (told or 0) > backoff.max_retry_after_s:
        assert waited is None
    else:
        assert waited is not None
        assert (told or 0.0) <= waited <= (backoff.longest_wait_s if told is None else told * 1.25)


async def test_a_judge_knows_what_it_spent_failures_included() -> None:
    judge = Limited(Metered(failing(JudgeNonsense("no", usage=TEN))), 1)
    with pytest.raises(JudgeNonsense):
        await judge.ask(text_request())
    await judge.ask(text_request())
    assert spent_by(judge) == TEN + TEN
    assert spent_by(unwrapped(judge)) == Usage()


class Talker(ScriptedJudge):
    """A scripted judge that passes for a language model."""

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="test", model="talker")


INNER: list[ScriptedJudge] = []


def open_inner(_settings: JudgeSettings) -> ScriptedJudge:
    return INNER.pop()


def around(judge: ScriptedJudge, tmp_path: Any, timeout_s: float = 60.0) -> Judge:
    INNER.append(judge)
    cache = CacheSettings(path=tmp_path / "judge.db")
    return open_judge(f"{__name__}:open_inner", timeout_s=timeout_s, max_concurrency=2, cache=cache)


async def test_together_the_layers_retry_count_and_remember(tmp_path: Any) -> None:
    inner = failing(busy(calls=1, retry_after_s=0.001), kind=Talker)
    judge = around(inner, tmp_path)
    replies = [await judge.ask(text_request()) for _ in range(2)]
    await judge.aclose()
    assert (len(inner.requests), [reply.usage.calls for reply in replies]) == (2, [2, 0])
    assert spent_by(judge) == TEN + Usage(calls=1)


async def test_a_judge_that_computes_is_not_remembered(tmp_path: Any) -> None:
    judge = around(ScriptedJudge(lambda request: FreeText(text="hm")), tmp_path)
    await judge.ask(text_request())
    await judge.aclose()
    assert list(tmp_path.iterdir()) == []
