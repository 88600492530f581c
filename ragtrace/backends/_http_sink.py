"""Send to a back end over HTTP, and map its responses to errors."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ragtrace.errors import SendRefused, SendRejected, SendRetryable
from ragtrace.http import UnreadableBody, open_client, redirected_to
from ragtrace.http.retry import retry_after_s_in
from ragtrace.http.tls import ClientTls

if TYPE_CHECKING:
    import httpx


_REFUSING: Final = frozenset({301, 302, 303, 307, 308, 401, 403, 404, 405, 407})
"""Errors of the sender or the address, whatever the payload."""

LONGEST_BODY: Final = 1 << 20
"""The size limit of a response body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A receiver's response."""

    status: int
    body: bytes | None
    """``None`` if it is unreadable."""


class HttpSender:
    """Sends requests to one receiver. It connects on the first request."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
        retryable: Collection[int],
    ) -> None:
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._verify = tls.context() if tls else True
        self._timeout_s = timeout_s
        self._retryable = retryable
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """The URL without user, password and query."""
        import httpx

        url = httpx.URL(self._base_url)
        return str(url.copy_with(username=None, password=None, query=None))

    async def ask(
        self,
        method: str,
        path: str = "",
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        understood: Collection[int] = (),
    ) -> Reply:
        """Return the receiver's response: a success, or a status that the caller handles.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused.
            SendRefused: every request is refused.
        """
        import httpx  # deferred: only for senders over HTTP

        asked = {"accept-encoding": "identity", **self._headers, **(headers or {})}
        status: int | None = None
        try:
            async with (
                asyncio.timeout(self._timeout_s),  # httpx applies its timeout to each piece
                self._open().stream(
                    method, f"{self._base_url}{path}", content=body, headers=asked
                ) as response,
            ):
                if response.status_code not in understood:
                    self._raise_for_status(response)
                status = response.status_code
                return Reply(status=status, body=await _body(response))
        except TimeoutError as exc:
            failure = f"{self.name} did not answer within {self._timeout_s:g} s"
            cause: Exception = exc
        except httpx.HTTPError as exc:
            failure = f"{self.name} could not be reached: {type(exc).__name__} {exc}"
            cause = exc
        if status is not None:  # the status arrived, but the body broke off
            return Reply(status=status, body=None)
        raise SendRetryable(failure) from cause

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = open_client(
                timeout_s=self._timeout_s, most_bytes=LONGEST_BODY, verify=self._verify
            )
        return self._client

    def _raise_for_status(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        message = f"{self.name} answered {response.status_code} {response.reason_phrase}{_pointing(response)}"
        if response.status_code in self._retryable:
            raise SendRetryable(message, retry_after_s=retry_after_s_in(response.headers))
        raise SendRefused(message) if response.status_code in _REFUSING else SendRejected(message)


def _pointing(response: httpx.Response) -> str:
    host = redirected_to(response)
    return f": it redirects to {host}, which is not followed" if host else ""


async def _body(response: httpx.Response) -> bytes | None:
    try:
        return await response.aread()
    except UnreadableBody:
        return None


class HttpSink:
    """Base class of HTTP sinks: one receiver, its name, and the retryable statuses."""

    retryable: ClassVar[Collection[int]]
    """Statuses after which a retry may help and is safe."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
    ) -> None:
        self._sender = HttpSender(
            url, headers=headers, tls=tls, timeout_s=timeout_s, retryable=self.retryable
        )

    @property
    def name(self) -> str:
        """The URL without user, password and query."""
        return self._sender.name

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sender.aclose()
