"""The pages of sessions: the list, one session with its turns and faults, and who may see them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from ragtrace.answers.summary import AnswerKey, FaultKind, SessionFault, SessionSummary
from ragtrace.model import Label
from tests.integration.collector.ui_pages import NOW_NS, Pages, grant

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
