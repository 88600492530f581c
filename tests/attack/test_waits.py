"""Waits that strangers ask for: each has an end, nothing stops for good, and what stopped is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from ragtrace.backends.http_api import HttpApi
from ragtrace.backends.otlp_sinks import OtlpGrpcSink
from ragtrace.errors import JudgeUnavailable, SendRetryable
from ragtrace.http import retry_after_s_of
from ragtrace.text import LONGEST_WAIT_S
from ragtrace.traces.otlp import encode
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.operations.metrics import Measurement
from tests.acceptance.replies import ANSWER
from tests.attack.back_end import Answer, running_back_end
from tests.attack.hostile_judge import Said, hostile_judge, well
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import HttpAnswer, http_server

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
ABSURD = [
    "99999999999",
    "9" * 5_000,
    "86000",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Fri, 31 Dec 9999 23:59:59 -0000",
    "Fri, 31 Dec 99999999999 23:59:59 GMT",
]
STRANGE = ["-1", "-99999999999", "NaN", "1e400", "inf", "soon", "", " ", "²", "1, 2", "Mon, 32 Foo", "\x00"]
FEW = (ABSURD[0], ABSURD[3], "-99999999999", "NaN")
"""For those who ask the same reader of headers."""


def config(folder: Path, url: str, **changes: Any) -> CollectorConfig:
    own: dict[str, Any] = {
        "judge": {"use": "openai:m", "base_url": url, "sentinel_rate": 0},
        "evaluate": {"retry_delays": ["10s", "60s"], "probe_delays": ["5s", "20s"], "deadline": "1h"},
    }
    for key, value in changes.items():
        own[key] = {**own.get(key, {}), **value} if isinstance(value, Mapping) else value
    return config_of(folder, **own)


def pausing(wait: str, *, status: int = 429) -> Said:
    return Said(status=status, headers={"Retry-After": wait})


async def sent(spans: Stepped, *numbers: int) -> None:
    """Send answers, and let them be queued and judged as far as that is possible now."""
    for number in numbers:
        await spans.send(*rag_trace(number, answer=ANSWER))
    await spans.pass_time(1)


# --- what is asked for


@given(header=st.text() | st.from_regex(r"[+-]?\d*[.e]?\d*", fullmatch=True))
@example(header="Fri, 31 Dec 9999 23:59:59 GMT")
@example(header="Mon, 01 Jan 99999999999 00:00:00 GMT")
@example(header="Mon, 01 Jan 2027 00:00:00 -9999")
@example(header="Sun, 01 Nov 2026 13:00:00")
@example(header="Sun, 01 Nov 2026 13:00:00 -0000")
@example(header="9" * 5_000)
@example(header="1e400")
def test_any_text_asks_for_a_wait_that_has_an_end_or_for_none(header: str) -> None:
    wait_s = retry_after_s_of(header, now=NOW)
    assert wait_s is None or 0 <= wait_s <= LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7),
        (" 0.25 ", 0.25),
        ("Sun, 01 Nov 2026 12:30:00 GMT", 1800),
        ("Sun, 01 Nov 2026 12:30:00", 1800),  # without a zone it is GMT, as RFC 9110 has all dates
        ("Sun, 01 Nov 2026 12:30:00 -0000", 1800),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        *((header, LONGEST_WAIT_S) for header in ABSURD if header not in ("86000", ABSURD[-1])),
        *((header, None) for header in STRANGE),
    ],
)
def test_what_a_header_asks_for(header: str, wait_s: float | None) -> None:
    assert retry_after_s_of(header, now=NOW) == wait_s


@given(told_s=st.floats() | st.integers())
@example(told_s=float("nan"))
@example(told_s=10**400)
def test_what_a_plug_in_says_it_was_asked_for_has_an_end_too(told_s: float) -> None:
    for error in (
        JudgeUnavailable("busy", retry_after_s=told_s),
        SendRetryable("busy", retry_after_s=told_s),
    ):
        assert error.retry_after_s is None or 0 <= error.retry_after_s <= LONGEST_WAIT_S


# --- a judge


@pytest.mark.parametrize("wait", FEW[:2])
async def test_a_judge_that_asks_for_ever_is_probed_and_used_as_soon_as_it_answers(
    tmp_path: Path, wait: str
) -> None:
    with hostile_judge(lambda _: pausing(wait)) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url)) as spans:
            await sent(spans, 0, 1, 2)
            await spans.pass_time(5)
            assert await spans.outcomes() != {"judged": 3}
            judge.rule = well
            await spans.pass_time(20)
            assert await spans.outcomes() == {"judged": 3}
            assert spans.collector.counters.snapshot()["stage_errors"] == 0
            assert (await spans.collector.pipeline.store.ledger()).adds_up
        assert sorted(span.trace_id for span in spans.carriers()) == [trace_id_of(n) for n in range(3)]


async def test_while_it_waits_a_judge_is_asked_once_a_delay_and_answers_end_with_the_true_reason(
    tmp_path: Path,
) -> None:
    with hostile_judge(lambda _: pausing("99999999999", status=503)) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url, evaluate={"deadline": "10m"})) as spans:
            await sent(spans, *range(5))
            for _ in range(40):
                await spans.pass_time(20)
            assert await spans.outcomes() == {"failed:judge_unavailable": 5}
            ledger = await spans.collector.pipeline.store.ledger()
        assert (ledger.seen, ledger.adds_up) == (5, True)
        assert 5 < judge.requests <= 2 + 600 / 20


@pytest.mark.parametrize("wait", [*FEW[2:], "0"])
async def test_a_wait_that_makes_no_sense_is_none_and_answers_are_judged(tmp_path: Path, wait: str) -> None:
    moods = iter([pausing(wait)])
    with hostile_judge(lambda body: next(moods, None) or well(body)) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url)) as spans:
            await sent(spans, 0)
            assert await spans.outcomes() == {"judged": 1}


async def test_that_nothing_is_judged_is_said_until_the_judge_is_back(tmp_path: Path) -> None:
    with hostile_judge(lambda _: pausing("99999999999")) as judge:
        async with stepped_collector(config(tmp_path, judge.base_url)) as spans:
            vitals = spans.collector.vitals
            before = await vitals.readiness()
            await sent(spans, 0, 1)
            told = []
            for _ in range(3):  # before, at and after a probe: no gap in it ends an alert's `for`
                ready = await vitals.readiness()
                stopped = {reading.attributes["why"]: reading.value for reading in await stops(spans)}
                told.append((ready.is_judging, " ".join(ready.notes), stopped))
                spans.clock.time_ns += 5_000_000_000
            await spans.work()
            judge.rule = well
            await spans.pass_time(20)
            after = await vitals.readiness()
            assert await spans.outcomes() == {"judged": 2}
    note = "nothing is judged, and answers wait on disk: failed:judge_unavailable"
    assert told == [(False, note, {"failed": 1, "over_budget": 0})] * 3
    assert [(each.is_judging, each.notes) for each in (before, after)] == [(True, ())] * 2


async def stops(spans: Stepped) -> Sequence[Measurement]:
    return (await spans.collector.vitals.readings())["ragtrace.judge.stopped"]


# --- a back end


@pytest.mark.parametrize("wait", FEW)
async def test_a_back_end_that_asks_for_ever_gets_its_spans_when_it_takes_them(
    tmp_path: Path, wait: str
) -> None:
    busy = Answer(status=503, headers={"Retry-After": wait})
    moods = iter([busy, busy])
    with running_back_end(lambda spans: next(moods, None) or Answer(took=spans)) as back_end:
        export = [{"endpoint": back_end.url}]
        async with stepped_collector(config_of(tmp_path, export=export)) as spans:
            await spans.send(*rag_trace(0))
            await spans.pass_time(1)
            for _ in range(2):
                await spans.pass_time(60)
            counted = spans.collector.counters.snapshot()
            ledger = await spans.collector.pipeline.store.ledger()
    assert back_end.times() == {trace_id_of(0): 1}
    assert (counted["deliveries_failed"], counted["stage_errors"]) == (2, 0)
    assert (ledger.by_name()["undelivered"], ledger.adds_up) == (0, True)


@pytest.mark.parametrize(
    ("seconds", "nanos", "wait_s"),
    [
        (2**63 - 1, 0, LONGEST_WAIT_S),
        (99_999_999_999, 0, LONGEST_WAIT_S),
        (-(2**63), 0, 0),
        (-7, -500_000_000, 0),
        (7, 500_000_000, 7.5),
        (0, -(2**31), 0),
    ],
)
async def test_what_retry_info_asks_for_has_an_end(seconds: int, nanos: int, wait_s: float) -> None:
    info = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds, nanos=nanos))
    status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED)
    status.details.add().Pack(info)

    async def export(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")

    server = grpc.aio.server()
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_registered_method_handlers(service, handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sink = OtlpGrpcSink(f"127.0.0.1:{port}")
    try:
        with pytest.raises(SendRetryable) as caught:
            await sink.send(encode(rag_trace(0)))
    finally:
        await sink.aclose()
        await server.stop(None)
    assert caught.value.retry_after_s == wait_s


@pytest.mark.parametrize("wait", FEW)
async def test_a_reader_waits_no_longer_than_it_would_by_itself(wait: str) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    moods = iter([HttpAnswer(body=b"{}"), *[HttpAnswer(status=503, headers={"Retry-After": wait})] * 3])
    with http_server(lambda _: next(moods, None) or HttpAnswer(body=b"{}")) as server:
        api = HttpApi("Tempo", server.url, sleep=sleep)
        for _ in range(2):
            assert await api.document("/api/search") == {}
        await api.aclose()
    assert len(waits) == 3
    assert all(0 <= wait_s <= 30 for wait_s in waits)
