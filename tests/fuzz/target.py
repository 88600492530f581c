"""A collector of its own process under fire, and what is asked of it before, between and after."""

from __future__ import annotations

import http.client
import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.process import eventually
from tests.fuzz.answers import check_grpc_error, check_http, check_taken
from tests.fuzz.bodies import Body
from tests.fuzz.cost import MOST_BYTES, Meter, unpacked_bytes
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_MOST_MEMORY_BYTES: Final = 512 << 20
_STATUS_LINE: Final = re.compile(rb"(?:^|\n)HTTP/1\.1 (\d{3}) ")
_STATUSES: Final = frozenset({100, 200, 400, 404, 405, 408, 413, 415, 431, 503})
_TYPES: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}


@dataclass(slots=True, kw_only=True)
class Target:
    """Both receivers of one collector."""

    collector: CollectorProcess
    out: Path
    export: grpc.UnaryUnaryMultiCallable
    meter: Meter
    answers: Counter[str] = field(default_factory=Counter)
    """How often each answer was given."""
    sentinels: int = 0

    def post(self, body: Body, headers: dict[str, str]) -> None:
        """Send over HTTP, and check the answer and what it cost."""
        size = unpacked_bytes(body)
        self.meter.check(lambda: self._post(body, headers, size), size)

    def _post(self, body: Body, headers: dict[str, str], size: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.collector.http_port, timeout=PATIENCE_S)
        sent = {"content-type": _TYPES[body.encoding], **headers}
        if body.coding is not None:
            sent["content-encoding"] = body.coding
        try:
            connection.request("POST", "/v1/traces", body.content, sent)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
            told = {name.lower(): value for name, value in answer.getheaders()}
        except (BrokenPipeError, ConnectionResetError):
            # refused before all of a large body was read, which HTTP allows
            assert len(body.content) > 1 << 16
            self.answers["http: refused while it was sent"] += 1
            return
        finally:
            connection.close()
        sent_type = sent["content-type"].partition(";")[0].strip().lower()
        check_http(status, told, content, sent_type=sent_type)
        assert status != 200 or len(body.content) <= MOST_BYTES, "more was taken than may be"
        packed = (body.coding or "").strip().lower() == "gzip"
        assert status != 200 or not packed or size <= MOST_BYTES, "more was unpacked than may be"
        self.answers[f"http {status}"] += 1

    def say(self, said: bytes) -> None:
        """Say something that is hardly HTTP, and check that it is answered or hung up on."""
        try:
            with socket.create_connection(("127.0.0.1", self.collector.http_port), timeout=PATIENCE_S) as raw:
                raw.sendall(said)
                with suppress(OSError):  # it hung up before
                    raw.shutdown(socket.SHUT_WR)
                heard = b"".join(iter(lambda: raw.recv(1 << 16), b""))
        except (BrokenPipeError, ConnectionResetError):
            heard = b""
        statuses = [int(status) for status in _STATUS_LINE.findall(heard)]
        assert all(status in _STATUSES for status in statuses), statuses
        self.answers[f"not quite http: {statuses[:1] or 'hung up on'}"] += 1

    def call(self, body: bytes, *, packed: bool, metadata: tuple[tuple[str, str], ...]) -> None:
        """Send over gRPC, and check the answer and what it cost."""
        self.meter.check(lambda: self._call(body, packed=packed, metadata=metadata), len(body))

    def _call(self, body: bytes, *, packed: bool, metadata: tuple[tuple[str, str], ...]) -> None:
        compression = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
        try:
            answer = self.export(body, timeout=PATIENCE_S, compression=compression, metadata=metadata)
        except grpc.RpcError as error:
            check_grpc_error(error)
            self.answers[f"grpc {error.code().name}"] += 1
            return
        check_taken(ExportTraceServiceResponse.FromString(answer))
        self.answers["grpc OK"] += 1

    def send_sentinel(self) -> None:
        """Send an answer that is to be judged, whatever else comes in."""
        self.sentinels += 1
        self.export(encode(rag_trace(10_000 + self.sentinels)), timeout=PATIENCE_S)

    def check_alive(self) -> None:
        """Assert that the process lives, and has not grown beyond bounds."""
        assert self.collector.process.poll() is None, self.collector.log.read_text()
        assert self.meter.peak_bytes < _MOST_MEMORY_BYTES

    def check_sentinels(self) -> None:
        """Assert that every good answer was judged, and nothing went wrong inside."""
        wanted = {trace_id_of(10_000 + number) for number in range(1, self.sentinels + 1)}
        log = self.collector.log.read_text()
        try:
            eventually(lambda: wanted <= self._judged(), what="every good answer")
        except TimeoutError:
            missing = sorted(wanted - self._judged())
            raise AssertionError(
                f"{len(missing)} not judged, the first {missing[0]}\n{log[-5_000:]}"
            ) from None
        assert "Traceback" not in log, log[-5_000:]

    def _judged(self) -> set[str]:
        text = self.out.read_text("utf-8") if self.out.exists() else ""
        *lines, _under_way = text.split("\n")
        spans = [span for line in lines for span in decode_json(line)]
        return {span.trace_id for span in spans if semconv.EVAL_STATUS in span.attributes}


@contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    """Run a collector in a folder; in the end, see that what was good has been judged."""
    out = folder / "out.jsonl"
    config = settings_of(
        folder,
        receive={"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", "max_message_bytes": MOST_BYTES},
        assemble={"quiet_period": "200ms", "deadline": "2s", "linger": "2s"},
        store={"path": str(folder / "store.db"), "retention": "10s"},
    )
    options = [("grpc.max_send_message_length", -1)]
    with (
        collector_process(folder, config) as collector,
        grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}", options=options) as channel,
    ):
        meter = Meter(pid=collector.process.pid)
        target = Target(collector=collector, out=out, export=channel.unary_unary(_EXPORT), meter=meter)
        yield target
        target.check_alive()
        target.check_sentinels()
