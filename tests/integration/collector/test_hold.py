"""Hold mode: the scores stand on the answer span itself, and no span is lost, doubled or kept too long."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.records import HoldMode
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.integration.collector.paid_judge import PAID, paid
from tests.integration.collector.running import (
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
HALF_WRONG = "Refunds take 14 days. Refunds take 30 days."


@pytest.fixture
def downstream() -> Iterator[OtlpReceiver]:
    with running_receiver() as receiver:
        yield receiver


def holding(
    folder: Path, downstream: OtlpReceiver, attach: Mapping[str, Any] | None = None, **changes: Any
) -> CollectorConfig:
    """Return the configuration of a collector that holds, and sends on to ``downstream``."""
    export = [{"endpoint": downstream.endpoint, "forward": True}]
    return config_of(folder, export=export, attach={"mode": "hold", **(attach or {})}, **changes)


def gated(folder: Path) -> dict[str, str]:
    """Return the judge section for a judge that answers once ``paid(str(folder)).open`` is set."""
    paid(str(folder)).open.clear()
    return {"use": f"{PAID}{folder}"}


async def arrived(downstream: OtlpReceiver, number: int) -> list[Span]:
    """Return what the back end got, once it is so much."""
    await until(lambda: len(downstream.spans) >= number)
    return [span for request in downstream.requests for span in decode(request.SerializeToString())]


def counted(collector: Collector, name: str) -> int:
    return collector.counters.snapshot()[name]


async def test_the_answer_span_itself_carries_scores_and_claims(
    tmp_path: Path, downstream: OtlpReceiver
) -> None:
    root, retrieval, generation = rag_trace(0, answer=HALF_WRONG)
    async with running_collector(holding(tmp_path, downstream)) as collector:
        await send_grpc(collector, request_of(root, retrieval, generation))
        answer, *others = await arrived(downstream, 3)
        assert counted(collector, "answers_on_span") == 1
    assert others == [retrieval, generation]
    assert (answer.name, answer.kind, answer.links) == (root.name, root.kind, root.links)
    assert answer.attributes.items() >= root.attributes.items()
    assert (answer.attributes[SCORE], answer.attributes[semconv.EVAL_MODE]) == (0.5, "hold")
    assert [event.name for event in answer.events] == [
        semconv.EVALUATION_RESULT,
        "ragtrace.claim.contradicted",
        "ragtrace.claim.supported",
        semconv.BLAME_EVENT,
    ]
    assert len(downstream.spans) == 3


async def test_spans_that_cannot_be_judged_pass_at_once_beside_held_ones(
    tmp_path: Path, downstream: OtlpReceiver
) -> None:
    config = holding(tmp_path, downstream, assemble={"quiet_period": "10s"}, sample={"ratio": 0.5})
    async with running_collector(config) as collector:
        kept = [collector.live.sampler.may_keep(trace_id_of(number)) for number in range(20)]
        spans = [span for number in range(20) for span in rag_trace(number)]
        await post(collector, request_of(*spans))
        passed = await arrived(downstream, 3 * kept.count(False))
        assert {span.trace_id for span in passed} == {trace_id_of(n) for n in range(20) if not kept[n]}
        assert (await collector.pipeline.store.ledger()).by_name()["held_traces"] == kept.count(True) > 0
    assert sorted(map(_key, await arrived(downstream, 60))) == sorted(map(_key, spans))


async def test_nothing_is_held_while_the_judge_refuses(tmp_path: Path, downstream: OtlpReceiver) -> None:
    (tmp_path / "refused.json").write_text(json.dumps({"error": "judge_refused"}))
    judge = {"use": f"scripted:{tmp_path / 'refused.json'}"}
    config = holding(tmp_path, downstream, judge=judge, assemble={"quiet_period": "1s"})
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0), *rag_trace(1)))
        await arrived(downstream, 6)
        await post(collector, request_of(*rag_trace(2)))
        assert (await collector.pipeline.store.ledger()).by_name()["held_traces"] == 0
        assert tuple(await arrived(downstream, 9))[6:] == rag_trace(2)


async def test_nothing_is_held_for_a_judge_that_is_too_slow_until_it_has_caught_up(
    tmp_path: Path, downstream: OtlpReceiver
) -> None:
    config = holding(
        tmp_path,
        downstream,
        {"hold_timeout": "200ms"},
        judge={**gated(tmp_path), "max_concurrency": 1},
    )
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0), *rag_trace(1)))  # one is judged, the other is queued
        await arrived(downstream, 6)
        await until(lambda: collector.pipeline.holder.holding() is HoldMode.KNOWN)
        await post(collector, request_of(*rag_trace(2)))
        assert (await collector.pipeline.store.ledger()).held_traces == 0
        paid(str(tmp_path)).open.set()
        await until(lambda: collector.pipeline.holder.holding() is HoldMode.NEW)


async def test_stopping_lets_go_of_what_is_held(tmp_path: Path, downstream: OtlpReceiver) -> None:
    spans = (*rag_trace(0), rag_trace(1)[1])
    config = holding(tmp_path, downstream, judge=gated(tmp_path), drain_timeout="1s")
    async with running_collector(config) as collector:
        await post(collector, request_of(*spans))
    assert sorted(map(_key, await arrived(downstream, 4))) == sorted(map(_key, spans))


def _key(span: Span) -> tuple[str, str]:
    return span.trace_id, span.span_id
