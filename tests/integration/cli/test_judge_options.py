"""Options that every judge has: its cache and its prices."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.peer_endpoint import PeerEndpoint, serving
from tests.integration.cli.program import Result, json_lines, run

pytestmark = pytest.mark.slow  # a judge's or a back end's server

REPLY = json.dumps({"chunks": [{"id": 1, "reason": "it says so", "relevance": 2}]})


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"question": "Rain?", "contexts": ["It rains."], "answer": "It rains."}))
    return str(path)


async def evaluate(
    records: str, *arguments: str, endpoint: PeerEndpoint, model: str = "gpt-4o-mini"
) -> Result:
    async with serving(endpoint):
        named = ("--metrics", "context_precision", "--judge", f"openai:{model}", "--base-url", endpoint.url)
        return await asyncio.to_thread(run, "evaluate", records, *named, "--json", *arguments)


def line_of(result: Result) -> dict[str, Any]:
    [line] = json_lines(result.stdout)
    return line


async def test_a_line_says_what_its_tokens_cost(records: str) -> None:
    result = await evaluate(records, endpoint=PeerEndpoint(replies=[REPLY]))
    line = line_of(result)
    assert (line["score"], line["calls"]) == (1.0, 1)
    assert line["cost_usd"] == pytest.approx((10 * 0.15 + 5 * 0.60) / 1e6)
    assert "1 call to gpt-4o-mini: 10 + 5 tokens, $0.0000 at the prices of" in result.stderr


async def test_with_a_cache_the_second_run_asks_nothing(records: str, tmp_path: Path) -> None:
    endpoint = PeerEndpoint(replies=[REPLY])
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    named = ("--metrics", "context_precision", "--judge", "openai:gpt-4o-mini", "--base-url", url)
    lines = [
        line_of(await asyncio.to_thread(run, "evaluate", records, *named, "--json", "--cache")) for _ in "ab"
    ]
    server.close()
    assert [(line["score"], line["calls"], line["cost_usd"] > 0) for line in lines] == [
        (1.0, 1, True),
        (1.0, 0, False),
    ]
    assert len(endpoint.asked) == 1
    kept = tmp_path / "cache" / "ragtrace" / "judge.db"
    assert stat.S_IMODE(await asyncio.to_thread(lambda: kept.stat().st_mode)) == 0o600


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [((), False), (("--set", "judge.cache=FILE"), True)],
    ids=["by default", "in a file"],
)
async def test_nothing_is_kept_unless_asked_for(
    arguments: tuple[str, ...], kept: bool, records: str, tmp_path: Path
) -> None:
    path = tmp_path / "my.db"
    named = [argument.replace("FILE", str(path)) for argument in arguments]
    result = await evaluate(records, *named, endpoint=PeerEndpoint(replies=[REPLY]))
    assert line_of(result)["score"] == 1.0
    assert (await asyncio.to_thread(path.exists)) is kept


@pytest.mark.parametrize(("as_of", "said"), [("2001-01-01", 1), ("2999-01-01", 0)])
async def test_a_price_that_was_looked_up_long_ago_is_warned_of_once(
    as_of: str, said: int, records: str, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(f"as_of = {as_of}\n[openai]\nqwen = {{input = 1, output = 1}}")
    endpoint = PeerEndpoint(replies=[REPLY])
    result = await evaluate(
        records,
        "--set",
        f"judge.prices={prices}",
        "--set",
        "judge.second=openai:qwen",
        endpoint=endpoint,
        model="qwen",
    )
    assert result.stderr.count("warning: the price of qwen was looked up on") == said
