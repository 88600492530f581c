"""A changed configuration: followed from the next answer on, as a whole or not at all."""

from __future__ import annotations

import json
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
from tests.integration.collector.test_many_metrics import answered, judge_that_fails
from tests.integration.collector.test_operations import get, scrape, total
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


async def test_sampling_is_by_the_new_rate(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await collector.reload(config_of(tmp_path, sample={"ratio": 0.0}))
        await post(collector, request_of(*rag_trace(0)))
        assert collector.counters.snapshot()["spans_sampled_out"] == 3
        assert collector.counters.snapshot()["spans_kept"] == 0


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


async def test_more_answers_are_judged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "test")
    with running_judge(REPLIES) as slow:
        slow.gate.clear()
        one, two = ({**judge_at(slow), "max_concurrency": most} for most in (1, 2))
        async with running_collector(config_of(tmp_path, judge=one)) as collector:
            await post(collector, request_of(*rag_trace(0, answer=ANSWER), *rag_trace(1, answer=ANSWER)))
            await until(lambda: slow.calls)
            ledger = (await collector.pipeline.store.ledger()).by_name()
            assert (ledger["leased"], ledger["queued"]) == (1, 1)
            await collector.reload(config_of(tmp_path, judge=two))
            await until(lambda: slow.calls == 2)
            slow.gate.set()
            await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 2)


def judge_at(server: JudgeServer) -> dict[str, str]:
    return {"use": "openai:rule", "base_url": server.base_url, "api_key_env": "JUDGE_KEY"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"store": {"path": "other.db"}}, "`store.path` changed, which needs a restart"),
        ({"receive": {"http": None}}, "`receive.http` changed, which needs a restart"),
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


async def test_the_configuration_in_force_is_named_by_its_digest(tmp_path: Path) -> None:
    quieter = config_of(tmp_path, log_level="warning")
    async with running_collector(config_of(tmp_path)) as collector:
        before = (await get(collector, "/status")).json()["collector"]["config"]
        await collector.reload(quieter)
        after = (await get(collector, "/status")).json()["collector"]["config"]
        assert total(await scrape(collector), "ragtrace_collector_config", digest=after) == 1
        assert logging.getLogger().level == logging.WARNING
    assert before != after


async def test_tokens_change_at_once(tmp_path: Path) -> None:
    token = {"name": "a", "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
    file = tmp_path / "tokens.yaml"
    file.write_text(json.dumps([token]))
    config = config_of(tmp_path, receive={"tokens_file": str(file)})
    async with running_collector(config) as collector:
        assert (await post(collector, b"")).status_code == 401
        file.write_text("[]")
        await collector.reload(config)
        assert (await post(collector, b"")).status_code == 200


@pytest.mark.slow
async def test_what_another_evaluator_found_a_part_of_is_judged_anew(tmp_path: Path) -> None:
    def evaluated_at(threshold: float) -> dict[str, object]:
        metrics = [{"name": "faithfulness", "threshold": threshold}, {"name": "context_recall"}]
        return {"metrics": metrics, "retry_delays": ["500ms"] * 5}

    judge = judge_that_fails(tmp_path, times=1)
    config = config_of(tmp_path, judge=judge, evaluate=evaluated_at(0.4))
    async with running_collector(config) as collector:
        await post(collector, request_of(*answered()))
        await until(lambda: collector.counters.snapshot()["answers_postponed"])
        await collector.reload(config_of(tmp_path, judge=judge, evaluate=evaluated_at(0.6)))
        await until(lambda: told(tmp_path))
    assert told(tmp_path) == {trace_id_of(0): 0.6}
    (carrier,) = carriers_in(tmp_path / "out.jsonl")
    assert carrier.attributes[f"{semconv.LABEL_PREFIX}faithfulness"] == "fail"
