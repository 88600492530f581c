"""The list of answers: the filter is the URL, its pages follow each other, and what it cannot do it says."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from ragtrace.errors import ReadUnavailable
from tests.integration.collector.ui_pages import Pages, Texts
from tests.unit.answers.rows import a_metric, a_row, hex_id

HOSTILE = '"><script>alert(1)</script>\u202e=cmd()'


def spans_in(text: str) -> list[int]:
    """Return the numbers of the rows of a page, in its order."""
    return [int(found, 16) for found in re.findall(r'href="/answers/[0-9a-f]{32}/([0-9a-f]{16})', text)]


ROWS = (
    a_row(1, 0.9, minute=1, service="checkout", session="s1", feedback="up", cost_usd=0.5),
    a_row(2, 0.2, minute=2, model="claude", blame="ignored_context", feedback="down"),
    a_row(3, 0.4, minute=3, prompt_version="8", metrics=(a_metric(0.4), a_metric(0.9, "answer_relevance"))),
    a_row(4, None, minute=4, reason="no_context"),
)


def test_the_url_says_which_answers() -> None:
    client = Pages(rows=ROWS).client()
    queries: list[tuple[dict[str, str], list[int]]] = [
        ({}, [4, 3, 2, 1]),
        ({"sort": "oldest"}, [1, 2, 3, 4]),
        ({"sort": "worst"}, [2, 3, 1]),
        ({"sort": "best", "metric": "answer_relevance"}, [3]),
        ({"label": " fail ", "service": ""}, [3, 2]),
        ({"min": "0.3", "max": "0.5"}, [3]),
        ({"verdict": "contradicted"}, [3, 2]),
        ({"blame": "ignored_context"}, [2]),
        ({"service": "checkout"}, [1]),
        ({"model": "claude"}, [2]),
        ({"prompt_version": "8"}, [3]),
        ({"session": "s1"}, [1]),
        ({"feedback": "any"}, [2, 1]),
        ({"trace": hex_id(3, 32)}, [3]),
        ({"since": "2026-11-21T12:03:00"}, [4, 3]),
        ({"until": "2026-11-21T12:02Z"}, [1]),
        ({"service": "no-such"}, []),
    ]
    for query, numbers in queries:
        answer = client.get(f"/answers?{urlencode(query)}")
        assert (answer.status_code, spans_in(answer.text)) == (200, numbers), query


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("min", "nan", "from 0 to 1"),
        ("max", "1.5", "from 0 to 1"),
        ("label", "great", "Choose one of"),
        ("since", "yesterday", "24h"),
        ("trace", "xyz", "hex digits"),
        ("service", "a" * 501, "at most 500"),
    ],
)
def test_a_filter_that_makes_no_sense_is_told_beside_its_field(field: str, typed: str, said: str) -> None:
    client = Pages(rows=ROWS).client()
    answer = client.get(f"/answers?{urlencode({field: typed, 'model': 'claude'})}")
    assert answer.status_code == 400
    problem = re.search(
        rf'id="f-{field}"[^>]*aria-describedby="p-{field}".*?id="p-{field}">([^<]+)<', answer.text, re.DOTALL
    )
    assert problem
    assert said in html.unescape(problem[1])
    assert typed in answer.text
    assert spans_in(answer.text) == []
    assert 'value="claude" selected' in answer.text


def test_pages_follow_each_other_without_gap_or_repetition() -> None:
    client = Pages(rows=[a_row(number, minute=number) for number in range(1, 121)]).client()
    seen, url, pages = [], "/answers?sort=oldest&service=support-bot", 0
    while url:
        text = client.get(url).text
        seen += spans_in(text)
        pages += 1
        following = re.search(r'rel="next" href="(\?[^"]+)"', text)
        url = f"/answers{html.unescape(following[1])}" if following else ""
    assert seen == list(range(1, 121))
    assert pages == 3
    assert "end of the list" in text


def test_recorded_text_stays_text() -> None:
    row = a_row(1, service=HOSTILE, model=HOSTILE, session=HOSTILE, prompt_version=HOSTILE, reason=HOSTILE)
    answer = Pages(rows=[row]).client().get(f"/answers?{urlencode({'service': HOSTILE, 'session': HOSTILE})}")
    assert spans_in(answer.text) == [1]
    assert "<script>alert" not in answer.text
    assert HOSTILE in html.unescape(answer.text)


# Words of question or answer


def texts(count: int, fits: set[int]) -> dict[str, str]:
    return {hex_id(n): "It takes 30 days." if n in fits else "No idea." for n in range(1, count + 1)}


def test_a_search_opens_a_bounded_number_and_offers_to_go_on() -> None:
    rows = [a_row(n, minute=n) for n in range(1, 251)]
    pages = Pages(rows=rows, source=Texts(texts(250, {5, 240})))
    client = pages.client()
    first = client.get("/answers?text=days")
    assert spans_in(first.text) == [240]
    assert pages.source.opened == 200
    assert "Searched back to" in first.text
    following = re.search(r'rel="next" href="(\?[^"]+)"', first.text)
    assert following
    second = client.get(f"/answers{html.unescape(following[1])}")
    assert spans_in(second.text) == [5]
    assert 'value="days"' in second.text


def test_a_search_says_what_it_could_not_open() -> None:
    pages = Pages(rows=[a_row(1), a_row(2)], source=Texts({hex_id(1): "days"}))
    client = pages.client()
    assert "1 of them without content any more" in client.get("/answers?text=days").text
    pages.source.failure = ReadUnavailable("jaeger:http://x did not answer within 5 s")
    answer = client.get("/answers?text=days").text
    assert "2 of them could not be read" in answer
    assert "did not answer within 5 s" in answer


# Exports


def table_of(content: bytes) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))


def test_an_export_has_every_answer_of_the_filter() -> None:
    client = Pages(rows=[a_row(n, 0.1 if n % 2 else 0.9, minute=n) for n in range(1, 131)]).client()
    answer = client.get("/answers.jsonl?label=fail")
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [int(row["span_id"], 16) for row in rows] == list(range(129, 0, -2))
    assert rows[0]["time"] == "2026-11-21T14:09:00.000Z"
    assert rows[0]["metrics"] == {"faithfulness": {"label": "fail", "score": 0.1}}
    assert answer.headers["content-disposition"] == 'attachment; filename="answers.jsonl"'
    table = list(
        csv.DictReader(io.StringIO(client.get("/answers.csv?label=fail").content.decode("utf-8-sig")))
    )
    assert [row["span_id"] for row in table] == [row["span_id"] for row in rows]
    assert {row["score_faithfulness"] for row in table} == {"0.1"}


def test_answers_on_which_evaluations_disagree_are_marked_in_list_and_exports() -> None:
    failed, passed = a_row(1, 0.1, minute=3), a_row(1, 0.9, minute=3)
    other = replace(passed, carrier_span_id="d" * 16, judge="other:judge")
    client = Pages(rows=[failed, other, a_row(2, 0.2, minute=1), a_row(3, 0.9)]).client()
    assert client.get("/answers").text.count(">disputed</span>") == 2  # a row for each evaluation
    rows = [json.loads(line) for line in client.get("/answers.jsonl?sort=doubt").text.splitlines()]
    assert [row["disputed"] for row in rows] == [True, True, False, False]
    assert {int(row["span_id"], 16) for row in rows[:2]} == {1}
    table = table_of(client.get("/answers.csv").content)
    assert {(int(row["span_id"], 16), row["disputed"]) for row in table} == {
        (1, "true"),
        (2, "false"),
        (3, "false"),
    }


def test_no_cell_of_an_export_is_a_formula() -> None:
    for text in ("=cmd()", "+1", "-1", "@x", "\t=x", "\r=x"):
        client = Pages(rows=[a_row(1, service=text, model=text, session=text, prompt_version=text)]).client()
        (row,) = table_of(client.get("/answers.csv").content)
        assert all(row[name].startswith("'") for name in ("service", "model", "session", "prompt_version"))


def test_a_filtered_list_becomes_records_with_texts() -> None:
    source = Texts({hex_id(2): "30 days", hex_id(3): "30  days"})
    client = Pages(rows=ROWS, source=source).client()
    link = re.search(
        r'href="(/answers.records[^"]*)"[^>]*>Export these answers', client.get("/answers?label=fail").text
    )
    assert link
    answer = client.get(html.unescape(link[1]))
    assert answer.headers["content-disposition"] == 'attachment; filename="records.jsonl"'
    (row,) = (json.loads(line) for line in answer.text.splitlines())
    assert (row["question"], row["answer"], row["claims"]) == ("How long?", "30  days", [])
    assert row["contexts"] == [{"id": "faq", "text": "Refunds take 14 days."}]
    found = client.get("/answers.records?text=30")
    assert found.headers["content-disposition"] == 'attachment; filename="records-1-of-3.jsonl"'
    assert client.get("/answers.records?text=40&label=fail").text == ""
