"""The pages of sessions: the list, one session with its turns and faults, and who may see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.answer_sources import find_answers, open_source
from ragtrace.answers.summary import AnswerKey, FaultKind, SessionFault, SessionSummary, session_summary_of
from ragtrace.model import Label
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span
from tests.integration.cli.test_backfill_sessions import INVENTED, TOLD, Place, added_to
from tests.integration.collector.ui_pages import NOW_NS, Pages, grant
from tests.rag_spans import trace_id_of
from tests.unit.answers.rows import a_row

FAULT = SessionFault(
    kind=FaultKind.CONTRADICTION,
    turn=3,
    answer=AnswerKey("c" * 32, "3" * 16),
    earlier_turn=1,
    earlier=AnswerKey("a" * 32, "1" * 16),
)


def a_session(number: int = 1, **changes: Any) -> SessionSummary:
    """Return a judged session; the higher its number, the newer it is."""
    plain = SessionSummary(
        session=f"chat-{number}",
        trace_id="c" * 32,
        answer_span_id="3" * 16,
        span_id=f"{number:016x}",
        time_ns=NOW_NS + number,
        label=Label.FAIL,
        turns=3,
        decided=3,
        faithful=2,
        contradictions=1,
        faults=(FAULT,),
    )
    return replace(plain, **changes)


def pages_with(*sessions: SessionSummary, **options: Any) -> Pages:
    pages = Pages(**options)
    asyncio.run(pages.index.add_sessions(sessions))
    return pages


def test_the_list_has_the_numbers_of_each_session_the_newest_first() -> None:
    client = pages_with(a_session(1), a_session(2, label=Label.PASS, faithful=3, contradictions=0)).client()
    text = client.get("/sessions").text
    assert text.index("chat-2") < text.index("chat-1")
    assert "67" in text
    failed = client.get("/sessions?label=fail").text
    assert "chat-1" in failed
    assert "chat-2" not in failed
    assert "No sessions match" in client.get("/sessions?label=skipped").text
    assert 'aria-current="page">Sessions' in text


def test_an_empty_list_says_how_sessions_come_into_it() -> None:
    assert "sessions.enabled: true" in Pages().client().get("/sessions").text


def test_a_long_list_goes_on_where_the_page_ended() -> None:
    client = pages_with(*(a_session(number, time_ns=NOW_NS) for number in range(120))).client()
    seen: list[str] = []
    url = "/sessions"
    while url:
        text = client.get(url).text
        seen += [part.split("<")[0] for part in text.split("<bdi>")[1:]]
        after = text.partition('rel="next" href="')[2].partition('"')[0]
        url = f"/sessions{after}".replace("&amp;", "&") if after else ""
    assert sorted(seen) == sorted(f"chat-{number}" for number in range(120))


@pytest.mark.parametrize("query", ["label=great", "after=x", "after=9-", "after=-1-2"])
def test_a_question_without_sense_is_told(query: str) -> None:
    response = Pages().client().get(f"/sessions?{query}")
    assert response.status_code == 400
    assert "This request is not valid" in response.text


def test_a_revised_session_counts_once_whichever_span_came_first() -> None:
    old, new = a_session(1), a_session(1, span_id="f" * 16, supersedes=f"{1:016x}", turns=4)
    for order in ((old, new), (new, old)):
        text = pages_with(*order).client().get("/sessions/chat-1").text
        assert "4 turns" in text
        assert "3 turns" not in text


def test_one_session_shows_its_faults_with_links_to_both_answers() -> None:
    text = pages_with(a_session()).client().get("/sessions/chat-1").text
    assert "Contradictions between turns" in text
    assert f'<a href="/answers/{"c" * 32}/{"3" * 16}">Turn 3</a>' in text
    assert f'<a href="/answers/{"a" * 32}/{"1" * 16}">turn 1</a>' in text
    assert "2 of 3 decided answers" in text
    assert "The place that holds the texts cannot be read now." in text  # it has no such answer


def test_a_session_that_was_not_judged_as_a_whole_shows_its_turns() -> None:
    client = Pages(rows=[a_row(1, session="open"), a_row(2, session="open")]).client()
    text = client.get("/sessions/open").text
    assert "not judged as a whole" in text
    assert text.count("/answers/") >= 2


EVIL = "</bdi><script>alert(1)</script>&\"'/../100%?x=1#é"


def test_ids_and_tenants_of_strangers_are_escaped_and_found_again() -> None:
    client = pages_with(a_session(1, session=EVIL, tenant='<b>&"')).client()
    listed = client.get("/sessions").text
    assert "<script>alert" not in listed
    link = listed.partition('<th scope="row"><a href="')[2].partition('"')[0]
    shown = client.get(link.replace("&amp;", "&"))
    assert shown.status_code == 200
    assert "<script>alert" not in shown.text
    assert "&lt;script&gt;alert(1)" in shown.text


@pytest.mark.parametrize("path", ["/sessions/nobody", f"/sessions/{'x' * 2_001}", "/sessions/"])
def test_a_session_that_nobody_knows_is_not_there(path: str) -> None:
    assert pages_with(a_session()).client().get(path).status_code == 404


def test_one_id_of_two_tenants_is_seen_by_each_as_its_own() -> None:
    sessions = (a_session(1, tenant="a", turns=5), a_session(1, tenant="b", turns=7))
    pages = pages_with(*sessions, grants=[grant("rt_a", tenant="a"), grant("rt_all")])
    own = pages.client(headers={"authorization": "Bearer rt_a"})
    assert "5 turns" in own.get("/sessions/chat-1").text
    assert "7 turns" not in own.get("/sessions/chat-1").text
    assert own.get("/sessions/chat-1?tenant=b").status_code == 404
    assert own.get("/sessions?tenant=b").status_code == 404
    everybody = pages.client(headers={"authorization": "Bearer rt_all"})
    both = everybody.get("/sessions/chat-1").text
    assert "5 turns" in both
    assert "7 turns" in both
    assert "5 turns" not in everybody.get("/sessions/chat-1?tenant=b").text


def test_a_search_of_stored_traces_finds_sessions_and_reads_claims_and_quotes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.live(*TOLD)
    traces = tmp_path / "stored.jsonl"
    lines = [encode_json([*spans, *added_to(spans, tmp_path / "live.jsonl")]) for spans in TOLD]
    traces.write_text("".join(f"{line}\n" for line in lines))
    pages = Pages()
    asyncio.run(_fill(pages, f"file:{traces}"))
    pages.source = open_source(f"file:{traces}")  # type: ignore[assignment]
    text = pages.client().get("/sessions/chat-1").text
    assert "Refunds take 30 days." in text
    assert f'<blockquote dir="auto">{INVENTED}</blockquote>' in text
    assert [f"/answers/{trace_id_of(number)}/" in text for number in range(4)] == [True] * 4
    assert "50\N{NO-BREAK SPACE}%: 2 of 4 decided answers" in text


async def _fill(pages: Pages, address: str) -> None:
    found: list[SessionSummary] = []
    answers = find_answers(address, since_ns=0, until_ns=time.time_ns(), on_session=found.append)
    async with aclosing(answers) as rows:  # type: ignore[type-var]
        await pages.index.add([row async for row in rows])
    await pages.index.add_sessions(found)


def session_spans(folder: Path) -> Sequence[Span]:
    return Place(folder).live(*TOLD)


def test_a_span_of_a_stranger_is_read_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    (span,) = session_spans(tmp_path)
    whole = session_summary_of(span)
    assert whole is not None
    assert [fault.kind for fault in whole.faults] == [FaultKind.CONTRADICTION, FaultKind.REPEATED]
    strange = {
        **span.attributes,
        semconv.SESSION_TURNS: -5,
        semconv.SESSION_FAITHFUL: "many",
        semconv.SESSION_DECIDED: 10**15,
    }
    told = session_summary_of(replace(span, attributes=strange))
    assert told is not None
    assert (told.turns, told.faithful, told.decided) == (0, 0, 1_000_000)
    events = tuple(
        replace(event, attributes={**event.attributes, semconv.SESSION_TURN_TRACE_ID: "../x"})
        for event in span.events
    )
    nowhere = session_summary_of(replace(span, events=events))
    assert nowhere is not None
    assert nowhere.faults == ()
    for missing in (semconv.SESSION_ID, semconv.SESSION_LABEL):
        assert session_summary_of(replace(span, attributes={**span.attributes, missing: ""})) is None
    assert session_summary_of(replace(span, parent_span_id=None)) is None
