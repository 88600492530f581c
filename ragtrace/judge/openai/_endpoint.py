"""An OpenAI-compatible endpoint: posts JSON, returns JSON or raises one of ragtrace's errors.

The SDK's typed methods would validate replies by models that other servers don't follow, at twice the CPU
(ADR 0015). So a request is posted as the bytes that the budget has counted, and its reply is read here.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from ragtrace.errors import (
    JudgeError,
    JudgeNonsense,
    JudgeOversized,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.http import BodyTooLarge, UnreadableBody
from ragtrace.judge._http import MOST_REPLY_BYTES, RequestRejected, certificate_fault, never_left
from ragtrace.judge.calls import JudgeCall, was_turned_down
from ragtrace.judge.openai._client import Access

if TYPE_CHECKING:
    import openai


class JsonObject(dict[str, Any]):
    """A JSON object with its keys as attributes; a missing key is ``None``."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class Transport(Protocol):
    """Where requests go: an endpoint, or a replacement such as a batch."""

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Make a request; return the JSON of the reply, as `Endpoint.post` does."""
        ...

    async def aclose(self) -> None:
        """Release sockets."""
        ...


class _Clients:
    """Clients of an endpoint, each for a few calls at once.

    A pool of the SDK's HTTP client looks at all its connections before each request, and at a socket for each
    of them: with a hundred calls at once, that is a third of what a call costs. So there are several pools.
    """

    def __init__(self, opened: Callable[[], openai.AsyncOpenAI]) -> None:
        self._open = opened
        self._calls = {opened(): 0}
        """Calls under way, by client."""

    @contextmanager
    def one(self) -> Iterator[openai.AsyncOpenAI]:
        """Lend the first client that has room; open another if none has."""
        client = next((each for each, calls in self._calls.items() if calls < _CALLS_A_CLIENT), None)
        if client is None:
            client = self._open()
        self._calls[client] = self._calls.get(client, 0) + 1
        try:
            yield client
        finally:
            self._calls[client] -= 1

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._calls:
            await client.close()


_CALLS_A_CLIENT: Final = 8


class Endpoint:
    """Asks one endpoint over a connection pool. Bound to the event loop that uses it first.

    Raises:
        ConfigError: the environment's proxy or the SDK's version cannot be used.
    """

    def __init__(
        self, access: Access, *, timeout_s: float, who: str, most_bytes: int = MOST_REPLY_BYTES
    ) -> None:
        self._timeout_s = timeout_s
        self._who = who
        self._credential = access.credential
        self._clients = _Clients(partial(access.client, timeout_s=timeout_s, most_bytes=most_bytes))
        self._headers = {} if access.has_authorization else {"Authorization": _omitted()}

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Post a JSON document; return the JSON of the reply. Its objects are `JsonObject`.

        Args:
            path: Appended to the base URL; begins with a slash.
            call: The request to post; it records the outcome.

        Raises:
            RequestRejected: the status is 400 or 422.
            JudgeError: there is no reply, or it is not JSON.
        """
        import httpx

        async def send(client: openai.AsyncOpenAI) -> bytes:
            options: Any = {"headers": self._headers}
            response = await client.post(
                path, cast_to=httpx.Response, content=call.asked.document, options=options
            )
            return response.content

        try:
            reply = await self.fetch(send, call)
        except RequestRejected as rejected:
            if rejected.is_adaptable:
                raise
            raise rejected.failure(who=self._who, usage=call.usage) from None
        try:
            return json.loads(reply, object_hook=JsonObject)
        except (ValueError, RecursionError):
            message = "the reply is not a JSON document"
            raise JudgeNonsense(f"{self._who}: {message}", usage=call.usage) from None

    async def fetch(self, send: Callable[[openai.AsyncOpenAI], Awaitable[bytes]], call: JudgeCall) -> bytes:
        """Send a request by the SDK; return the body of the reply. ``call`` records the outcome.

        Raises:
            RequestRejected: the status is 300 or more.
            JudgeOversized: the reply, compressed or decompressed, is too long.
            JudgeNonsense: it cannot be decompressed.
            JudgeRefused: its certificate is not trusted, or there is no token.
            JudgeTimeout, JudgeUnavailable: there is no reply.
        """
        import openai

        try:
            with self._clients.one() as client:
                async with asyncio.timeout(self._timeout_s):  # the SDK's time-out is for each read
                    return await send(client)
        # no cause is chained: it may quote the key or the prompt
        except (TimeoutError, openai.APITimeoutError) as exc:
            if never_left(exc):
                call.stayed()
            message = f"no answer within {self._timeout_s:g} s: is the model busy, or too slow?"
            raise JudgeTimeout(f"{self._who}: {message}", usage=call.usage) from None
        except JudgeError:  # of a token source
            call.stayed()
            raise
        except openai.APIStatusError as exc:
            if _is_of_the_token(exc):
                raise self._failure(exc, call) from None
            if was_turned_down(exc.status_code):
                call.turned_down()
            raise RequestRejected(exc.status_code, _said(exc), exc.response.headers) from None
        except (openai.OpenAIError, UnreadableBody) as exc:
            raise self._failure(exc, call) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._clients.aclose()
        if close := getattr(self._credential, "aclose", None):
            await close()

    def _failure(self, exc: Exception, call: JudgeCall) -> JudgeError:
        import openai

        if unreadable := _unreadable(exc):
            kind = JudgeOversized if isinstance(unreadable, BodyTooLarge) else JudgeNonsense
            return kind(f"{self._who}: the reply cannot be read: {unreadable}", usage=call.usage)
        if isinstance(exc.__cause__, JudgeError):  # of the token's file; older SDKs wrap it
            call.stayed()
            return exc.__cause__
        if not isinstance(exc, openai.APIConnectionError):
            call.stayed()
            message = "there is no token to ask with: check the workload identity and its token file"
            return JudgeRefused(f"{self._who}: {message}", usage=call.usage)
        if never_left(exc):
            call.stayed()
        if fault := certificate_fault(exc):
            return JudgeRefused(f"{self._who}: {fault}", usage=call.usage)
        message = "no connection: is the endpoint up, and the base URL right?"
        if _is_tls_fault(exc):
            message = "no connection by TLS: does its address begin with http://?"
        return JudgeUnavailable(f"{self._who}: {message}", usage=call.usage)


def _omitted() -> Any:
    import openai

    return openai.Omit()


def _said(exc: openai.APIStatusError) -> Any:
    said = exc.response.content
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said.decode(errors="replace")


def _is_of_the_token(exc: openai.OpenAIError) -> bool:
    return type(exc).__name__ == "OAuthError"  # older SDKs have none


def _unreadable(exc: Exception) -> UnreadableBody | None:
    found = exc if isinstance(exc, UnreadableBody) else exc.__cause__  # older SDKs wrap it
    return found if isinstance(found, UnreadableBody) else None


def _is_tls_fault(exc: BaseException) -> bool:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
