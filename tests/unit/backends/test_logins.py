"""A login in a back end's address is sent to it, and shown to nobody."""

from __future__ import annotations

import base64

import grpc
import pytest

from ragtrace.backends import open_reader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, ReadError
from tests.rag_spans import trace_id_of
from tests.unit.backends.servers import HttpAnswer, http_server

LOGIN = f"Basic {base64.b64encode(b'me:pass/word').decode()}"


async def test_over_http_it_goes_with_each_request_and_no_error_names_it() -> None:
    with http_server(lambda _: HttpAnswer(status=418)) as server:
        reader = open_reader(f"tempo:{server.url.replace('//', '//me:pass%2Fword@')}?key=secret")
        with pytest.raises(ReadError) as caught:
            await reader.get(trace_id_of(0))
        await reader.aclose()
    assert {headers["authorization"] for _, headers, _ in server.requests} == {LOGIN}
    assert "pass" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("login", "access"),
    [("me:pass%2Fword@", None), ("", ConnectionSettings(basic=("me", "pass/word")))],
    ids=["in the address", "given"],
)
async def test_over_grpc_it_goes_with_each_call_and_no_error_names_it(
    login: str, access: ConnectionSettings | None
) -> None:
    came = []

    async def get_services(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        came.append(dict(context.invocation_metadata() or ())["authorization"])
        await context.abort(grpc.StatusCode.INTERNAL, "no")
        return b""

    server = grpc.aio.server()
    handlers = {"GetTrace": grpc.unary_unary_rpc_method_handler(get_services)}
    server.add_registered_method_handlers("jaeger.api_v3.QueryService", handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader = open_reader(f"jaeger:grpc://{login}127.0.0.1:{port}", access=access)
    try:
        with pytest.raises(ReadError) as caught:
            await reader.get(trace_id_of(0))
    finally:
        await reader.aclose()
        await server.stop(None)
    assert came == [LOGIN]
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["tempo:ftp://me:pass-word@host?key=k", "http://me:pass-word@host:no", "me:pass-word@host"]
)
def test_an_address_that_is_none_is_shown_without_its_login(address: str) -> None:
    with pytest.raises(ConfigError, match=r"host.* is not an address to read traces from") as caught:
        open_reader(address)
    assert "pass-word" not in str(caught.value)
    assert "key=k" not in str(caught.value)
