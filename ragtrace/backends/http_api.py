"""A client for a back end's HTTP API, with credentials, retries and error messages."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ragtrace.errors import ReadError, ReadOversized, ReadUnavailable
from ragtrace.http import (
    REPEATABLE,
    BodyTooLarge,
    ClientTls,
    ReadRetries,
    Sleep,
    UnreadableBody,
    open_client,
    redirected_to,
    retry_after_s_in,
    without_secrets,
)

if TYPE_CHECKING:
    import httpx


MOST_READ_BYTES: Final = 128 << 20
"""The size limit of a decompressed response. A page of traces with all texts takes some megabytes."""

_FIRST_REQUEST_S: Final = 20.0

Parameters: TypeAlias = Mapping[str, str | int | Sequence[str]]
"""Query parameters; a parameter with several values occurs several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Credentials and timeouts for a back end."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Such as ``X-Scope-OrgID``, Tempo's tenant."""
    basic: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    token: str | None = field(default=None, repr=False)
    """Sent as ``Authorization: Bearer``."""
    tls: ClientTls | None = None
    timeout_s: float = 30
    """For each piece of a response: a large trace may take longer in total."""
    answer_s: float = 300
    """For a whole response, even if its pieces keep arriving."""

    @property
    def sent_headers(self) -> dict[str, str]:
        """All headers with credentials."""
        if self.token is not None:
            return {**self.headers, "authorization": f"Bearer {self.token}"}
        if self.basic is not None:
            login = b64encode(":".join(self.basic).encode()).decode()
            return {**self.headers, "authorization": f"Basic {login}"}
        return dict(self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A back end's response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    redirects_to: str | None
    """The host of a redirect, which is never followed."""

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode("utf-8", "replace")


class HttpApi:
    """Sends requests to one HTTP API. It connects on the first request.

    It retries transient errors: for two minutes after an earlier success, shorter without one, and not at all
    if the connection is refused, because then the address is probably wrong.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        access: ConnectionSettings | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.where = f"{name} at {without_secrets(base_url).rstrip('/')}"
        self._base_url = base_url.rstrip("/")
        self._access = access or ConnectionSettings()
        self._sleep = sleep
        self._client: httpx.AsyncClient | None = None
        self._is_known = False

    async def get(
        self, path: str, params: Parameters | None = None, *, accept: str = "application/json"
    ) -> HttpResponse:
        """Return the response: a success, or a 400 or 404, which the caller handles.

        Raises:
            ReadError: the back end is not reachable, refuses the credentials, or has another error.
        """
        retries = ReadRetries() if self._is_known else ReadRetries(seconds=_FIRST_REQUEST_S)
        while True:
            began = monotonic()
            try:
                response = await self._tried(path, params, accept)
            except ReadUnavailable as exc:
                if not self._is_known:
                    raise
                failure, asked_for_s = exc, None
            else:
                if response.status not in REPEATABLE.statuses:
                    return self._checked(response)
                failure = ReadUnavailable(f"{self.where} answered {_said(response)}")
                asked_for_s = retry_after_s_in(response.headers)
            pause_s = retries.pause_s(asked_for_s, took_s=monotonic() - began)
            if pause_s is None:
                raise ReadUnavailable(f"{failure} ({retries})") from failure
            await self._sleep(pause_s)

    async def document(self, path: str, params: Parameters | None = None) -> dict[str, Any] | None:
        """Return the JSON object of a response, or ``None`` for a 404.

        Raises:
            ReadError: as in `get`, or the query is rejected (400), or the response is not a JSON object.
        """
        response = await self.get(path, params)
        if response.status == 404:
            return None
        if response.status == 400:
            said = " ".join(response.text.split())[:200]
            raise ReadError(f"{self.where} does not understand the query: {said}")
        try:
            tree = json.loads(response.text)
        except (ValueError, RecursionError) as exc:
            raise ReadError(f"{self.where} sent a response that is not JSON") from exc
        if not isinstance(tree, dict):
            raise ReadError(f"{self.where} sent JSON of an unexpected form")
        return tree

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _tried(self, path: str, params: Parameters | None, accept: str) -> HttpResponse:
        import httpx

        headers = {"accept": accept}
        try:
            async with (
                asyncio.timeout(self._access.answer_s),
                self._opened().stream(
                    "GET", f"{self._base_url}{path}", params=params, headers=headers
                ) as response,
            ):
                return await _read(response)
        except (httpx.TransportError, httpx.InvalidURL) as exc:
            is_address = isinstance(exc, httpx.InvalidURL | httpx.UnsupportedProtocol)
            kind = ReadError if is_address else ReadUnavailable
            raise kind(f"{self.where} cannot be reached: {type(exc).__name__} {exc}") from exc
        except TimeoutError as exc:
            waited = f"{self._access.answer_s:g} s"
            raise ReadUnavailable(f"{self.where} sent no complete response within {waited}") from exc
        except BodyTooLarge as exc:
            advice = "read less at once, such as a shorter time or one trace by its id"
            raise ReadOversized(f"{self.where} sent a response that is too large: {exc}: {advice}") from None
        except UnreadableBody as exc:
            raise ReadError(f"{self.where} sent an unreadable response: {exc}") from None

    def _checked(self, response: HttpResponse) -> HttpResponse:
        status = response.status
        if status in (401, 403):
            raise ReadError(
                f"{self.where} refused the credentials ({status}): give a token, a user with its password, "
                "or a header"
            )
        if response.redirects_to is not None:
            raise ReadError(
                f"{self.where} answered {status} and redirects to {response.redirects_to}, which is not "
                "followed: is this the address of its API, and is a proxy in between?"
            )
        if _is_page(response):
            raise ReadError(
                f"{self.where} answered {_said(response)}: is this the address of its API, and is there a"
                " proxy in between?"
            )
        if not (200 <= status < 300 or status in (400, 404)):
            raise ReadError(f"{self.where} answered {_said(response)}")
        self._is_known = True
        return response

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            access = self._access
            self._client = open_client(
                headers=access.sent_headers,
                verify=access.tls.context() if access.tls else True,
                timeout_s=access.timeout_s,
                most_bytes=MOST_READ_BYTES,
            )
        return self._client


async def _read(response: httpx.Response) -> HttpResponse:
    redirects_to = redirected_to(response)
    return HttpResponse(
        status=response.status_code,
        headers=response.headers,
        body=b"" if redirects_to else await response.aread(),
        redirects_to=redirects_to,
    )


def _is_page(response: HttpResponse) -> bool:
    return response.body.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<")


def _said(response: HttpResponse) -> str:
    if _is_page(response):
        return f"{response.status} with a web page"
    return f"{response.status}: {' '.join(response.text.split())[:200] or 'nothing more'}"
