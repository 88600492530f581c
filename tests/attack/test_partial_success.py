"""A back end takes a part, or says so unreadably: no verdict is lost in silence, none is sent for ever."""

from __future__ import annotations

import asyncio
import gzip
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.backends import OtlpHttpSink
from ragtrace.errors import SendUnconfirmed
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span
from ragtrace_collector.deliver import MOST_UNREADABLE, DeliverStage
from ragtrace_collector.service.collector import Collector
from tests.attack.back_end import Answer, BackEnd, Rule, refusing, running_back_end
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.stepping import StandingClock, stepped_collector
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow


ANSWERS = 20


def is_odd(span: Span) -> bool:
    return int(span.trace_id, 16) % 2 == 1


async def is_quiet(collector: Collector) -> bool:
    ledger = await collector.pipeline.store.ledger()
    return ledger.ended == ANSWERS and not ledger.outbox_items_in("waiting")


async def judge_all(collector: Collector) -> None:
    for number in range(ANSWERS):
        await post(collector, request_of(*rag_trace(number)))
    async with asyncio.timeout(PATIENCE_S):
        while not await is_quiet(collector):  # noqa: ASYNC110 -- a stage's work
            await asyncio.sleep(0.02)


async def test_every_verdict_that_a_back_end_refused_is_told_kept_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running_back_end(refusing(is_odd)) as back_end:
        config = config_of(tmp_path, export=[{"endpoint": back_end.url}])
        async with running_collector(config) as collector:
            await judge_all(collector)
            ledger, counts = await collector.pipeline.store.ledger(), collector.counters.snapshot()
        store = str(config.store.path)
        told = [
            run("why", trace_id_of(number), "--from", f"store:{store}", columns=200).output
            for number in range(2)
        ]
        shown = run("ledger", "--from", f"store:{store}", columns=200).output
    assert ledger.adds_up
    assert ledger.outbox_items[back_end.url] == {
        "put": ANSWERS,
        "waiting": 0,
        "delivered": 10,
        "rejected": 10,
    }
    assert set(back_end.times()) == {trace_id_of(n) for n in range(ANSWERS) if (n + 1) % 2 == 0}
    assert (counts["parcels_rejected"], counts["parcels_delivered"]) == (10, 10)
    assert counts["deliveries_partial"] >= 1
    assert "rejected: " in told[0]
    assert "quota" in told[0]
    assert ": delivered" in told[1]
    assert "quota" in shown
    assert 1 <= len([each for each in caplog.records if "accepted only a part" in each.message]) <= 2


async def put(collector: Collector, back_end: BackEnd, numbers: range) -> None:
    for number in numbers:
        await collector.pipeline.store.append(
            [], forward={back_end.url: request_of(rag_trace(number)[0])}, now_ns=1
        )


async def test_what_is_in_doubt_is_sent_once_more_and_then_nothing_is_sent_together(tmp_path: Path) -> None:
    with running_back_end(refusing(lambda span: span.trace_id == trace_id_of(3))) as back_end:
        config = config_of(tmp_path, export=[{"endpoint": back_end.url}])
        async with running_collector(config) as collector:
            await put(collector, back_end, range(8))
            await until(lambda: collector.counters.snapshot()["parcels_delivered"] >= 7)
            await put(collector, back_end, range(10, 30))
            await until(lambda: collector.counters.snapshot()["parcels_delivered"] >= 27)
            ledger = await collector.pipeline.store.ledger()
    assert ledger.outbox_items[back_end.url]["rejected"] == 1
    assert trace_id_of(3) not in back_end.times()
    assert max(back_end.times().values()) <= 2
    assert set(back_end.requests[back_end.requests.index(8) + 1 :] if 8 in back_end.requests else [1]) == {1}
    assert all(back_end.times()[trace_id_of(number)] == 1 for number in range(10, 30))


BROKEN = Answer(headers={"content-encoding": "gzip"}, body=b"this is no gzip")
BOMB = Answer(headers={"content-encoding": "gzip"}, body=gzip.compress(bytes(64 << 20)))
ENDLESS = Answer(body=bytes(8 << 20))
STRANGE = Answer(headers={"content-encoding": "klingon"}, body=b"Qapla'")
PAGE = Answer(headers={"content-type": "text/html"}, body=b"<html>ok</html>")


def always(answer: Answer) -> Rule:
    return lambda spans: replace(answer, took=spans)


@pytest.mark.parametrize(
    ("answer", "again"),
    [(BROKEN, True), (BOMB, True), (ENDLESS, True), (STRANGE, True), (PAGE, False)],
    ids=["no gzip", "bomb", "endless", "strange coding", "page"],
)
async def test_an_unreadable_yes_is_told_as_what_it_is(answer: Answer, again: bool) -> None:
    with running_back_end(always(answer)) as back_end:
        sink = OtlpHttpSink(back_end.url)
        with pytest.raises(SendUnconfirmed, match="200") as caught:
            await sink.send(encode(rag_trace(0)))
        await sink.aclose()
    assert caught.value.again is again


def deliverer_of(collector: object) -> DeliverStage:
    (deliverer,) = collector.pipeline.deliverers  # type: ignore[attr-defined]
    assert isinstance(deliverer, DeliverStage)
    return deliverer


async def test_what_is_answered_unreadably_is_sent_ever_more_seldom(tmp_path: Path) -> None:
    """By a clock of the test's: a look each second, as the stage does it."""
    clock = StandingClock()
    with running_back_end(always(BROKEN)) as back_end:
        config = config_of(tmp_path, export=[{"endpoint": back_end.url}])
        async with stepped_collector(config, clock=clock) as stepped:
            body = request_of(rag_trace(0)[0])
            await stepped.collector.pipeline.store.append(
                [], forward={back_end.url: body}, now_ns=clock.now_ns()
            )
            for _ in range(600):
                await deliverer_of(stepped.collector).step()
                clock.time_ns += 1_000_000_000
            ledger = await stepped.collector.pipeline.store.ledger()
    assert ledger.adds_up
    assert len(back_end.requests) == MOST_UNREADABLE
    assert ledger.outbox_items[back_end.url] == {"put": 1, "waiting": 0, "unconfirmed": 1}


async def test_an_answer_whose_delivery_nobody_confirmed_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running_back_end(always(PAGE)) as back_end:
        config = config_of(tmp_path, export=[{"endpoint": back_end.url}])
        async with running_collector(config) as collector:
            for number in range(5):
                await post(collector, request_of(*rag_trace(number)))
            await until(lambda: collector.counters.snapshot()["parcels_unconfirmed"] >= 5)
            ledger, counts = await collector.pipeline.store.ledger(), collector.counters.snapshot()
        told = run("why", trace_id_of(0), "--from", f"store:{config.store.path}").output
        shown = run("ledger", "--from", f"store:{config.store.path}").output
    assert back_end.times() == {trace_id_of(number): 1 for number in range(5)}
    assert ledger.adds_up
    assert ledger.outbox_items[back_end.url] == {"put": 5, "waiting": 0, "unconfirmed": 5}
    assert (counts["parcels_delivered"], counts["parcels_unconfirmed"]) == (0, 5)
    assert "unconfirmed" in told
    assert "5 unconfirmed" in shown
    assert len([each for each in caplog.records if "cannot be read" in each.message]) == 1
