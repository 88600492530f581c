"""Answers over HTTP in the sender's own encoding."""

from __future__ import annotations

import json

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.responses import Response

from ragtrace.traces.otlp import Encoding
from ragtrace_collector.web.errors import RequestRefused, status_of


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
