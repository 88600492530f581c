"""The laws of the numbers hold at every scrape, while traffic of every kind comes in at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from ragtrace import semconv
from ragtrace.traces.trace import Scope
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import config_of, post, request_of, running_collector, send_grpc
from tests.integration.collector.test_verdicts import scripted
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

LEFT_OUT = ("rejected", "sampled_out", "own", "over_limit")
BATCHES = 12


def traffic(number: int) -> bytes:
    """A request with spans for every way that a span can go."""
    first = number * 10
    good = [span for each in range(first, first + 4) for span in rag_trace(each)]
    too_many = [
        replace(good[0], span_id=f"{span:016x}", trace_id=f"{9_000 + number:032x}") for span in range(1, 40)
    ]
    own = replace(rag_trace(first)[0], scope=Scope(name=semconv.SCOPE_EVALUATION), span_id="00000000000000ee")
    nobodys = replace(good[0], trace_id="0" * 32)
    return request_of(*good, *too_many, own, nobodys)


async def scrape(collector: Collector) -> Mapping[str, float]:
    async with httpx.AsyncClient() as client:
        page = await client.get(f"http://127.0.0.1:{collector.operations.port}/metrics", timeout=PATIENCE_S)
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            samples[sample.name] = samples.get(sample.name, 0) + sample.value
    return samples


def spans(samples: Mapping[str, float], what: str) -> float:
    return samples.get(f"ragtrace_collector_spans_{what}_total", 0)


async def test_spans_and_answers_add_up_at_every_scrape(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        sample={"ratio": 0.6},
        assemble={"quiet_period": "20ms", "max_spans_per_trace": 30},
        judge=scripted(tmp_path, {"error": "judge_nonsense"}),
    )
    async with running_collector(config) as collector:
        async with asyncio.TaskGroup() as group:
            for number in range(BATCHES):
                send = post if number % 2 else send_grpc
                group.create_task(send(collector, traffic(number)))
            scrapes = [group.create_task(scrape(collector)) for _ in range(10)]
        while not (await collector.pipeline.store.ledger()).ended:  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)
        pages = [task.result() for task in scrapes] + [await scrape(collector) for _ in range(5)]
    for page in pages:
        assert spans(page, "received") == spans(page, "kept") + sum(spans(page, way) for way in LEFT_OUT)
        assert page["ragtrace_answers"] == page["ragtrace_answers_seen"]
    assert spans(pages[-1], "received") == BATCHES * (12 + 39 + 1 + 1)
    assert all(spans(pages[-1], way) for way in LEFT_OUT)
