"""What the pages are asked that they were not made for: an error that says what to do, and never a 500."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace_collector.operations.pages import LEDGER_PATH, PAGES, WHY_PATH
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import config_of, running_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import trace_id_of

LARGEST = 2**63 - 1
"""What SQLite can hold, and a time in nanoseconds until the year 2262."""
WRONG = {
    "thirty digits": "9" * 30,
    "five thousand digits": "9" * 5_000,
    "one too many": str(LARGEST + 1),
    "negative": "-1",
    "empty": "",
    "a float": "1.5",
    "an exponent": "1e9",
    "Arabic digits": "\u0661\u0662\u0663",
    "superscript": "\u00b2",
    "full width": "\uff11\uff12",
    "underscores": "1_000",
    "spaces": " 1 ",
    "plus": "%2B1",
    "no character": "%ff%fe",
    "NUL": "1%00",
    "a list": "1,2",
    "not a number": "nan",
    "hexadecimal": "0x10",
}


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with running_collector(config_of(tmp_path)) as collector, client_of(collector) as client:
        yield client


def client_of(collector: Collector) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.operations.port}", timeout=PATIENCE_S)


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
async def test_a_time_that_is_none_is_refused_with_what_to_give(pages: httpx.AsyncClient, text: str) -> None:
    answer = await pages.get(f"{LEDGER_PATH}?since_ns={text}")
    said = answer.json()["error"]
    assert answer.status_code == 400
    assert "`since_ns`" in said
    assert "give nanoseconds since 1970" in said
    assert len(said) < 300


async def test_a_parameter_that_comes_twice_or_that_no_page_knows_is_refused(
    pages: httpx.AsyncClient,
) -> None:
    for query, told in (
        ("since_ns=1&since_ns=2", "`since_ns` comes 2 times"),
        ("since=1", "`since`"),
        ("since_ns=1&SINCE_NS=1", "`SINCE_NS`"),
    ):
        answer = await pages.get(f"{LEDGER_PATH}?{query}")
        assert (answer.status_code, told in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("since", [0, 1, LARGEST])
async def test_every_time_that_can_be_stored_is_answered(pages: httpx.AsyncClient, since: int) -> None:
    answer = await pages.get(f"{LEDGER_PATH}?since_ns={since}")
    assert answer.status_code == 200


NAMES = ("/", "/livez", "/readyz", "/metrics", "/status", LEDGER_PATH, f"{WHY_PATH}{trace_id_of(0)}")


def test_every_page_is_asked() -> None:
    assert {page.path.partition("TRACE_ID")[0] for page in PAGES} | {"/"} == {
        name.replace(trace_id_of(0), "") for name in NAMES
    }


ODD = st.one_of(
    st.text(max_size=12), st.sampled_from(["9" * 30, "-1", "\u0661", "\0", "@", "%", "a" * 3_000])
)


@pytest.mark.slow
async def test_whatever_any_page_is_asked_it_never_breaks(tmp_path: Path) -> None:
    asked: list[str] = []

    @settings(max_examples=150)
    @given(
        page=st.sampled_from(NAMES),
        query=st.lists(st.tuples(st.one_of(st.just("since_ns"), ODD), ODD), max_size=3),
        trace=st.one_of(st.none(), ODD, st.binary(max_size=8)),
    )
    def make(page: str, query: list[tuple[str, str]], trace: str | bytes | None) -> None:
        path = page if trace is None else f"{WHY_PATH}{quote(trace, safe='')}"
        parameters = "&".join(f"{quote(name)}={quote(value)}" for name, value in query)
        asked.append(f"{path}?{parameters}")

    make()
    async with running_collector(config_of(tmp_path)) as collector, client_of(collector) as client:
        for each in asked:
            answer = await client.get(each)
            assert answer.status_code < 500, each
