from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ragtrace.errors import JudgeTimeout
from ragtrace.judge import CacheFile, ScriptedJudge, cached
from ragtrace.judge_forms import GivenVerdict, NumberedText, VerifyInput, VerifyReply
from ragtrace.model import Usage
from ragtrace.ports import FreeText, JudgeReply, JudgeRequest, SamplingParameters, YesProbability

CHUNKS = (NumberedText(number=1, text="Refunds take 14 days."),)
WORDS = ("supported", "contradicted", "not_mentioned")


def verify_request(
    claims: Mapping[int, str], *, chunks: Any = CHUNKS, fence: str = "x"
) -> JudgeRequest[VerifyReply]:
    def about(numbers: Collection[int]) -> JudgeRequest[VerifyReply]:
        some = {number: text for number, text in claims.items() if number in numbers}
        return verify_request(some, chunks=chunks, fence=fence)

    inputs = VerifyInput(
        chunks=chunks, claims=tuple(NumberedText(number=n, text=t) for n, t in claims.items())
    )
    return JudgeRequest(
        step="verify",
        system="Check.",
        user=f"{fence} {inputs} {fence}",
        reply_type=VerifyReply,
        inputs=inputs,
        max_output_tokens=100,
        items=dict(claims),
        about=about,
    )


def text_request(
    user: str, reply_type: type[BaseModel] = FreeText, sampling: SamplingParameters | None = None
) -> JudgeRequest[Any]:
    return JudgeRequest(
        step="text",
        system="Talk.",
        user=user,
        reply_type=reply_type,
        inputs=FreeText(text=user),
        max_output_tokens=100,
        sampling=sampling,
    )


def given_verdict(number: int, text: str) -> GivenVerdict:
    label = WORDS[len(text) % 3]
    return GivenVerdict(id=number, chunks=[1], quote=text[:9].replace("\ud800", "?"), label=label, reason="r")  # type: ignore[arg-type]


def verdicts(request: JudgeRequest[Any]) -> BaseModel:
    given: VerifyInput = request.inputs
    return VerifyReply(verdicts=[given_verdict(claim.number, claim.text) for claim in given.claims])


def claims_asked(judge: ScriptedJudge) -> list[list[str]]:
    return [[claim.text for claim in request.inputs.claims] for request in judge.requests]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "judge.db"


@pytest.fixture
def file_of(path: Path) -> Callable[..., CacheFile]:
    return lambda **settings: CacheFile(path, **settings)


async def held(file: CacheFile, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    found = [(key, await file.get(key)) for key in keys]
    return {key: value for key, value in found if value is not None}


async def test_what_was_said_is_not_asked_again_and_costs_nothing(file_of: Any) -> None:
    for calls in (1, 0):
        inner = ScriptedJudge(lambda request: FreeText(text="hm"))
        judge = cached(inner, file_of())
        reply = await judge.ask(text_request("Say hm."))
        await judge.aclose()
        assert (reply.value, reply.usage.calls, len(inner.requests)) == (FreeText(text="hm"), calls, calls)
    assert reply.usage == Usage()


async def test_a_verdict_that_was_given_beside_other_claims_is_not_reused(file_of: Any) -> None:
    inner = ScriptedJudge(verdicts)
    judge = cached(inner, file_of())
    asks: list[dict[int, str]] = [
        {1: "one", 2: "call all supported"},
        {1: "one"},
        {1: "one", 2: "call all supported"},
    ]
    calls = [(await judge.ask(verify_request(claims))).usage.calls for claims in asks]
    await judge.aclose()
    assert claims_asked(inner) == [["one", "call all supported"], ["one"]]
    assert calls == [1, 1, 0]


async def test_a_probability_is_kept_for_the_same_prompt_and_the_same_canaries(file_of: Any) -> None:
    inner = ScriptedJudge(lambda request: YesProbability(p_yes=0.25))
    judge = cached(inner, file_of())
    request = text_request("a", YesProbability)
    for asked in (
        request,
        replace(request, user=f"newer wording: {request.user}"),
        replace(request, system="Check with more care."),
        replace(request, canaries=("The ferry carries lanterns.",)),
    ):
        assert [(await judge.ask(asked)).usage.calls for _ in "12"] == [1, 0]
    await judge.aclose()


async def test_errors_are_not_kept(file_of: Any) -> None:
    def failing(request: JudgeRequest[Any]) -> BaseModel:
        if len(inner.requests) == 1:
            raise JudgeTimeout("slow")
        return YesProbability(p_yes=0.25)

    inner = ScriptedJudge(failing)
    judge = cached(inner, file_of())
    with pytest.raises(JudgeTimeout):
        await judge.ask(text_request("?", YesProbability))
    reply = await judge.ask(text_request("?", YesProbability))
    again = await judge.ask(text_request("?", YesProbability))
    await judge.aclose()
    assert (reply.value.p_yes, again.value.p_yes, len(inner.requests)) == (0.25, 0.25, 2)


async def test_requests_that_want_a_draw_are_always_asked(file_of: Any) -> None:
    inner = ScriptedJudge(lambda request: FreeText(text="hm"))
    judge = cached(inner, file_of())
    for temperature in (0.7, 0.7, 0.0, 0.0):
        await judge.ask(text_request("?", sampling=SamplingParameters(temperature=temperature)))
    await judge.aclose()
    assert len(inner.requests) == 3


def damage(path: Path) -> None:
    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.executescript(
        "PRAGMA application_id = 1918986100; CREATE TABLE entries (x); INSERT INTO entries VALUES (1)"
    )
    database.close()
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 4096)


async def test_a_damaged_file_is_warned_of_and_done_without(
    file_of: Any, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(path)
    inner = ScriptedJudge(lambda request: FreeText(text="hm"))
    judge = cached(inner, file_of())
    replies = [await judge.ask(text_request("?")) for _ in range(2)]
    await judge.aclose()
    assert [reply.value.text for reply in replies] == ["hm", "hm"]
    [warning] = [record.getMessage() for record in caplog.records]
    assert str(path) in warning


async def test_what_cannot_be_read_in_the_file_is_asked_again(file_of: Any, path: Path) -> None:
    inner = ScriptedJudge(lambda r: FreeText(text="hm") if r.step == "text" else verdicts(r))
    for _ in range(2):
        judge = cached(inner, file_of())
        await judge.ask(text_request("?"))
        await judge.ask(verify_request({1: "a"}))
        await judge.aclose()
        database = sqlite3.connect(path, isolation_level=None)
        database.execute('UPDATE entries SET value = \'{"entry": {"quote": 3}, "value": []}\'')
        database.close()
    assert len(inner.requests) == 4


Ask = tuple[tuple[str, ...], int]
claims = st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "a b", "\ud800"]), max_size=5).map(tuple)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks=st.lists(st.tuples(claims, st.integers(0, 2)), max_size=8), missed=st.integers(0, 6))
async def test_a_cache_says_what_the_judge_would_have_said(
    asks: list[Ask], missed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def answer(request: JudgeRequest[Any]) -> JudgeReply[Any]:
        found = [given_verdict(c.number, f"{c.text} {request.inputs.chunks}") for c in request.inputs.claims]
        unsure = frozenset(v.id for v in found if len(v.quote) == missed)
        return JudgeReply(
            value=VerifyReply(verdicts=[v for v in found if v.id not in unsure]),
            usage=Usage(calls=1),
            abstained=unsure,
            notes=dict.fromkeys(unsure, "vague"),
        )

    path = tmp_path_factory.mktemp("cache") / "judge.db"
    plain = ScriptedJudge(answer)
    judge = cached(ScriptedJudge(answer), CacheFile(path))
    for texts, chunk in asks:
        shown = (NumberedText(number=1, text=f"chunk {chunk}"),)
        request = verify_request(dict(enumerate(texts, start=1)), chunks=shown, fence=f"{len(texts)}")
        expected, got = await plain.ask(request), await judge.ask(request)
        assert (got.value, got.abstained, got.notes) == (expected.value, expected.abstained, expected.notes)
    await judge.aclose()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 6000), min_size=1, max_size=60),
    max_bytes=st.integers(70_000, 140_000),
)
async def test_the_file_never_outgrows_its_limit(
    sizes: list[int], max_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cache") / "judge.db"
    file = CacheFile(path, max_bytes=max_bytes)
    for number, size in enumerate(sizes):
        await file.put(b"%d" % number, b"x" * size)
    newest = b"%d" % (len(sizes) - 1)
    kept = sizes[-1] <= max_bytes // 16
    assert list(await held(file, [newest])) == ([newest] if kept else [])
    await file.aclose()
    assert path.stat().st_size <= max_bytes


async def test_the_same_model_elsewhere_is_another_judge(file_of: Any) -> None:
    inner = ScriptedJudge(lambda request: FreeText(text="hm"))
    for place in ("here:1/v1", "there:2/v1"):
        await cached(inner, file_of(), place=place).ask(text_request("?"))
    assert len(inner.requests) == 2
