"""A back end on loopback that speaks as much of Tempo's or Jaeger's API as is asked, and fails as told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span
from tests.unit.backends.servers import HttpAnswer, http_server

__all__ = ["DOWN", "Fault", "FaultyServer", "faulty_jaeger", "faulty_tempo"]

DOWN = HttpAnswer(status=503, headers={"retry-after": "0"}, body=b"upstream connect error")

Fault = Callable[[str], HttpAnswer | None]
"""Given the path: what is answered instead, if anything."""


@dataclass
class FaultyServer:
    """What a test knows of the server, and may change."""

    stored: Sequence[Sequence[Span]]
    fault: Fault = lambda _: None
    url: str = ""
    paths: list[str] = field(default_factory=list)

    @property
    def services(self) -> list[str]:
        """Who sent spans."""
        return sorted({str(spans[0].resource.attributes["service.name"]) for spans in self.stored})

    def found(self, since_ns: int, until_ns: int) -> list[Sequence[Span]]:
        """Return the traces that began in this time."""
        return [spans for spans in self.stored if since_ns <= spans[0].start_ns < until_ns]


@contextmanager
def faulty_tempo(stored: Sequence[Sequence[Span]], fault: Fault = lambda _: None) -> Iterator[FaultyServer]:
    """Serve traces as Tempo does."""
    with _serving(FaultyServer(stored=stored, fault=fault), _as_tempo) as server:
        yield server


@contextmanager
def faulty_jaeger(stored: Sequence[Sequence[Span]], fault: Fault = lambda _: None) -> Iterator[FaultyServer]:
    """Serve traces as Jaeger does."""
    with _serving(FaultyServer(stored=stored, fault=fault), _as_jaeger) as server:
        yield server


@contextmanager
def _serving(
    faulty: FaultyServer, answer: Callable[[FaultyServer, str], HttpAnswer]
) -> Iterator[FaultyServer]:
    def reply(path: str) -> HttpAnswer:
        faulty.paths.append(path)
        return faulty.fault(path) or answer(faulty, path)

    with http_server(reply) as server:
        faulty.url = server.url
        yield faulty


def _as_tempo(server: FaultyServer, path: str) -> HttpAnswer:
    url = urlsplit(path)
    if url.path == "/api/search":
        since_s, until_s = (int(parse_qs(url.query)[name][0]) for name in ("start", "end"))
        ids = [{"traceID": spans[0].trace_id} for spans in server.found(since_s * 10**9, until_s * 10**9)]
        return _json({"traces": ids})
    if url.path == "/api/search/tag/service.name/values":
        return _json({"tagValues": server.services})
    if (spans := _trace(server, url.path)) is None:
        return HttpAnswer(status=404)
    message = ExportTraceServiceRequest.FromString(encode(spans))
    return _json({"trace": json_format.MessageToDict(message)})


def _as_jaeger(server: FaultyServer, path: str) -> HttpAnswer:
    url = urlsplit(path)
    if url.path == "/api/v3/services":
        return _json({"services": server.services})
    if url.path == "/api/v3/traces":
        service = parse_qs(url.query)["query.service_name"][0]
        spans = [span for trace in server.stored for span in trace if service in server.services]
        return HttpAnswer(body=f'{{"result":{encode_json(spans)}}}'.encode()) if spans else _NOTHING
    found = _trace(server, url.path)
    return HttpAnswer(body=f'{{"result":{encode_json(found)}}}'.encode()) if found else _NOTHING


_NOTHING = HttpAnswer(status=404, body=b'{"error":{"httpCode":404,"message":"No traces found"}}')


def _trace(server: FaultyServer, path: str) -> Sequence[Span] | None:
    wanted = path.rpartition("/")[2]
    return next((spans for spans in server.stored if spans[0].trace_id == wanted), None)


def _json(tree: object) -> HttpAnswer:
    return HttpAnswer(body=json.dumps(tree).encode())
