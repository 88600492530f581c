"""Several collector processes over one PostgreSQL, as an operator starts them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.postgres_server import Postgres
from tests.backends.process import eventually, free_ports
from tests.integration.cli.program import run
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture
def back_end() -> Iterator[OtlpReceiver]:
    with running_receiver() as receiver:
        yield receiver


@contextmanager
def started(
    folder: Path, url: str, back_end: OtlpReceiver, *options: str, **sections: Any
) -> Iterator[CollectorProcess]:
    config: Mapping[str, Any] = {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "assemble": {"quiet_period": "300ms", "deadline": "5s"},
        "export": [{"endpoint": back_end.endpoint}],
        "store": url,
        "telemetry": {"listen": "127.0.0.1:0"},
        **sections,
    }
    folder.mkdir(exist_ok=True)
    with collector_process(folder, config, options=options) as collector:
        yield collector


def send(collector: CollectorProcess, *numbers: int) -> None:
    """Send answers and return when all are acknowledged."""
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export = channel.unary_unary(EXPORT)
        for number in numbers:
            export(encode(rag_trace(number)), timeout=PATIENCE_S, wait_for_ready=True)


def carriers(back_end: OtlpReceiver) -> Counter[str]:
    """Count the carriers of each trace."""
    scored = (span for span in back_end.spans if any(each.key == SCORE for each in span.attributes))
    return Counter(span.trace_id.hex() for span in scored)


def once(*numbers: int) -> Counter[str]:
    return Counter(trace_id_of(number) for number in numbers)


def test_one_process_receives_without_a_key_of_the_judge_and_another_one_judges(
    tmp_path: Path, url: str, back_end: OtlpReceiver
) -> None:
    judge = {"use": "openai:m", "api_key_env": "NO_SUCH_KEY"}
    with started(tmp_path / "a", url, back_end, "--role", "ingest", judge=judge) as ingest:
        send(ingest, 1, 2)
        eventually(
            lambda: "2  100.0%  queued" in run("ledger", "--from", f"store:{url}").stdout, what="two answers"
        )
        ingest.process.send_signal(signal.SIGHUP)
        eventually(lambda: "is live" in ingest.log.read_text(), what="a reload")
        with started(tmp_path / "b", url, back_end, "--role", "evaluate") as evaluate:
            assert evaluate.grpc_port is None
            send(ingest, 3)
            eventually(lambda: carriers(back_end) == once(1, 2, 3), what="three verdicts")
            assert evaluate.stop() == 0
        assert ingest.stop() == 0
    told = run("why", trace_id_of(3), "--from", f"store:{url}")
    assert "judged" in told.stdout, told.stderr


def test_processes_of_one_machine_share_a_port_and_one_that_is_killed_loses_nothing(
    tmp_path: Path, url: str, back_end: OtlpReceiver
) -> None:
    (port,) = free_ports(1)
    receive = {"grpc": f"127.0.0.1:{port}", "http": None}
    with (
        started(tmp_path / "a", url, back_end, receive=receive) as killed,
        started(tmp_path / "b", url, back_end, receive=receive) as other,
    ):
        assert killed.grpc_port == other.grpc_port
        send(other, *range(10))
        os.kill(killed.process.pid, signal.SIGKILL)
        eventually(lambda: carriers(back_end) == once(*range(10)), what="each verdict, once")
        assert other.stop() == 0
