"""Several collector processes over one PostgreSQL, as an operator starts them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.postgres_server import Postgres, running_postgres
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


def test_one_process_receives_and_another_one_judges(
    tmp_path: Path, url: str, back_end: OtlpReceiver
) -> None:
    with started(tmp_path / "a", url, back_end, "--role", "ingest") as ingest:
        send(ingest, 1, 2)
        eventually(
            lambda: "2  100.0%  queued" in run("ledger", "--from", f"store:{url}").stdout, what="two answers"
        )
        with started(tmp_path / "b", url, back_end, "--role", "evaluate") as evaluate:
            assert evaluate.grpc_port is None
            eventually(lambda: carriers(back_end) == once(1, 2), what="two verdicts")
            send(ingest, 3)
            eventually(lambda: carriers(back_end) == once(1, 2, 3), what="the third")
            assert evaluate.stop() == 0
        assert ingest.stop() == 0
    told = run("why", trace_id_of(3), "--from", f"store:{url}")
    assert "judged" in told.stdout, told.stderr


def test_who_only_receives_needs_no_key_of_the_judge(
    tmp_path: Path, url: str, back_end: OtlpReceiver
) -> None:
    judge = {"use": "openai:m", "api_key_env": "NO_SUCH_KEY"}
    with started(tmp_path / "a", url, back_end, "--role", "ingest", judge=judge) as ingest:
        send(ingest, 1)
        eventually(
            lambda: "1  100.0%  queued" in run("ledger", "--from", f"store:{url}").stdout, what="the answer"
        )
        ingest.process.send_signal(signal.SIGHUP)
        eventually(lambda: "is live" in ingest.log.read_text(), what="a reload")
        assert ingest.stop() == 0


def test_spans_of_a_trace_come_to_two_processes(tmp_path: Path, url: str, back_end: OtlpReceiver) -> None:
    with ExitStack() as stack:
        one, other = (stack.enter_context(started(tmp_path / name, url, back_end)) for name in "ab")
        for number in range(10):
            parts = rag_trace(number)
            for collector, spans in ((one, parts[:2]), (other, parts[2:])):
                with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
                    channel.unary_unary(EXPORT)(encode(spans), timeout=PATIENCE_S)
        eventually(lambda: carriers(back_end) == once(*range(10)), what="a verdict on each trace")
    assert "10  100.0%  judged" in run("ledger", "--from", f"store:{url}").stdout


def worker_of(collector: CollectorProcess, is_wanted: Callable[[bytes], bool]) -> int:
    """Return the process id of a worker."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            line = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == collector.process.pid and is_wanted(line):
            return int(path.parent.name)
    raise AssertionError("no worker")


def test_a_worker_that_is_killed_is_started_again_and_nothing_is_lost(
    tmp_path: Path, url: str, back_end: OtlpReceiver
) -> None:
    with started(tmp_path, url, back_end, "--workers", "2") as collector:
        eventually(lambda: (tmp_path / "collector.log").read_text().count("listening") == 2, what="both")
        send(collector, *range(10))
        os.kill(worker_of(collector, lambda line: b"spawn_main" in line), signal.SIGKILL)
        eventually(lambda: "is started again" in collector.log.read_text(), what="a new worker")
        eventually(lambda: collector.log.read_text().count("listening") == 3, what="its start")
        eventually(lambda: carriers(back_end) == once(*range(10)), what="each verdict, once")
        assert collector.stop() == 0
        assert collector.log.read_text().count("stopped; left on disk: nothing") == 2


def test_a_worker_that_dies_while_the_database_is_away_comes_back_with_it(
    tmp_path: Path, back_end: OtlpReceiver
) -> None:
    [port] = free_ports(1)  # of its own, each worker has one that goes with it
    receive = {"grpc": f"127.0.0.1:{port}", "http": None}
    with (
        running_postgres() as postgres,
        started(tmp_path, postgres.new_database(), back_end, "--workers", "2", receive=receive) as collector,
    ):
        eventually(lambda: collector.log.read_text().count("listening") == 2, what="both")
        postgres.stop()
        os.kill(worker_of(collector, lambda line: b"spawn_main" in line), signal.SIGKILL)
        eventually(lambda: collector.log.read_text().count("is started again") >= 2, what="a second start")
        postgres.start()
        eventually(lambda: collector.log.read_text().count("listening") == 3, what="its start")
        send(collector, *range(10))
        eventually(lambda: carriers(back_end) == once(*range(10)), what="each verdict, once")
        assert collector.stop() == 0
    assert "Traceback" not in collector.log.read_text()


def test_an_address_that_is_taken_stops_all_workers(tmp_path: Path, url: str, back_end: OtlpReceiver) -> None:
    with started(tmp_path / "a", url, back_end) as taken, ExitStack() as stack:
        at = {"telemetry": {"listen": f"127.0.0.1:{taken.pages_port}"}}
        folder = tmp_path / "b"
        with suppress(AssertionError):  # it may end before it says anything
            collector = stack.enter_context(started(folder, url, back_end, "--workers", "2", **at))
            assert collector.process.wait(PATIENCE_S) == 2
        log = eventually(lambda: (folder / "collector.log").read_text(), what="a word on it")
    assert "`telemetry.listen`: cannot listen on" in log
    assert "Traceback" not in log
