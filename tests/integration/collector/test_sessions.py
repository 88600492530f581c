"""Conversations judged as a whole: one span under the last answer, whatever the order in which turns come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

from ragtrace import semconv
from ragtrace.conversations import SessionName
from ragtrace.errors import JudgeNonsense
from ragtrace.judge import JudgeSettings, ScriptedJudge
from ragtrace.ports import Judge, JudgeRequest
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.leaning_turns import RESOLVING, claims_by_trace, leaning
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import START_NS, rag_trace, trace_id_of

QUIET_S, IDLE_S, KEEP_S = 5, 600, 3_600
SECOND_NS: Final = 10**9
FACTS: Final = "Refunds take 14 days. Shipping takes 3 days."


def config(
    folder: Path,
    *,
    judge: Mapping[str, Any] | None = None,
    others: Mapping[str, Any] | None = None,
    **sessions: Any,
) -> CollectorConfig:
    return config_of(
        folder,
        assemble={"quiet_period": f"{QUIET_S}s", "deadline": "60s", "linger": "10s"},
        judge=judge or {"use": "scripted"},
        evaluate={"metrics": ["faithfulness"]},
        sessions={"enabled": True, "idle": f"{IDLE_S}s", "max_length": f"{KEEP_S}s", **sessions},
        **(others or {}),
    )


def turn(number: int, answer: str, *, chunks: Sequence[str] = (FACTS,)) -> list[Span]:
    """Return the spans of a turn of a session; turns are a minute apart."""
    spans = rag_trace(number, answer=answer, chunks=chunks, start_ns=START_NS + number * 60 * SECOND_NS)
    return [replace(span, attributes={**span.attributes, semconv.SESSION_ID: "chat-1"}) for span in spans]


async def receive(spans: Stepped, *turns: Sequence[Span]) -> None:
    for one in turns:
        await spans.send(*one)
        await spans.pass_time(QUIET_S)


def sessions_in(carriers: Sequence[Span]) -> list[Span]:
    return [span for span in carriers if span.name.startswith(semconv.SESSION_SPAN)]


def numbers(span: Span) -> dict[str, Any]:
    names = ("turns", "decided", "faithful", "contradictions", "corrections", "repeated_claims", "unchecked")
    return {name: span.attributes[f"ragtrace.session.{name}"] for name in names}


def events(span: Span, name: str) -> list[Mapping[str, Any]]:
    return [event.attributes for event in span.events if event.name == name]


GOOD, OPPOSITE, INVENTED = "Refunds take 14 days.", "Refunds take 30 days.", "Refunds need a blue form."
TOLD: Final = [
    turn(0, GOOD),
    turn(1, INVENTED),
    turn(2, OPPOSITE, chunks=["Refunds take 30 days."]),
    turn(3, INVENTED),
]


def check_told(span: Span) -> None:
    """See that the span says what the four turns come to."""
    assert (span.trace_id, span.parent_span_id) == (trace_id_of(3), TOLD[3][0].span_id)
    assert span.name == "session fail"
    assert [*numbers(span).values()] == [4, 4, 2, 1, 0, 1, 0]
    assert span.attributes[semconv.SESSION_FAITHFUL_SHARE] == 0.5
    assert span.resource.attributes[semconv.SERVICE_NAME] == "shop"
    (conflict,) = events(span, semconv.SESSION_CONTRADICTION_EVENT)
    assert (conflict[semconv.SESSION_TURN], conflict[semconv.SESSION_EARLIER_TURN]) == (3, 1)
    assert conflict[semconv.SESSION_EARLIER_TRACE_ID] == trace_id_of(0)
    assert (conflict[semconv.CLAIM_ASSERTION], conflict[semconv.CLAIM_QUOTE]) == (OPPOSITE, GOOD)
    (repeated,) = events(span, semconv.SESSION_REPEATED_EVENT)
    assert (repeated[semconv.SESSION_TURN], repeated[semconv.SESSION_EARLIER_TURN]) == (4, 2)
    (result,) = events(span, semconv.EVALUATION_RESULT)
    assert result[semconv.EVALUATION_NAME] == "session_faithfulness"
    assert result[semconv.EVALUATION_SCORE] == 0.5


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
async def test_a_session_that_is_over_has_one_span_whatever_the_order(
    tmp_path: Path, order: Sequence[int]
) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await receive(spans, *(TOLD[number] for number in order))
        assert sessions_in(spans.carriers()) == []
        await spans.pass_time(IDLE_S + 1)
        (span,) = sessions_in(spans.carriers())
        await spans.pass_time(IDLE_S + 1)
        assert sessions_in(spans.carriers()) == [span]
    check_told(span)


async def test_a_late_turn_revises_the_session_and_asks_nothing_twice(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await receive(spans, TOLD[0], TOLD[2], TOLD[3])
        await spans.pass_time(IDLE_S + 1)
        (first,) = sessions_in(spans.carriers())
        assert numbers(first)["turns"] == 3
        await receive(spans, TOLD[1])
        await spans.pass_time(IDLE_S + 1)
        _, second = sessions_in(spans.carriers())
        check_told(second)
        assert second.attributes[semconv.SESSION_SUPERSEDES] == first.span_id
        sessions, name = spans.collector.pipeline.store.sessions, SessionName(session="chat-1")
        assert await sessions.session(name) is not None
        await spans.pass_time(KEEP_S + IDLE_S)
        assert await sessions.session(name) is None, "texts are kept no longer than a late turn is waited for"


def open_failing(settings: JudgeSettings) -> Judge:
    """Open a judge that is away whenever it is shown an earlier answer in place of a chunk."""

    def reply(request: JudgeRequest[Any]) -> BaseModel:
        chunks = getattr(request.inputs, "chunks", ())
        if GOOD in {chunk.text for chunk in chunks}:
            raise JudgeNonsense("not now")
        return scripted.reply_to(request)

    scripted = ScriptedJudge()
    return ScriptedJudge(reply)


async def test_a_judge_that_fails_is_asked_again_and_then_left_out(tmp_path: Path) -> None:
    judge = {"use": f"{__name__}:open_failing"}
    async with stepped_collector(config(tmp_path, judge=judge)) as spans:
        await receive(spans, turn(0, GOOD), turn(1, "Shipping takes 3 days."))
        await spans.pass_time(IDLE_S + 1)
        assert sessions_in(spans.carriers()) == []
        for _ in range(6):
            await spans.pass_time(6 * 3_600)
        (span,) = sessions_in(spans.carriers())
    assert (numbers(span)["turns"], numbers(span)["unchecked"]) == (2, 1)
    assert span.attributes[semconv.SESSION_LABEL] == "skipped"


async def test_an_answer_that_leans_on_other_traces_is_worded_by_their_turns_in_order_of_time(
    tmp_path: Path,
) -> None:
    chosen = config(tmp_path, judge=RESOLVING, context_turns=2)
    async with stepped_collector(chosen) as spans:
        for number in (2, 0, 1):
            await receive(spans, leaning(number, f"Q{number}?"))
        await receive(spans, leaning(3, "Q3?"))
        claims = claims_by_trace(spans.carriers())
    assert claims[trace_id_of(3)] == "[Q1? Q2?] takes 3 days."
    assert claims[trace_id_of(1)] == "[Q0?] takes 3 days."
    assert claims[trace_id_of(0)] == "[] takes 3 days."


async def test_without_the_setting_and_across_tenants_no_turn_of_another_trace_is_shown(
    tmp_path: Path,
) -> None:
    async with stepped_collector(config(tmp_path, judge=RESOLVING)) as spans:
        await receive(spans, leaning(0, "Q0?"), leaning(1, "Q1?"))
        assert claims_by_trace(spans.carriers())[trace_id_of(1)] == "[] takes 3 days."
    others = {"sample": {"tenant": semconv.TENANT}}
    folder = tmp_path / "tenants"
    folder.mkdir()
    chosen = config(folder, judge=RESOLVING, others=others, context_turns=2)
    async with stepped_collector(chosen) as spans:
        for number, tenant in enumerate("aba"):
            await receive(spans, leaning(number, f"Q{number}?", **{semconv.TENANT: tenant}))
        claims = claims_by_trace(spans.carriers())
    assert claims[trace_id_of(1)] == "[] takes 3 days."
    assert claims[trace_id_of(2)] == "[Q0?] takes 3 days."


async def test_content_policy_and_silence_about_sessions_are_kept(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path, others={"attach": {"content": False}})) as spans:
        await receive(spans, *TOLD)
        await receive(spans, rag_trace(9, answer=GOOD))
        await spans.pass_time(IDLE_S + 1)
        (span,) = sessions_in(spans.carriers())
    assert numbers(span)["contradictions"] == 1
    assert "Refunds" not in repr(span)
