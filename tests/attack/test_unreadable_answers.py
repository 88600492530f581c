"""A back end says yes in a way that nobody can read: it is not sent everything again for ever."""

from __future__ import annotations

import gzip
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace.backends import OtlpHttpSink
from ragtrace.errors import SendUnconfirmed
from ragtrace.traces.otlp import encode
from ragtrace_collector.deliver import MOST_UNREADABLE, DeliverStage
from tests.attack.back_end import Answer, Rule, running_back_end
from tests.integration.cli.program import run
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.stepping import StandingClock, stepped_collector
from tests.rag_spans import rag_trace, trace_id_of

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


@pytest.mark.slow
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


@pytest.mark.slow
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
