"""A changed configuration: followed from the next answer on, as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace_collector.service.collector import Collector
from tests.acceptance.judge_server import JudgeServer, running_judge
from tests.acceptance.replies import ANSWER, REPLIES
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.test_operations import get
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Give the root logger back the level that a reload may change."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


async def thresholds(collector: Collector, folder: Path, *numbers: int) -> dict[str, object]:
    """Send answers; when all are judged, return by which threshold, by trace id."""
    await post(collector, request_of(*(span for number in numbers for span in rag_trace(number))))
    await until(lambda: {trace_id_of(each) for each in numbers} <= set(told(folder)))
    return told(folder)


def told(folder: Path) -> dict[str, object]:
    found = carriers_in(folder / "out.jsonl")
    return {span.trace_id: span.events[0].attributes.get(semconv.THRESHOLD) for span in found}


async def test_another_evaluator_judges_the_next_answer(tmp_path: Path) -> None:
    stricter = {"metrics": [{"name": "faithfulness", "threshold": 0.99}]}
    async with running_collector(config_of(tmp_path, judge={"use": "lexical"})) as collector:
        before = await thresholds(collector, tmp_path, 0)
        await collector.reload(config_of(tmp_path, judge={"use": "lexical"}, evaluate=stricter))
        after = await thresholds(collector, tmp_path, 1)
    assert after == {**before, trace_id_of(1): 0.99}
    assert before[trace_id_of(0)] != 0.99


async def test_an_evaluation_under_way_ends_with_the_judge_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")
    with running_judge(REPLIES) as slow, running_judge(REPLIES) as other:
        slow.gate.clear()
        async with running_collector(config_of(tmp_path, judge=judge_at(slow))) as collector:
            await post(collector, request_of(*rag_trace(0, answer=ANSWER)))
            await until(lambda: slow.calls)
            await collector.reload(config_of(tmp_path, judge=judge_at(other)))
            await post(collector, request_of(*rag_trace(1, answer=ANSWER)))
            await until(lambda: carriers_in(tmp_path / "out.jsonl"))
            slow.gate.set()
            await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 2)
            assert (await collector.pipeline.store.ledger()).by_name()["judged"] == 2
    assert (slow.calls, other.calls) == (2, 2)


def judge_at(server: JudgeServer) -> dict[str, str]:
    return {"use": "openai:rule", "base_url": server.base_url, "api_key_env": "JUDGE_KEY"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"store": {"path": "other.db"}}, "`store.path` changed, which needs a restart"),
        (
            {"export": [{"endpoint": "a:1", "headers": {"key": "sk"}}]},
            "^`export` changed, which needs[^:]*$",
        ),
        ({"drain_timeout": "3s", "sample": {"ratio": 0.1}}, "`drain_timeout` changed"),
        ({"judge": {"use": "oracle:x"}, "sample": {"ratio": 0.1}}, "oracle"),
        ({"receive": {"tokens_file": "no/such/file"}, "sample": {"ratio": 0.1}}, "cannot be read"),
    ],
)
async def test_what_cannot_be_followed_changes_nothing(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        digest = (await get(collector, "/status")).json()["collector"]["config"]
        with pytest.raises(ConfigError, match=named):
            await collector.reload(config_of(tmp_path, **changes))
        await thresholds(collector, tmp_path, 0)
        assert (await get(collector, "/status")).json()["collector"]["config"] == digest
