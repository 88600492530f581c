"""Requests that are answered with an error: one table for both protocols."""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from ragtrace.errors import CodecError, RagtraceError
from ragtrace_collector.store.port import StoreUnavailable

RETRY_AFTER_S: Final = 5
_HTTP_STATUS: Final = {
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.UNAUTHENTICATED: 401,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.UNAVAILABLE: 503,
}


class RequestRefused(RagtraceError):
    """What a sender is answered, over gRPC by its code and over HTTP by its status.

    Whoever may try again is told when: a conforming sender drops what it was refused otherwise.
    """

    def __init__(
        self, code: int, message: str, *, http_status: int | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status or _HTTP_STATUS[code]
        self.retry_after_s = retry_after_s


def refusal_of(error: CodecError | StoreUnavailable | RequestRefused) -> RequestRefused:
    """Return what is answered where a request could not be taken."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, CodecError):
        return RequestRefused(code_pb2.INVALID_ARGUMENT, str(error))
    return RequestRefused(code_pb2.UNAVAILABLE, str(error), retry_after_s=RETRY_AFTER_S)


def too_slow() -> RequestRefused:
    """Return what is answered where a request did not come on while others waited for its place."""
    return RequestRefused(
        code_pb2.RESOURCE_EXHAUSTED,
        "others waited for the room that this request took, and it came too slowly: send smaller batches",
        retry_after_s=RETRY_AFTER_S,
    )


def too_large(limit: int) -> RequestRefused:
    """Return what is answered where a request has more bytes than the configuration allows."""
    return RequestRefused(
        code_pb2.RESOURCE_EXHAUSTED,
        f"the request is larger than `receive.max_message_bytes` ({limit}): send smaller batches",
        http_status=413,
    )


def status_of(refusal: RequestRefused) -> status_pb2.Status:
    """Return the ``google.rpc.Status`` that OTLP prescribes, with ``RetryInfo`` where a retry may help."""
    status = status_pb2.Status(code=refusal.code, message=str(refusal))
    if refusal.retry_after_s is not None:
        delay = Duration(seconds=refusal.retry_after_s)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status
