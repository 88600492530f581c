"""A back end's HTTP API: credentials, patience, and what is said where it does not answer."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from ragtrace.backends.retry_after import retry_after_s
from ragtrace.errors import ReadError
from ragtrace.tls import ClientTls

if TYPE_CHECKING:
    import httpx

__all__ = ["Access", "Parameters", "Sleep", "WebApi"]

_ATTEMPTS: Final = 6
_LONGEST_PAUSE_S: Final = 30.0
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
"""Answers that may be others a moment later."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits for so many seconds."""

Parameters: TypeAlias = Mapping[str, str | int | Sequence[str]]
"""Of a query; one with several values stands there several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to get into a back end that asks who is there."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Such as ``X-Scope-OrgID``, Tempo's tenant."""
    basic: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    token: str | None = field(default=None, repr=False)
    """Sent as ``Authorization: Bearer``."""
    tls: ClientTls | None = None
    timeout_s: float = 30

    @property
    def sent_headers(self) -> dict[str, str]:
        """All that is sent along with a request to say who is there."""
        if self.token is not None:
            return {**self.headers, "authorization": f"Bearer {self.token}"}
        if self.basic is not None:
            login = b64encode(":".join(self.basic).encode()).decode()
            return {**self.headers, "authorization": f"Basic {login}"}
        return dict(self.headers)


class WebApi:
    """Asks one HTTP API. Nothing is connected before the first request.

    An API that has answered well before is asked again where that may help; one that never has is not waited
    for, because most likely the address is wrong.
    """

    def __init__(
        self, name: str, base_url: str, access: Access | None = None, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.where = f"{name} at {_shown(base_url)}"
        self._base_url = base_url.rstrip("/")
        self._access = access or Access()
        self._sleep = sleep
        self._client: httpx.AsyncClient | None = None
        self._is_known = False

    async def get(
        self, path: str, params: Parameters | None = None, *, accept: str = "application/json"
    ) -> httpx.Response:
        """Return the answer: a success, or a 400 or 404, which only the caller understands.

        Raises:
            ReadError: the back end cannot be reached, refuses the credentials, or answers something else.
        """
        attempts = _ATTEMPTS if self._is_known else 1
        for attempt in range(attempts):
            last = attempt == attempts - 1
            response = await self._tried(path, params, accept, last=last)
            if response is not None and (last or response.status_code not in _PASSING):
                return self._checked(response)
            await self._sleep(_pause_s(response, attempt))
        raise AssertionError("the last attempt returns or raises")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _tried(
        self, path: str, params: Parameters | None, accept: str, *, last: bool
    ) -> httpx.Response | None:
        import httpx

        try:
            return await self._opened().get(
                f"{self._base_url}{path}", params=params, headers={"accept": accept}
            )
        except (httpx.TransportError, httpx.InvalidURL) as exc:
            if last or isinstance(exc, httpx.InvalidURL | httpx.UnsupportedProtocol):
                raise ReadError(f"{self.where} cannot be reached: {type(exc).__name__} {exc}") from exc
            return None

    def _checked(self, response: httpx.Response) -> httpx.Response:
        status = response.status_code
        if status in (401, 403):
            raise ReadError(
                f"{self.where} refused the credentials ({status}): give a token, a user with its password, "
                "or a header"
            )
        if response.content[:1].lstrip() == b"<":
            raise ReadError(
                f"{self.where} answered {status} with a web page: is this the address of its API, and who "
                "stands in between?"
            )
        if not (response.is_success or status in (400, 404)):
            raise ReadError(f"{self.where} answered {status}: {_said(response)}")
        self._is_known = True
        return response

    def _opened(self) -> httpx.AsyncClient:
        import httpx  # loaded by those who read over it

        if self._client is None:
            access = self._access
            self._client = httpx.AsyncClient(
                headers=access.sent_headers,
                verify=access.tls.context() if access.tls else True,
                timeout=access.timeout_s,
            )
        return self._client


def _pause_s(response: httpx.Response | None, attempt: int) -> float:
    header = response.headers.get("retry-after", "") if response is not None else ""
    asked_for = retry_after_s(header, now=datetime.now(UTC))
    return min(0.5 * 2**attempt if asked_for is None else asked_for, _LONGEST_PAUSE_S)


def _said(response: httpx.Response) -> str:
    return " ".join(response.text.split())[:200] or "nothing more"


def _shown(url: str) -> str:
    """Leave out what may be a secret: user, password and query."""
    scheme, mark, rest = url.partition("://")
    host = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}{mark}{host}".rstrip("/")
