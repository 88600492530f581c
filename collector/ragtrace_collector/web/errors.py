"""Refused requests as answers in the sender's own encoding."""

from __future__ import annotations

import json
from typing import Final

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from starlette.responses import Response

from ragtrace.errors import CodecError, RagtraceError
from ragtrace.traces.otlp import Encoding
from ragtrace_collector.store.records import StoreUnavailable

RETRY_AFTER_S: Final = 5
_HTTP_STATUS: Final = {
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.UNAUTHENTICATED: 401,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.UNAVAILABLE: 503,
}


class RequestRefused(RagtraceError):
    """An error response to a sender: the gRPC code, or the HTTP status.

    If a retry may help, it says when: otherwise a conforming sender drops the request.
    """

    def __init__(
        self, code: int, message: str, *, http_status: int | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status or _HTTP_STATUS[code]
        self.retry_after_s = retry_after_s


def refusal_of(error: CodecError | StoreUnavailable | RequestRefused) -> RequestRefused:
    """Return the response to a request that could not be accepted."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, CodecError):
        return RequestRefused(code_pb2.INVALID_ARGUMENT, str(error))
    return RequestRefused(code_pb2.UNAVAILABLE, str(error), retry_after_s=RETRY_AFTER_S)


def too_slow() -> RequestRefused:
    """Return the response to a request that was too slow while others waited for its memory."""
    return RequestRefused(
        code_pb2.RESOURCE_EXHAUSTED,
        "the request came too slowly while others waited for its memory: send smaller batches",
        retry_after_s=RETRY_AFTER_S,
    )


def too_large(limit: int) -> RequestRefused:
    """Return the response to a request with more bytes than the configuration allows."""
    return RequestRefused(
        code_pb2.RESOURCE_EXHAUSTED,
        f"the request is larger than `receive.max_message_bytes` ({limit}): send smaller batches",
        http_status=413,
    )


def status_of(refusal: RequestRefused) -> status_pb2.Status:
    """Return the ``google.rpc.Status`` that OTLP prescribes, with ``RetryInfo`` if a retry may help."""
    status = status_pb2.Status(code=refusal.code, message=str(refusal))
    if refusal.retry_after_s is not None:
        delay = Duration(seconds=refusal.retry_after_s)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def answer(encoding: Encoding, http_status: int, message: Message) -> Response:
    """Answer with a protobuf message."""
    if encoding == "json":
        content = json.dumps(json_format.MessageToDict(message)).encode()
        return Response(content, status_code=http_status, media_type="application/json")
    return Response(message.SerializeToString(), status_code=http_status, media_type="application/x-protobuf")


def error_answer(encoding: Encoding, refusal: RequestRefused) -> Response:
    """Answer with a ``google.rpc.Status`` in the sender's own encoding (OTLP/HTTP specification)."""
    response = answer(encoding, refusal.http_status, status_of(refusal))
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.http_status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
