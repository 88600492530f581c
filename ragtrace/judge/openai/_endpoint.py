"""An OpenAI-compatible endpoint: posts JSON, returns JSON or raises one of ragtrace's errors.

The SDK's typed methods would validate replies by models that other servers don't follow, at twice the CPU
(ADR 0015). So a request is posted as the bytes that the budget has counted, and its reply is read here.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ragtrace.errors import (
    JudgeError,
    JudgeNonsense,
    JudgeOversized,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.http import BodyTooLarge, UnreadableBody
from ragtrace.judge._http import (
    MOST_REPLY_BYTES,
    RequestRejected,
    certificate_fault,
    error_of_aiohttp,
    never_left,
    raise_error_within,
)
from ragtrace.judge.calls import JudgeCall, was_turned_down
from ragtrace.judge.openai._client import Access
from ragtrace.judge.openai._stream import is_stream, joined
from ragtrace.off_loop import off_loop

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
        self._http = access.http_client(most_bytes=most_bytes)
        self._client = access.client(self._http, timeout_s=timeout_s)
        self._place = access.place
        self._fixed = None if access.asks_for_tokens else _headers_of(self._client, access)
        """The headers of each request that the SDK would make."""
        self._first: dict[str, Any] = {}
        """By path a request without a body, whose address and headers all others have."""

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
            if self._fixed is not None:
                return await self._send(path, call.asked.document, self._fixed)
            response = await client.post(path, cast_to=httpx.Response, content=call.asked.document)
            return response.content

        try:
            reply = await self.fetch(send, call)
        except RequestRejected as rejected:
            if rejected.is_adaptable:
                raise
            raise rejected.failure(who=self._who, usage=call.usage) from None
        try:
            answer = await off_loop(len(reply), _read, reply)
        except (ValueError, RecursionError):
            message = "the reply is not a JSON document"
            raise JudgeNonsense(f"{self._who}: {message}", usage=call.usage) from None
        check_error_within(answer, who=self._who, call=call)
        return answer

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
            async with asyncio.timeout(self._timeout_s):  # the SDK's time-out is for each read
                return await send(self._client)
        # no cause is chained: it may quote the key or the prompt
        except (TimeoutError, openai.APITimeoutError) as exc:
            if not _is_timeout(exc):
                raise self._failure(exc, call) from None
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
        await self._client.close()
        if close := getattr(self._credential, "aclose", None):
            await close()

    async def _send(self, path: str, document: bytes, headers: Mapping[str, str]) -> bytes:
        """Post by the SDK's HTTP client; the SDK would build address and headers anew each time.

        Raises:
            openai.APIConnectionError, openai.APIStatusError: as the SDK's method.
        """
        import openai

        request = self._request(path, document, headers)
        try:
            response = await self._http.send(request)
        except UnreadableBody:
            raise
        except Exception as exc:
            raise openai.APIConnectionError(request=request) from exc
        if not response.is_success:
            raise openai.APIStatusError("", response=response, body=None)
        content: bytes = response.content
        return content

    def _request(self, path: str, document: bytes, headers: Mapping[str, str]) -> Any:
        if (first := self._first.get(path)) is None:
            first = self._first[path] = self._http.build_request(
                "POST", self._place.address(path), headers=headers
            )
            del first.headers["content-length"]
        return type(first)("POST", first.url, headers=first.headers, content=document)

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


def check_error_within(answer: Any, *, who: str, call: JudgeCall) -> None:
    """Raise the error within an answer with the status 200, or a choice of it, as `raise_error_within`."""
    choices = answer.choices if isinstance(answer, JsonObject) else None
    holders = [answer, *(choices if isinstance(choices, list) else ())]
    error = next((each.error for each in holders if isinstance(each, JsonObject) and each.error), None)
    if error is not None:
        raise_error_within(error, who=who, call=call)


def _read(reply: bytes) -> Any:
    if is_stream(reply):
        reply = json.dumps(joined(reply)).encode()
    return json.loads(reply, object_hook=JsonObject)


def _headers_of(client: openai.AsyncOpenAI, access: Access) -> Mapping[str, str]:
    left_out = () if access.has_authorization else ("Authorization",)  # older SDKs have one of their own
    named = client.default_headers.items()
    return {name: value for name, value in named if isinstance(value, str) and name not in left_out}


def _is_timeout(exc: Exception) -> bool:
    beneath = error_of_aiohttp(exc)
    return beneath is None or isinstance(beneath, TimeoutError)


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
