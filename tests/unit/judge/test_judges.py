"""How a judge is opened, asked again, counted, limited and remembered, and its replies read."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.judge import (
    AdaptiveLimiter,
    Backoff,
    JudgeSettings,
    Paced,
    Retrying,
    ScriptedJudge,
    judge_named_by,
    open_judge,
    spent_by,
    unwrapped,
)
from ragtrace.judge.lexical import LexicalJudge
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply
from ragtrace.judge_forms import VerifyReply
from ragtrace.model import Chunk, JudgeIdentity, RagRecord, Usage
from ragtrace.pipeline import evaluate
from ragtrace.ports import FreeText, Judge, JudgeReply, JudgeRequest
from tests.patience import PATIENCE_S

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


async def test_a_judge_that_keeps_silent_is_timed_out() -> None:
    silent = Paced(ScriptedJudge(gate=asyncio.Event()), 1, 0.01)
    [failure] = (await evaluate(RECORD, judge=silent)).failures
    assert failure.error_type == JudgeTimeout.error_type


def test_the_environment_names_the_judge_or_gives_the_lexical_one() -> None:
    judge = open_judge(judge_named_by({}), environ={})
    assert isinstance(unwrapped(judge), LexicalJudge)
    for environ, model in [
        ({"OPENAI_API_KEY": "k"}, "gpt-4o-mini"),
        ({"OPENAI_BASE_URL": "http://localhost:11434/v1", "RAGTRACE_JUDGE_MODEL": "qwen3"}, "qwen3"),
    ]:
        identity = open_judge(judge_named_by(environ), environ=environ).identity
        assert (identity.provider, identity.model) == ("openai", model), environ


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


async def test_retries_end_and_begin_only_where_they_may_help() -> None:
    for error, asked, pauses in [
        (busy(), 3, 2),
        (busy(retry_after_s=3600), 1, 0),  # longer than its patience
        *((kind("no"), 1, 0) for kind in (JudgeTimeout, JudgeRefused, JudgeNonsense)),
    ]:
        waits, inner = Waits(), failing(*[error] * 9)
        with pytest.raises(type(error)) as caught:
            await Retrying(inner, Backoff(max_retries=2), sleep=waits.sleep).ask(text_request())
        assert (len(inner.requests), len(waits.taken), caught.value) == (asked, pauses, error), error


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
    judge = Retrying(failing(JudgeNonsense("no", usage=TEN)), Backoff())
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
    cache = tmp_path / "judge.db"
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


async def one(limiter: AdaptiveLimiter, failure: JudgeError | None = None) -> None:
    with suppress(JudgeError):
        async with limiter.turn():
            if failure:
                raise failure


async def test_an_overload_halves_the_pace_and_a_clean_round_raises_it_by_one() -> None:
    for failure, pace in [(JudgeUnavailable("429"), 2), (JudgeTimeout("late"), 2), (JudgeNonsense("?"), 4)]:
        limiter = AdaptiveLimiter(4)
        await one(limiter, failure)
        assert limiter.limit == pace, failure
    await one(limiter, JudgeUnavailable("429"))
    limits = []
    for _ in range(7):
        await one(limiter)
        limits.append(limiter.limit)
    assert limits == [2, 3, 3, 3, 4, 4, 4]


@given(most=st.integers(1, 6), ends=st.lists(st.sampled_from(["clean", "overload", "cancel"]), max_size=40))
async def test_never_more_are_under_way_than_allowed_and_no_slot_is_lost(most: int, ends: list[str]) -> None:
    limiter = AdaptiveLimiter(most)
    under_way = peak = 0

    async def request(end: str) -> None:
        nonlocal under_way, peak
        async with limiter.turn():
            under_way += 1
            peak = max(peak, under_way)
            try:
                await asyncio.sleep(0)
                if end == "overload":
                    raise JudgeUnavailable("429")
                if end == "cancel":
                    raise asyncio.CancelledError
            finally:
                under_way -= 1

    await asyncio.gather(*map(request, ends), return_exceptions=True)
    assert peak <= most
    for _ in range(most * most + most):
        await one(limiter)
    assert limiter.limit == most
    await asyncio.wait_for(asyncio.gather(*(one(limiter) for _ in range(most))), PATIENCE_S)


EMPTY = VerifyReply(verdicts=[])


@given(st.text(max_size=200))
def test_any_text_that_is_no_reply_says_so(text: str) -> None:
    with pytest.raises((NotJson, InvalidReply), match=r"."):
        parse_reply(text.replace("verdicts", ""), VerifyReply)


@given(st.text(alphabet="ab {}[]\n`,", max_size=40), st.text(alphabet="ab }]\n`,", max_size=40))
def test_a_reply_is_found_whatever_stands_around_it(before: str, after: str) -> None:
    assert parse_reply(f"{before} {json.dumps(EMPTY.model_dump())} {after}", VerifyReply) == EMPTY


def test_what_is_wrong_does_not_quote_the_reply() -> None:
    with pytest.raises(InvalidReply) as caught:
        parse_reply('{"verdicts": [{"id": "SECRET"}]}', VerifyReply)
    assert "verdicts.0.id" in str(caught.value)
    assert "SECRET" not in str(caught.value)
