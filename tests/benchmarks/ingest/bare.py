"""A receiver that parses what it gets and forgets it: the least that a server in Python costs.

python -m tests.benchmarks.ingest.bare grpc|http        prints its port
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import grpc
import uvicorn
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

NAME = "opentelemetry.proto.collector.trace.v1.TraceService"


async def serve_grpc() -> None:
    async def export(request: object, context: object) -> service.ExportTraceServiceResponse:
        return service.ExportTraceServiceResponse()

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 16 << 20)])
    method = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=service.ExportTraceServiceRequest.FromString,
        response_serializer=service.ExportTraceServiceResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, {"Export": method}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


async def serve_http() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        service.ExportTraceServiceRequest.FromString(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).serve([listening])


if __name__ == "__main__":
    asyncio.run({"grpc": serve_grpc, "http": serve_http}[sys.argv[1]]())
