"""What the pages are asked that they were not made for: an error that says what to do, and never a 500."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.collector.running import config_of, running_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import trace_id_of

WRONG = ["9" * 5_000, str(2**63), "-1", "", "1.5", "\u0661", "1_000", " 1 ", "%ff%fe", "1%00"]
NAMES = ("/", "/livez", "/readyz", "/metrics", "/status", "/ledger", f"/why/{trace_id_of(0)}")
ODD = st.text(max_size=12) | st.sampled_from(["9" * 30, "-1", "\u0661", "\0", "@", "%", "a" * 3_000])


@pytest.mark.slow
async def test_whatever_any_page_is_asked_it_says_what_to_give_and_never_breaks(tmp_path: Path) -> None:
    asked: list[str] = []

    @given(
        page=st.sampled_from(NAMES),
        query=st.lists(st.tuples(st.just("since_ns") | ODD, ODD), max_size=3),
        trace=st.none() | ODD | st.binary(max_size=8),
    )
    def make(page: str, query: list[tuple[str, str]], trace: str | bytes | None) -> None:
        path = page if trace is None else f"/why/{quote(trace, safe='')}"
        parameters = "&".join(f"{quote(name)}={quote(value)}" for name, value in query)
        asked.append(f"{path}?{parameters}")

    make()
    async with running_collector(config_of(tmp_path)) as collector:
        pages = f"http://127.0.0.1:{collector.operations.port}"
        async with httpx.AsyncClient(base_url=pages, timeout=PATIENCE_S) as client:
            for each in asked:
                assert (await client.get(each)).status_code < 500, each
            for time in WRONG:
                answer = await client.get(f"/ledger?since_ns={time}")
                said = answer.json()["error"]
                assert (answer.status_code, "`since_ns`" in said, len(said) < 300) == (400, True, True), time
                assert "give nanoseconds since 1970" in said
            for query, told in (
                ("since_ns=1&since_ns=2", "`since_ns` comes 2 times"),
                ("since=1", "`since`"),
            ):
                answer = await client.get(f"/ledger?{query}")
                assert (answer.status_code, told in answer.json()["error"]) == (400, True)
            assert (await client.get(f"/ledger?since_ns={2**63 - 1}")).status_code == 200
