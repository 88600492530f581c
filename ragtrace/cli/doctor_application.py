"""Run an application with an OTLP receiver of its own, and keep what it sends."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

from ragtrace.capture.settings import ENDPOINT_OVERRIDE, JOURNAL
from ragtrace.errors import CodecError, ConfigError
from ragtrace.traces.otlp import Encoding, decode_body
from ragtrace.traces.trace import Span

_GRACE_S: Final = 10.0
"""How long an application that is to stop may take, before it is told with more force."""
_TRACES: Final = "/v1/traces"
_HTTP2: Final = b"PRI"
"""How a connection of gRPC begins, and none of HTTP/1.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRun:
    """An application that ran, and what it sent meanwhile."""

    exit_code: int
    """Negative: the signal that ended it."""
    was_stopped: bool
    """By Ctrl-C, or because its time was over."""
    seconds: float
    spans: tuple[Span, ...]
    unreadable: int
    """Requests that were no OTLP."""
    journal: tuple[Mapping[str, Any], ...]
    """What ``ragtrace.instrument()`` said it did, in each process."""


def run_app(command: str, *, for_s: float | None = None, stdout: TextIO | None = None) -> AppRun:
    """Run a command until it ends, is interrupted, or its time is over.

    Its input and output are this process's, unless ``stdout`` is given.

    Raises:
        ConfigError: the command cannot be started.
    """
    arguments = _arguments(command)
    with _receiving() as received, TemporaryDirectory(prefix="ragtrace-doctor-") as folder:
        journal = Path(folder) / "journal"
        journal.touch()
        begun = time.monotonic()
        process = _started(arguments, _environment(os.environ, received.endpoint, journal), stdout)
        was_stopped = _wait(process, for_s)
        return AppRun(
            exit_code=process.returncode,
            was_stopped=was_stopped,
            seconds=time.monotonic() - begun,
            spans=received.spans(),
            unreadable=received.unreadable,
            journal=tuple(json.loads(line) for line in journal.read_text("utf-8").splitlines()),
        )


def _arguments(command: str) -> list[str]:
    try:
        arguments = shlex.split(command)
    except ValueError as exc:
        raise ConfigError(f"--app {command!r} is not a valid command: {exc}") from exc
    if not arguments:
        raise ConfigError("--app names no command: write --app 'python app.py'")
    return arguments


def _started(
    arguments: Sequence[str], env: Mapping[str, str], stdout: TextIO | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(arguments, env=env, stdout=stdout)
    except OSError as exc:
        raise ConfigError(
            f"--app: {arguments[0]!r} cannot be started ({exc.strerror}): name a program and its arguments, "
            "as in --app 'python app.py'; no shell runs it"
        ) from exc


def _environment(env: Mapping[str, str], endpoint: str, journal: Path) -> dict[str, str]:
    """Point every exporter of the application at the receiver; headers are for where it sends else."""
    kept = {name: value for name, value in env.items() if name not in _ELSEWHERE}
    unproxied = ",".join(filter(None, [env.get("NO_PROXY", env.get("no_proxy")), "127.0.0.1"]))
    return {
        "OTEL_BSP_SCHEDULE_DELAY": "200",  # who crashes, or is killed, has sent the most of it
        **kept,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        ENDPOINT_OVERRIDE: endpoint + _TRACES,
        JOURNAL: str(journal),
        "NO_PROXY": unproxied,
        "no_proxy": unproxied,
    }


_ELSEWHERE: Final = frozenset(
    {
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    }
)


def _wait(process: subprocess.Popen[bytes], for_s: float | None) -> bool:
    """Wait for the end of the process; return whether it was told to end."""
    try:
        process.wait(for_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    except KeyboardInterrupt:
        if not _is_in_the_foreground():
            process.send_signal(signal.SIGINT)
    else:
        return False
    for stronger in (signal.SIGTERM, signal.SIGKILL):
        try:
            process.wait(_GRACE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(stronger)
    process.wait()
    return True


def _is_in_the_foreground() -> bool:
    """Say whether a terminal sends Ctrl-C to this process and to the application alike."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class _Received:
    """What came in so far, in the order of arrival."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.unreadable = 0
        self._spans: dict[tuple[str, str], Span] = {}
        self._lock = threading.Lock()  # several connections at once

    def take(self, body: bytes, encoding: Encoding) -> bool:
        try:
            spans = decode_body(body, encoding=encoding)
        except CodecError:
            with self._lock:
                self.unreadable += 1
            return False
        with self._lock:  # an application may send a span by two exporters
            self._spans.update({(span.trace_id, span.span_id): span for span in spans})
        return True

    def spans(self) -> tuple[Span, ...]:
        with self._lock:
            return tuple(self._spans.values())


@contextmanager
def _receiving() -> Iterator[_Received]:
    """Listen on one free loopback port, for OTLP by HTTP and by gRPC."""
    received = _Received()
    with _grpc_port(received) as grpc_port, _Server(received, grpc_port) as server:
        received.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _grpc_port(received: _Received) -> Iterator[int]:
    import grpc

    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        if not received.take(body, "protobuf"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no OTLP")
        return b""

    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    methods = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=None).wait()


class _Server(ThreadingHTTPServer):
    """Answers HTTP itself, and forwards gRPC connections: exporters know one address only."""

    daemon_threads = True
    block_on_close = False  # an application's child may keep a connection for longer than it lives

    def __init__(self, received: _Received, grpc_port: int) -> None:
        self.received = received
        self._grpc_port = grpc_port
        super().__init__(("127.0.0.1", 0), _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Look at how the connection begins."""
        if request.recv(len(_HTTP2), socket.MSG_PEEK) != _HTTP2:
            super().finish_request(request, client_address)
            return
        with socket.create_connection(("127.0.0.1", self._grpc_port)) as other:
            back = threading.Thread(target=_copy, args=(other, request), daemon=True)
            back.start()
            _copy(request, other)
            back.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that broke off: the application was ended."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Takes OTLP traces; metrics and logs are taken and forgotten."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self._body()
        encoding: Encoding = "json" if "json" in self.headers.get("Content-Type", "") else "protobuf"
        taken = not self.path.endswith(_TRACES) or (
            body is not None and self.server.received.take(body, encoding)
        )
        self.send_response(200 if taken else 400)
        answer = b"{}" if encoding == "json" else b""
        self.send_header("Content-Type", self.headers.get("Content-Type", "application/x-protobuf"))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _body(self) -> bytes | None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            match self.headers.get("Content-Encoding", ""):
                case "gzip":
                    return gzip.decompress(raw)
                case "deflate":
                    return zlib.decompress(raw)
        except (OSError, EOFError, zlib.error):
            return None
        return raw

    def log_message(self, *args: object) -> None:
        """Say nothing: the terminal is the application's."""
