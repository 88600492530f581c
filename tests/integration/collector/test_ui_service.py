"""The page in the collector's process: its own listener, tokens, and answers from its store."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from ragtrace.errors import ConfigError
from ragtrace_collector.service.check import check_config
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of


def page_of(collector: Collector, token: str | None = None) -> httpx.AsyncClient:
    """Return a reader of the page."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{collector.ui.port}", headers=headers, timeout=PATIENCE_S
    )


async def judged(client: httpx.AsyncClient, count: int = 1) -> list[str]:
    """Wait for so many answers; return the paths of their pages."""

    async with asyncio.timeout(PATIENCE_S):
        while len(found := await _listed(client)) < count:  # noqa: ASYNC110 -- the collector's work
            await asyncio.sleep(0.05)
    return found


async def _listed(client: httpx.AsyncClient) -> list[str]:
    rows = map(json.loads, (await client.get("/answers.jsonl?sort=oldest")).text.splitlines())
    return [
        f"/answers/{row['trace_id']}/{row['span_id']}" + f"?tenant={row['tenant']}" * bool(row["tenant"])
        for row in rows
    ]


async def test_an_answer_is_on_the_page_as_soon_as_it_is_judged(tmp_path: Path) -> None:
    config = config_of(
        tmp_path, ui={"listen": "127.0.0.1:0", "links": {"Jaeger": "http://x/trace/{trace_id}"}}
    )
    async with running_collector(config) as collector, page_of(collector) as client:
        assert "No answer was judged yet" in (await client.get("/answers")).text
        await post(collector, request_of(*rag_trace(0)))
        (path,) = await judged(client)
        assert path.startswith(f"/answers/{trace_id_of(0)}/")
        page = await client.get(path)
        assert page.status_code == 200
        assert f"http://x/trace/{trace_id_of(0)}" in page.text
        assert page.headers["content-security-policy"]


@pytest.mark.parametrize("content", [True, False])
async def test_spans_of_reviews_have_texts_only_if_carriers_may(tmp_path: Path, content: bool) -> None:
    out = tmp_path / "out.jsonl"
    config = config_of(
        tmp_path, judge={"use": "lexical"}, attach={"content": content}, ui={"listen": "127.0.0.1:0"}
    )
    async with running_collector(config) as collector, page_of(collector) as client:
        await post(collector, request_of(*rag_trace(0)))
        (path,) = await judged(client)
        review = f"/review{path.removeprefix('/answers')}"
        csrf = re.search(r'name="csrf" value="([^"]+)"', (await client.get(review)).text)
        assert csrf
        said = {"csrf": csrf[1], "label-1": "contradicted", "note-1": "It is otherwise."}
        assert (await client.post(review, data=said)).status_code == 303
        await until(lambda: b"ragtrace.review.label" in out.read_bytes())
    (span,) = [each for each in carriers_in(out) if each.name == "review contradicted"]
    told = repr(span.attributes)
    assert ("Refunds take 14 days." in told) is ("It is otherwise." in told) is content


async def test_the_page_has_no_access_log_and_no_content_in_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    config = config_of(tmp_path, ui={"listen": "127.0.0.1:0"}, log_level="debug")
    async with running_collector(config) as collector, page_of(collector) as client:
        caplog.clear()
        await client.get("/answers?text=my-salary")
        await client.post("/login", data={"token": "rt_my-token"})
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not re.search("salary|my-token", " ".join(record.getMessage() for record in ours))


@pytest.mark.parametrize(
    ("ui", "said"),
    [
        ({"listen": "0.0.0.0:4330"}, "tokens"),
        ({"listen": "127.0.0.1:0", "traces": "ftp:x"}, "ui.traces"),
        ({"listen": "127.0.0.1:0", "reviews": "/no/such/folder/reviews.db"}, "ui.reviews"),
    ],
    ids=["exposed", "traces", "reviews"],
)
def test_a_check_tells_what_the_page_cannot_use(tmp_path: Path, ui: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_config(config_of(tmp_path, ui=ui, receive={"insecure": True}))


@pytest.mark.parametrize(
    "ui",
    [
        {"public_url": "ragtrace.example.com"},
        {"public_url": "https://user:secret@ragtrace.example.com"},
        {"public_url": "https://ragtrace.example.com/?a=b"},
        {"links": {"Jaeger": "http://localhost:16686/trace/"}},
        {"links": {"Jaeger": "javascript:alert({trace_id})"}},
    ],
    ids=str,
)
def test_a_page_is_not_configured_by_what_makes_no_sense(tmp_path: Path, ui: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, ui=ui)
    assert "ui." in str(caught.value)
    assert "secret" not in str(caught.value)
