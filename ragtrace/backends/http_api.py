"""A back end's HTTP API, with credentials, retries and error messages, and its search in windows.

Back ends return the traces of a time range up to a limit and do not report the rest (Jaeger's ``num_traces``,
Tempo's ``limit``). A window that reaches the limit is split until it does not.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeGuard

from google.protobuf import json_format

from ragtrace.errors import CodecError, ReadError, ReadOversized, ReadUnavailable
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
from ragtrace.ports import Page, TraceQuery, TraceReader, TraceSearch
from ragtrace.traces.trace import Trace

if TYPE_CHECKING:
    import httpx


MOST_READ_BYTES: Final = 128 << 20
"""The size limit of a decompressed response. A page of traces with all texts takes some megabytes."""

_FIRST_REQUEST_S: Final = 20.0
_UNREADABLE: Final = (
    *(CodecError, json_format.ParseError),
    *(KeyError, TypeError, ValueError, AttributeError, RecursionError),
)

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

    async def text(self, path: str, params: Parameters | None = None) -> str | None:
        """Return the text of a response, or ``None`` for a 404.

        Raises:
            ReadError: the back end is not reachable, refuses credentials or query, or has another error.
        """
        retries = ReadRetries() if self._is_known else ReadRetries(seconds=_FIRST_REQUEST_S)
        while True:
            began = monotonic()
            try:
                response = await self._tried(path, params)
            except ReadUnavailable as exc:
                if not self._is_known:
                    raise
                failure, asked_for_s = exc, None
            else:
                if response.status_code not in REPEATABLE.statuses:
                    self._check(response)
                    return None if response.status_code == 404 else response.text
                failure = ReadUnavailable(f"{self.where} answered {_said(response)}")
                asked_for_s = retry_after_s_in(response.headers)
            pause_s = retries.pause_s(asked_for_s, took_s=monotonic() - began)
            if pause_s is None:
                raise ReadUnavailable(f"{failure} ({retries})") from failure
            await self._sleep(pause_s)

    async def document(self, path: str, params: Parameters | None = None) -> dict[str, Any] | None:
        """Return the JSON object of a response, or ``None`` for a 404.

        Raises:
            ReadError: as in `text`, or the response is not a JSON object.
        """
        body = await self.text(path, params)
        if body is None:
            return None
        with self.reading():
            tree = json.loads(body)
        if not isinstance(tree, dict):
            raise ReadError(f"{self.where} sent JSON of an unexpected form")
        return tree

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Make errors of reading a response into a ``ReadError``."""
        try:
            yield
        except json.JSONDecodeError as exc:
            raise ReadError(f"{self.where} sent a response that is not JSON") from exc
        except _UNREADABLE as exc:
            raise ReadError(f"{self.where} sent an unreadable response: {type(exc).__name__}") from exc

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _tried(self, path: str, params: Parameters | None) -> httpx.Response:
        import httpx

        try:
            async with asyncio.timeout(self._access.answer_s):
                return await self._opened().get(f"{self._base_url}{path}", params=params)
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

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            raise ReadError(
                f"{self.where} refused the credentials ({status}): give a token, a user with its password, "
                "or a header"
            )
        if host := redirected_to(response):
            raise ReadError(
                f"{self.where} answered {status} and redirects to {host}, which is not followed: is this the "
                "address of its API, and is a proxy in between?"
            )
        if _is_page(response):
            raise ReadError(
                f"{self.where} answered {_said(response)}: is this the address of its API, and is there a"
                " proxy in between?"
            )
        if status == 400:
            said = " ".join(response.text.split())[:200]
            raise ReadError(f"{self.where} does not understand the query: {said}")
        if not (response.is_success or status == 404):
            raise ReadError(f"{self.where} answered {_said(response)}")
        self._is_known = True

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            access = self._access
            self._client = open_client(
                headers={"accept": "application/json", **access.sent_headers},
                verify=access.tls.context() if access.tls else True,
                timeout_s=access.timeout_s,
                most_bytes=MOST_READ_BYTES,
            )
        return self._client


def _is_page(response: httpx.Response) -> bool:
    return response.content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<")


def _said(response: httpx.Response) -> str:
    if _is_page(response):
        return f"{response.status_code} with a web page"
    return f"{response.status_code}: {' '.join(response.text.split())[:200] or 'nothing more'}"


_FIRST_NS: Final = 600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWindow:
    """A searched time range with its new traces."""

    since_ns: int
    until_ns: int
    found: Mapping[str, Trace | None]
    is_cut: bool
    """Whether even the shortest possible window has more traces than the back end returns."""


def can_search(reader: TraceReader) -> TypeGuard[TraceSearch]:
    """Return whether a reader takes queries."""
    return hasattr(reader, "search")


async def windows(
    reader: TraceSearch, query: TraceQuery, search: Callable[[TraceQuery], Awaitable[Page]] | None = None
) -> AsyncIterator[SearchWindow]:
    """Yield the results of a query, window by window, from the oldest to the newest.

    Windows are contiguous. Traces of the previous window are left out; a trace longer than a window may occur
    twice. ``search`` comes in place of the reader's own.

    Raises:
        ReadError: the back end could not be read.
    """
    since_ns, length_ns = query.since_ns, min(_FIRST_NS, reader.longest_ns)
    before: frozenset[str] = frozenset()
    while since_ns < query.until_ns:
        until_ns = min(since_ns + length_ns, query.until_ns)
        page = await (search or reader.search)(replace(query, since_ns=since_ns, until_ns=until_ns))
        if page.is_cut and until_ns - since_ns > reader.shortest_ns:
            length_ns = max(reader.shortest_ns, (until_ns - since_ns) // 2)
            continue
        new = {trace_id: trace for trace_id, trace in page.found.items() if trace_id not in before}
        yield SearchWindow(since_ns=since_ns, until_ns=until_ns, found=new, is_cut=page.is_cut)
        before, since_ns = frozenset(page.found), until_ns
        if 2 * len(page.found) < page.limit:
            length_ns = min(2 * length_ns, reader.longest_ns)


async def at_most(limit: int | None, trace_ids: AsyncIterator[str]) -> dict[str, Trace | None] | None:
    """Return each id once, without its trace; ``None`` as soon as there are more than the limit."""
    found: dict[str, Trace | None] = {}
    async for trace_id in trace_ids:
        found[trace_id] = None
        if limit is not None and len(found) > limit:
            return None
    return found


class HttpReader:
    """Base class of readers over HTTP, which find traces by id and by search only."""

    back_end: ClassVar[str]
    shortest_ns: int
    longest_ns = 30 * 86_400 * 10**9
    most_traces: ClassVar[int]
    """Per search, unless told otherwise."""

    def __init__(
        self,
        base_url: str,
        *,
        access: ConnectionSettings | None = None,
        traces_at_once: int | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._api = HttpApi(self.back_end, base_url, access, sleep=sleep)
        self._traces_at_once = traces_at_once or self.most_traces

    async def traces(self) -> AsyncIterator[Trace]:
        """Raise an error, because the back end cannot list every trace."""
        raise ReadError(
            f"{self.back_end} cannot list every trace: search a time range, or name the trace ids"
        )
        yield  # makes this an async generator, as the port requires

    async def aclose(self) -> None:
        """Close the connections."""
        await self._api.aclose()
