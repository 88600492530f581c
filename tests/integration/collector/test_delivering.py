"""A back end that does not take spans now: when it is asked again, and that nothing is lost until then."""

from __future__ import annotations

from pathlib import Path

from ragtrace_collector.deliver import DeliverStage
from tests.attack.back_end import Answer, Rule, refusing, running_back_end
from tests.integration.collector.running import config_of, request_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace, trace_id_of

REQUEST = request_of(rag_trace(0)[0])


def first(answers: list[Answer]) -> Rule:
    """Give these answers, one after the other, then take everything."""
    return lambda spans: answers.pop(0) if answers else Answer(took=spans)


async def look_each_second(stepped: Stepped, seconds: int) -> None:
    """Do what the stage does, by a clock of the test's."""
    (deliverer,) = stepped.collector.pipeline.deliverers
    assert isinstance(deliverer, DeliverStage)
    for _ in range(seconds):
        await deliverer.step()
        stepped.clock.time_ns += 1_000_000_000


async def test_what_a_person_mends_at_a_back_end_goes_out_then(tmp_path: Path) -> None:
    """A key that expired, or a path that is wrong, says nothing about the spans."""
    refusals = [Answer(status=status) for status in (401, 403, 404)]
    with running_back_end(first(refusals)) as back_end:
        async with stepped_collector(config_of(tmp_path, export=[{"endpoint": back_end.url}])) as stepped:
            await stepped.collector.pipeline.store.append([], forward={back_end.url: REQUEST}, now_ns=1)
            await look_each_second(stepped, 30)
            told = (await stepped.collector.pipeline.store.ledger()).outbox_items[back_end.url]
    assert back_end.times() == {trace_id_of(0): 1}
    assert told == {"put": 1, "waiting": 0, "delivered": 1}


async def test_a_back_end_that_stays_away_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    with running_back_end(lambda _: Answer(status=503)) as back_end:
        async with stepped_collector(config_of(tmp_path, export=[{"endpoint": back_end.url}])) as stepped:
            await stepped.collector.pipeline.store.append([], forward={back_end.url: REQUEST}, now_ns=1)
            await look_each_second(stepped, 120)
            at_first = len(back_end.requests)
            await look_each_second(stepped, 480)
            told = (await stepped.collector.pipeline.store.ledger()).outbox_items[back_end.url]
    assert 5 <= at_first <= 9
    assert len(back_end.requests) - at_first <= 9  # once a minute
    assert told == {"put": 1, "waiting": 1}


async def test_of_what_was_sent_together_only_what_is_refused_alone_is_set_aside(tmp_path: Path) -> None:
    with running_back_end(refusing(lambda span: span.trace_id == trace_id_of(2))) as back_end:
        async with stepped_collector(config_of(tmp_path, export=[{"endpoint": back_end.url}])) as stepped:
            for number in range(5):
                body = request_of(rag_trace(number)[0])
                await stepped.collector.pipeline.store.append([], forward={back_end.url: body}, now_ns=1)
            await look_each_second(stepped, 1)
            told = (await stepped.collector.pipeline.store.ledger()).outbox_items[back_end.url]
    assert back_end.requests == [5, 1, 1, 1, 1, 1]
    assert told == {"put": 5, "waiting": 0, "delivered": 4, "rejected": 1}
