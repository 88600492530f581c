"""``ragtrace doctor --app``: runs an application with a receiver of its own, and weighs what it sends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TextIO

from ragtrace.capture.instrumentation import ENDPOINT_OVERRIDE, JOURNAL, resolve
from ragtrace.cli.render import many, one_line
from ragtrace.errors import CodecError, ConfigError
from ragtrace.model import MetricResult, RagRecord, SkipReason
from ragtrace.pipeline import evaluate
from ragtrace.traces.extract import Extraction, extract_records
from ragtrace.traces.otlp import Encoding, parse_request, spans_in
from ragtrace.traces.trace import Span, Trace

_GRACE_S: Final = 10.0
"""How long an application that is to stop may take, before it is told with more force."""
_TRACES: Final = "/v1/traces"
_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_HTTP2: Final = b"PRI"
"""How a connection of gRPC begins, and none of HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRun:
    """An application that ran, and what it sent meanwhile."""

    exit_code: int
    """Negative: the signal that ended it."""
    was_stopped: bool
    """By Ctrl-C."""
    seconds: float
    spans: tuple[Span, ...]
    unreadable: int
    """Requests that were no OTLP."""
    journal: tuple[Mapping[str, Any], ...]
    """What ``ragtrace.instrument()`` said it did, in each process."""


def run_app(command: str, *, stdout: TextIO | None = None) -> AppRun:
    """Run a command until it ends or is interrupted.

    Its input and output are this process's, unless ``stdout`` is given.

    Raises:
        ConfigError: the command cannot be started.
    """
    try:
        arguments = shlex.split(command)
    except ValueError as exc:
        raise ConfigError(f"--app {command!r} is not a valid command: {exc}") from exc
    if not arguments:
        raise ConfigError("--app names no command: write --app 'python app.py'")
    with _receiving() as received, TemporaryDirectory(prefix="ragtrace-doctor-") as folder:
        journal = Path(folder) / "journal"
        journal.touch()
        begun = time.monotonic()
        try:
            env = _environment(os.environ, received.endpoint, journal)
            process = subprocess.Popen(arguments, env=env, stdout=stdout)
        except OSError as exc:
            raise ConfigError(
                f"--app: {arguments[0]!r} cannot be started ({exc.strerror}): name a program and its"
                " arguments, as in --app 'python app.py'; no shell runs it"
            ) from exc
        was_stopped = _wait(process)
        return AppRun(
            exit_code=process.returncode,
            was_stopped=was_stopped,
            seconds=time.monotonic() - begun,
            spans=received.spans(),
            unreadable=received.unreadable,
            journal=tuple(json.loads(line) for line in journal.read_text("utf-8").splitlines()),
        )


def _environment(env: Mapping[str, str], endpoint: str, journal: Path) -> dict[str, str]:
    """Point every exporter of the application at the receiver; headers are for where it sends else."""
    others = ("TRACES_ENDPOINT", "HEADERS", "TRACES_HEADERS")
    kept = {name: env[name] for name in env.keys() - {f"OTEL_EXPORTER_OTLP_{each}" for each in others}}
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


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of the process; return whether it was told to end."""
    try:
        process.wait()
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
            spans = spans_in(parse_request(body, encoding=encoding))
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
            return zlib.decompress(raw, _GZIP_OR_ZLIB) if "Content-Encoding" in self.headers else raw
        except zlib.error:
            return None

    def log_message(self, *args: object) -> None:
        """Say nothing: the terminal is the application's."""


_NOTHING_TO_JUDGE: Final = frozenset(
    {
        SkipReason.NO_CONTENT,
        SkipReason.NO_RETRIEVAL,
        SkipReason.EMPTY_RETRIEVAL,
        SkipReason.REDACTED,
        SkipReason.TRUNCATED,
        SkipReason.INCOMPLETE,
        SkipReason.FAILED_CALL,
    }
)
"""Reasons in what was captured. Other reasons are in the answer or the judge."""
_SHOWN_CHARS: Final = 200
_ZERO_CODE: Final = (
    "call `ragtrace.instrument()` where the application starts; or, without touching it, "
    "pip install opentelemetry-distro and run it by `opentelemetry-instrument python app.py`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCall:
    """A RAG call of a trace, and whether it can be judged."""

    record: RagRecord
    reason: SkipReason | None
    """Why it will not be judged."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTrace:
    """A trace, and the RAG calls in it."""

    trace: Trace
    extraction: Extraction
    calls: tuple[CapturedCall, ...]

    @property
    def judged(self) -> int:
        """How many of the calls will be judged."""
        return sum(call.reason is None for call in self.calls)


async def captured_traces(run: AppRun) -> list[CapturedTrace]:
    """Put the spans together by trace, in order of arrival, and find the RAG calls."""
    spans: dict[str, list[Span]] = {}
    for span in run.spans:
        spans.setdefault(span.trace_id, []).append(span)
    found = []
    for trace_id, members in spans.items():
        trace = Trace.of(trace_id, members)
        extraction = extract_records(trace)
        calls = tuple([await _call(record) for record in extraction.records])
        found.append(CapturedTrace(trace=trace, extraction=extraction, calls=calls))
    return found


async def _call(record: RagRecord) -> CapturedCall:
    """Let the judge that needs no key have it: what it cannot be asked about, no judge can."""
    (outcome,) = (await evaluate(record)).outcomes
    if isinstance(outcome, MetricResult) and outcome.skip_reason in _NOTHING_TO_JUDGE:
        return CapturedCall(record=record, reason=outcome.skip_reason, detail=outcome.explanation or "")
    return CapturedCall(record=record, reason=None)


def check_run(command: str, run: AppRun) -> Check:
    """Say how the application ended."""
    after = f"after {run.seconds:.1f} s"
    name = f"app {one_line(command)}"
    if run.was_stopped:
        return Check(name, "ok", f"was stopped {after}")
    if run.exit_code < 0:
        return Check(name, "warn", f"was ended by {Signals(-run.exit_code).name} {after}: {_LOST}")
    if run.exit_code:
        return Check(name, "warn", f"ended with exit code {run.exit_code} {after}")
    return Check(name, "ok", f"ended with exit code 0 {after}")


_LOST: Final = "spans of its last moment may be lost"


def check_capture(run: AppRun) -> Iterator[Check]:
    """Say who captures, what becomes of each library that was imported, and whether spans came."""
    yield _instrumented(run)
    libraries: dict[str, Mapping[str, Any]] = {
        each["name"]: each for each in run.journal if each["event"] == "library"
    }
    yield from (_library(name, found) for name, found in libraries.items())
    if run.unreadable:
        yield Check("requests", "warn", f"{run.unreadable} could not be read as OTLP")
    if not run.spans and any(each["event"] == "on" for each in run.journal):
        yield Check(
            "spans",
            "fail",
            "none came",
            "ask the application a question while it runs; mark its own code with @ragtrace.rag, "
            "@ragtrace.retrieval and ragtrace.generation (docs/instrument.md)",
        )


def _instrumented(run: AppRun) -> Check:
    name, events = "ragtrace.instrument()", {each["event"]: each for each in run.journal}
    if "on" in events:
        return Check(name, "ok", f"was called: {_destination(events['on'])}")
    if "disabled" in events:
        return Check(
            name, "fail", "was called, and does nothing", "unset RAGTRACE_DISABLED and OTEL_SDK_DISABLED"
        )
    if run.spans:
        return Check(name, "ok", "was not called: other code writes the spans")
    return Check(name, "fail", "was never called, and no spans came", _ZERO_CODE)


def _destination(on: Mapping[str, Any]) -> str:
    """Say where spans go when nobody looks."""
    if on["by"] == "code":
        return f"without the doctor, spans go to {on['target']}"
    if on["joined"]:
        return "it joined the application's tracer provider; without the doctor, spans go where that exports"
    settings = resolve(os.environ)
    named = "" if settings.target_by == "environment" else ", the default, as no endpoint was named"
    return f"without the doctor, spans go to {settings.target}{named}"


def _library(name: str, found: Mapping[str, Any]) -> Check:
    title = f"library {name}"
    match found["state"]:
        case "missing" if found["by"]:
            return Check(title, "ok", f"is traced if {found['by']} calls it, but not on its own")
        case "missing":
            return Check(
                title, "fail", "is imported, but its calls are not traced", f"pip install {found['package']}"
            )
        case "traced":
            return Check(title, "ok", f"is traced: spans by {found['by']}")
        case "left":
            return Check(title, "ok", f"{found['by']} traces it already")
    package = found["package"]
    return Check(
        title,
        "fail",
        f"is imported, but its calls are not traced: {package or 'what traces it'} does not fit it",
        f"pip install --upgrade {package}" if package else f"upgrade {name}",
    )


def check_trace(captured: CapturedTrace, *, show_content: bool) -> Check:
    """Say what a trace is made of, what was found in it, and what will come of that."""
    scopes = Counter(span.scope.name or "(no name)" for span in captured.trace.spans)
    made_of = ", ".join(f"{one_line(name)} {number}" for name, number in scopes.items())
    lines = [f"{many(len(captured.trace.spans), 'span')}: {made_of}"]
    for call in captured.calls:
        lines += _call_lines(call, show_content=show_content)
    notes = [note.text for note in captured.extraction.notes if note.span_id is None]
    reasons = [f"{call.reason}: {one_line(call.detail)}" for call in captured.calls if call.reason]
    if not captured.calls:
        lines.append("no RAG call")
    return Check(
        f"trace {captured.trace.trace_id}",
        "ok" if captured.judged else "fail",
        "\n".join(lines),
        "\n".join(dict.fromkeys([*reasons, *map(one_line, notes)])) or None,
    )


def _call_lines(call: CapturedCall, *, show_content: bool) -> Iterator[str]:
    record = call.record
    yield f"RAG call{f' {one_line(record.target.name)!r}' if record.target else ''}"
    texts = [chunk.text or "" for chunk in record.chunks]
    length = many(len("".join(texts)), "character")
    chunks = f"{many(len(texts), 'chunk')}, {length}" if texts else "missing"
    yield f"  question  {_shown(record.question, show_content=show_content)}"
    yield f"  context   {chunks}"
    if show_content:
        yield from (f"    - {_shown(text, show_content=True)}" for text in texts)
    yield f"  answer    {_shown(record.answer, show_content=show_content)}"
    yield "  this will be judged" if call.reason is None else f"  not judged: {call.reason}"


def _shown(text: str | None, *, show_content: bool) -> str:
    if text is None:
        return "missing"
    line, length = one_line(text), many(len(text), "character")
    if not show_content:
        return length
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}… ({length})"


def calls_json(captured: CapturedTrace, show_content: bool) -> list[dict[str, object]]:
    """Return the calls of a trace for machines; texts only if they are asked for."""
    told: list[dict[str, object]] = []
    for call in captured.calls:
        record = call.record
        texts = {
            "question": record.question,
            "contexts": [chunk.text for chunk in record.chunks],
            "answer": record.answer,
        }
        said = {"judged": call.reason is None, "reason": call.reason, "detail": call.detail or None}
        told.append({**said, **(texts if show_content else {})})
    return told
