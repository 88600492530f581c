"""A back end that does not take spans now: when it is asked again, and that nothing is lost until then."""

from __future__ import annotations

from pathlib import Path

from ragtrace_collector.deliver import DeliverStage
from tests.attack.back_end import Answer, Rule, running_back_end
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
