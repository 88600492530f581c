"""The overview, with trends and numbers of a part of the traffic; and sessions, with their faults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from starlette.testclient import TestClient

from ragtrace.answers.summary import AnswerKey, AnswerSummary, FaultKind, SessionFault, SessionSummary
from ragtrace.errors import ReadError
from ragtrace.model import Label
from tests.integration.collector.ui_pages import NOW_NS, Pages, grant, log_in
from tests.unit.answers.rows import a_metric, a_row

HOUR_MINUTES = 60
DAY_MINUTES = 24 * HOUR_MINUTES


def days(*scores: float, answers: int = 60) -> list[AnswerSummary]:
    """Build answers of some days, the last of which ends now; each score is that of a whole day."""
    return [
        a_row(
            1_000 * ago + number,
            score,
            minute=-ago * DAY_MINUTES - 1 - number * DAY_MINUTES // (answers + 1),
            metrics=(a_metric(score), a_metric(0.2 if number % 4 == 0 else 0.9, "chunk_precision")),
        )
        for ago, score in enumerate(reversed(scores))
        for number in range(answers)
    ]


def text_of(client: TestClient, path: str = "/") -> str:
    page = client.get(path)
    assert page.status_code == 200
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.text)).split())


def test_scope_narrows_everything_and_is_kept_in_every_link() -> None:
    rows = [*days(0.9), a_row(77, 0.1, minute=-5, service="billing & more")]
    client = Pages(rows).client()
    path = "/?since=24h&service=billing+%26+more"
    assert "Answers 1 with an evaluation" in text_of(client, path)
    html = unescape(client.get(path).text)
    assert "service=billing+%26+more&label=fail" in html
    listed = re.search(r'href="(/answers\?[^"]+)"', html)
    assert listed
    assert client.get(listed[1]).text.count("/answers/00000000") == 1


@pytest.mark.parametrize("is_down", [False, True], ids=["readable", "unreadable"])
def test_collector_is_shown_if_there_is_one(is_down: bool) -> None:
    async def status(_: str | None) -> Mapping[str, object]:
        if is_down:
            raise ReadError("the store is busy")
        at_ns = NOW_NS - DAY_MINUTES * 60 * 10**9
        return {
            "collector": {"phase": "serving", "ready": True, "reasons": [], "notes": ["nothing is judged"]},
            "judges": {"judge": {"state": "open", "reason": "401 from the judge"}},
            "budget": [{"limit": "day_usd", "spent": 4 * 10**9, "most": 5 * 10**9, "resets_ns": NOW_NS}],
            "ledger": {"seen": 120, "pending": 0, "ended": 120, "superseded": 0},
            "store": {"judged": 100, "sampled_out": 20, "undelivered": 0},
            "drift": {"marks": [{"at_ns": at_ns, "what": "the judge drifted"}]},
        }

    client = Pages(days(0.9, 0.8, 0.4)).client()
    client.app.state.site = replace(client.app.state.site, status=status)  # type: ignore[attr-defined]
    text, page = text_of(client), client.get("/").text
    assert ("state cannot be read now" in text) is is_down
    for said in ("401 from the judge", "$4.00 of $5.00", "sampled out 20"):
        assert (said in text) is not is_down
    assert ("<bdi>the judge drifted</bdi>" in page) is not is_down
    assert page.count('<path class="mark"') == (0 if is_down else page.count('<polyline class="line"'))


def two_prompts() -> list[AnswerSummary]:
    """Build thirty questions answered by two prompts: the second is right where the first is wrong."""
    return [
        a_row(
            100 * version + number,
            0.2 if version == 1 and number % 3 == 0 else 0.9,
            minute=-number,
            question=f"How long does step {number} take?",
            prompt_version=f"v{version}",
        )
        for version in (1, 2)
        for number in range(1, 31)
    ]


def test_two_versions_stand_side_by_side_with_their_difference_and_what_turns() -> None:
    client = Pages(two_prompts()).client()
    (link,) = re.findall(r'href="(/compare\?[^"]+)"', client.get("/?since=30d").text)
    assert "dimension=prompt_version" in link
    page = text_of(client, "/compare?since=30d&dimension=prompt_version&a=v1&b=v2")
    assert "30 pairs (30 by question)" in page
    assert re.search(r"pass rate, % 66\.7 100\.0 \+33\.3 \+\d+\.\d to \+\d+\.\d ▲ better", page)
    assert "pairs that turn: 10 to pass, 0 to fail (McNemar p = 0.002)" in page
    assert "How long does step 3 take? faithfulness fail 0.20 pass 0.90" in page
    assert client.get("/compare?dimension=color&a=1&b=2").status_code == 400
    assert client.get("/compare?dimension=model&a=1&b=2&since=often").status_code == 400


def test_a_reader_of_a_tenant_compares_only_its_answers() -> None:
    rows = [replace(row, key=row.key._replace(tenant="acme")) for row in two_prompts()]
    client = Pages(rows, [grant("rt_globex", "read", tenant="globex")]).client()
    log_in(client, "rt_globex", "/")
    page = text_of(client, "/compare?since=30d&dimension=prompt_version&a=v1&b=v2")
    assert "There is no judged answer in A and B" in page
    assert "How long" not in page


# -- sessions ---------------------------------------------------------------------------------------------
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
