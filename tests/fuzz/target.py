"""A collector of its own process under fire: what it answers, what a request costs it, and what it judges.

What a receiver may answer: https://opentelemetry.io/docs/specs/otlp/.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragtrace import semconv
from ragtrace.traces.otlp import decode_json, encode
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.process import eventually
from tests.fuzz.bodies import Body
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

MOST_BYTES: Final = 4 << 20
"""``receive.max_message_bytes`` of the collector under fire."""
_CPU_S, _CPU_S_A_MIB = 0.5, 2.0
"""For one MiB that is read. Measured: 1.2 s at worst, for JSON of empty parts, which is read in a thread."""
_MEMORY_BYTES, _MEMORY_A_BYTE = 32 << 20, 64
"""For each byte that is read. Measured: 51 at worst, for the same."""
_MOST_MEMORY_BYTES: Final = 512 << 20
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_STATUS_LINE: Final = re.compile(rb"(?:^|\n)HTTP/1\.1 (\d{3}) ")
_STATUSES: Final = frozenset({100, 200, 400, 404, 405, 408, 413, 415, 431, 503})
_REFUSED: Final = frozenset({400, 401, 403, 408, 413, 415})
_LATER: Final = frozenset({429, 503})
_TYPES: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}
_CODES: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
    }
)


@dataclass(slots=True, kw_only=True)
class Target:
    """Both receivers of one collector."""

    collector: CollectorProcess
    out: Path
    export: grpc.UnaryUnaryMultiCallable
    answers: Counter[str] = field(default_factory=Counter)
    """How often each answer was given."""
    sentinels: int = 0
    worst_shares: dict[str, float] = field(default_factory=dict)
    """Of what a request may take, so far."""
    peak_bytes: int = 0
    """The most memory that the process had resident."""

    def post(self, body: Body) -> None:
        """Send over HTTP, and check the answer and what it cost."""
        size = unpacked_bytes(body)
        self._measured(lambda: self._post(body, size), size)

    def _post(self, body: Body, size: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.collector.http_port, timeout=PATIENCE_S)
        sent = {"content-type": _TYPES[body.encoding]}
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
        check_http(status, told, content, sent_type=sent["content-type"])
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

    def call(self, body: bytes, *, packed: bool) -> None:
        """Send over gRPC, and check the answer and what it cost."""
        compression = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression

        def call() -> None:
            try:
                answer = self.export(body, timeout=PATIENCE_S, compression=compression)
            except grpc.RpcError as error:
                check_grpc_error(error)
                self.answers[f"grpc {error.code().name}"] += 1
                return
            check_taken(ExportTraceServiceResponse.FromString(answer))
            self.answers["grpc OK"] += 1

        self._measured(call, len(body))

    def send_sentinel(self) -> None:
        """Send an answer that is to be judged, whatever else comes in."""
        self.sentinels += 1
        self.export(encode(rag_trace(10_000 + self.sentinels)), timeout=PATIENCE_S)

    def check_alive(self) -> None:
        assert self.collector.process.poll() is None, self.collector.log.read_text()
        assert self.peak_bytes < _MOST_MEMORY_BYTES

    def check_sentinels(self) -> None:
        """Assert that every good answer was judged, and nothing went wrong inside."""
        wanted = {trace_id_of(10_000 + number) for number in range(1, self.sentinels + 1)}
        with suppress(TimeoutError):
            eventually(lambda: wanted <= self._judged(), what="every good answer")
        log = self.collector.log.read_text()[-5_000:]
        assert not wanted - self._judged(), f"{sorted(wanted - self._judged())} were not judged\n{log}"
        assert "Traceback" not in log, log

    def _judged(self) -> set[str]:
        text = self.out.read_text("utf-8") if self.out.exists() else ""
        *lines, _under_way = text.split("\n")
        spans = [span for line in lines for span in decode_json(line)]
        return {span.trace_id for span in spans if semconv.EVAL_STATUS in span.attributes}

    def _measured(self, act: Callable[[], None], size: int) -> None:
        """Assert that an act costs no more than a request of so many bytes, unpacked, may.

        Neighbors on a core can double the CPU time of the same work, and never halve it: what seems to cost
        too much is done again, and the least of a few times is what it costs.
        """
        read = min(size, MOST_BYTES)
        most_cpu_s, least_cpu_s = _CPU_S + _CPU_S_A_MIB * read / 2**20, float("inf")
        for _ in range(3):
            least_cpu_s = min(least_cpu_s, self._cpu_s_in_memory_bounds(act, read))
            if least_cpu_s <= most_cpu_s:
                break
        self._check("CPU seconds", least_cpu_s, most_cpu_s)

    def _cpu_s_in_memory_bounds(self, act: Callable[[], None], read: int) -> float:
        proc = Path(f"/proc/{self.collector.process.pid}")

        def cpu_s() -> float:
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def memory(name: str) -> int:
            status = (proc / "status").read_text().splitlines()
            return 1024 * next(int(line.split()[1]) for line in status if line.startswith(name))

        (proc / "clear_refs").write_text("5")  # the peak begins anew
        before_s, before = cpu_s(), memory("VmRSS")
        act()
        spent_s, peak = cpu_s() - before_s, memory("VmHWM")
        self.peak_bytes = max(self.peak_bytes, peak)
        self._check("bytes of memory", peak - before, _MEMORY_BYTES + _MEMORY_A_BYTE * read)
        return spent_s

    def _check(self, what: str, taken: float, most: float) -> None:
        assert taken <= most, f"a request took {taken:,.2f} {what}, and may take {most:,.2f}"
        self.worst_shares[what] = max(self.worst_shares.get(what, 0.0), taken / most)


def unpacked_bytes(body: Body) -> int:
    """Return the size of a body when all its layers of gzip are off, or more than is ever read."""
    content, size = body.content, len(body.content)
    for _ in range(3):
        if not content.startswith(b"\x1f\x8b"):
            break
        content = _unpacked(content)
        size = max(size, len(content))
    return size


def _unpacked(content: bytes) -> bytes:
    """Take one layer off, as far as it is whole: every member of it."""
    found = bytearray()
    with suppress(zlib.error):
        while content.startswith(b"\x1f\x8b") and len(found) <= MOST_BYTES:
            member = zlib.decompressobj(wbits=31)
            found += member.decompress(content, MOST_BYTES + 1)
            content = member.unused_data
    return bytes(found)


def check_http(status: int, headers: Mapping[str, str], content: bytes, *, sent_type: str) -> None:
    """Assert that an answer to ``POST /v1/traces`` is one that OTLP/HTTP allows."""

    def read(kind: Any) -> Any:
        is_json = answered == _TYPES["json"]
        return json_format.Parse(content, kind()) if is_json else kind.FromString(content)

    assert status == 200 or status in _REFUSED | _LATER, f"status {status}"
    answered = headers["content-type"]
    assert answered == sent_type
    if status == 200:
        check_taken(read(ExportTraceServiceResponse))
        return
    error = read(status_pb2.Status)
    assert error.message
    assert error.code
    if status in _LATER:
        assert int(headers["retry-after"]) > 0


def check_taken(answer: ExportTraceServiceResponse) -> None:
    """Assert that what was rejected has a reason, and that a full success says nothing."""
    partial = answer.partial_success
    assert partial.rejected_spans >= 0
    assert bool(partial.error_message) or not partial.rejected_spans
    assert answer.HasField("partial_success") is bool(partial.rejected_spans or partial.error_message)


def check_grpc_error(error: grpc.RpcError) -> None:
    """Assert that an error is one that OTLP/gRPC lists, and that a sender knows when to come back."""
    assert isinstance(error, grpc.Call)
    assert error.code() in _CODES, f"{error.code()}: {error.details()}"
    assert error.details()
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        trailing = dict(error.trailing_metadata() or ())
        status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
        info = error_details_pb2.RetryInfo()
        assert any(detail.Unpack(info) for detail in status.details)
        assert info.retry_delay.ToTimedelta().total_seconds() > 0


@contextmanager
def running_target(folder: Path) -> Iterator[Target]:
    """Run a collector in a folder; in the end, see that what was good has been judged."""
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
        export = channel.unary_unary(_EXPORT)
        target = Target(collector=collector, out=folder / "out.jsonl", export=export)
        yield target
        target.check_alive()
        target.check_sentinels()
