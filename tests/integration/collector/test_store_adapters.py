"""The collector over each adapter of its store: the same spans give the same carriers, and one ledger."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import httpx
import pytest

from ragtrace import semconv
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig, StoreConfig
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.open import OpenStore
from ragtrace_collector.store.port import WorkStore
from tests.integration.collector.paid_judge import PAID, paid
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace, trace_id_of
from tests.stores.adapters import PLACES, Place

pytestmark = pytest.mark.slow

INVENTED = "Refunds take 30 days."


@pytest.fixture(params=PLACES, ids=lambda kind: kind.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: type[Place] = request.param
    return kind.of(tmp_path)


def opener(place: Place) -> OpenStore:
    """Return what opens a store at a place, with what the configuration says of it."""

    async def open_it(
        config: StoreConfig, *, forward_to: Sequence[str], tenants: Collection[str]
    ) -> WorkStore:
        return await place.open(max_bytes=config.max_bytes, forward_to=forward_to)

    return open_it


async def carriers(folder: Path, number: int) -> Sequence[Span]:
    file = folder / "out.jsonl"
    await until(lambda: len(carriers_in(file)) >= number)
    return carriers_in(file)


async def page(collector: Collector, path: str) -> dict[str, object]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.operations.port}") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


async def test_answers_sent_over_both_protocols_get_their_carriers_and_the_ledger_adds_up(
    tmp_path: Path, place: Place
) -> None:
    judge = f"over {place.name}"
    config = config_of(tmp_path, judge={"use": f"{PAID}{judge}"}, budget={"live": {"day": {"calls": 1_000}}})
    async with running_collector(config, open_store=opener(place)) as collector:
        await send_grpc(collector, request_of(*rag_trace(0, answer=f"Refunds take 14 days. {INVENTED}")))
        await post(collector, request_of(*rag_trace(1)))
        found = {span.trace_id: span for span in await carriers(tmp_path, 2)}
        status = await page(collector, "/status")
        ledger = await page(collector, "/ledger")
        why = await page(collector, f"/why/{trace_id_of(0)}")
        counted = await collector.pipeline.store.ledger()
    assert found[trace_id_of(0)].attributes[f"{semconv.SCORE_PREFIX}faithfulness"] == 0.5
    assert found[trace_id_of(1)].parent_span_id == rag_trace(1)[0].span_id
    assert (counted.adds_up, counted.seen, counted.by_name()["judged"]) == (True, 2, 2)
    assert (ledger["seen"], ledger["open_traces"]) == (2, 0)
    assert [answer["state"] for answer in why["answers"]] == ["judged"]  # type: ignore[attr-defined]
    assert spent_of(status["budget"]) == {"day_calls": paid(judge).calls}


def spent_of(limits: object) -> dict[str, int]:
    return {limit["limit"]: limit["spent"] for limit in limits}  # type: ignore[attr-defined]


async def test_what_one_process_left_the_next_one_finishes(tmp_path: Path, place: Place) -> None:
    config = config_of(tmp_path, assemble={"quiet_period": "10m", "deadline": "10m"})
    root, retrieval, generation = rag_trace(0, answer=INVENTED)
    async with running_collector(config, open_store=opener(place)) as collector:
        await post(collector, request_of(retrieval, generation))
    assert carriers_in(tmp_path / "out.jsonl") == ()
    async with running_collector(config, open_store=opener(place)) as collector:
        await post(collector, request_of(root))
    (carrier,) = carriers_in(tmp_path / "out.jsonl")  # complete: it is judged before the second one stops
    assert (carrier.trace_id, carrier.attributes[semconv.CONTEXT_COUNT]) == (root.trace_id, 1)


async def test_held_spans_are_delivered_with_their_scores(tmp_path: Path, place: Place) -> None:
    config = held(tmp_path)
    async with running_collector(config, open_store=opener(place)) as collector:
        await post(collector, request_of(*rag_trace(0, answer=INVENTED)))
        spans = {span.span_id: span for span in await carriers(tmp_path, 3)}
        assert (await collector.pipeline.store.ledger()).adds_up
    root = rag_trace(0)[0]
    assert set(spans) == {span.span_id for span in rag_trace(0)}
    assert spans[root.span_id].attributes[f"{semconv.LABEL_PREFIX}faithfulness"] == "fail"


def held(folder: Path) -> CollectorConfig:
    export = [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}", "forward": True}]
    return config_of(folder, attach={"mode": "hold"}, export=export)
