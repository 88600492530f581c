"""An OpenAI-compatible endpoint: posts JSON, returns JSON or raises one of ragtrace's errors.

It uses aiohttp instead of an SDK: a collector has hundreds of concurrent requests, and the SDK took more CPU
time of a request than everything else together (ADR 0005).
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ragtrace import __version__
from ragtrace.errors import (
    ConfigError,
    JudgeError,
    JudgeNonsense,
    JudgeOversized,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnavailable,
)
from ragtrace.http import Body, BodyTooLarge, UnreadableBody, open_session
from ragtrace.http.tls import ClientTls
from ragtrace.judge._http import certificate_fault, described, status_failure
from ragtrace.judge.base_url import BaseUrl
from ragtrace.judge.calls import JudgeCall, was_turned_down
from ragtrace.model import Usage

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.payload import Payload


MOST_REPLY_BYTES: Final = 4 << 20
"""The size limit of one reply. A model writes some kilobytes, about a hundred with its reasoning."""
_MAX_COMPLAINT_BYTES: Final = 65_536
_ADAPTABLE: Final = (400, 422)


class JsonObject(dict[str, Any]):
    """A JSON object with its keys as attributes; a missing key is ``None``."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class RequestRejected(Exception):
    """The endpoint rejected the request. Its complaint may tell which dialect to try next."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        error = body.get("error", body) if isinstance(body, Mapping) else body
        fields = error if isinstance(error, Mapping) else {}
        names = [str(name) for name in (fields.get("code"), fields.get("type")) if name]
        self.code = "insufficient_quota" if "insufficient_quota" in names else [*names, ""][0]
        self.complaint = f"{fields.get('param')} {error}"
        """May quote the prompt: search it, never show it."""
        self.what = described(status, self.code)
        """The status and the short code."""
        self._headers = headers or {}

    @property
    def is_adaptable(self) -> bool:
        """Whether another dialect may help: 400 or 422."""
        return self.status in _ADAPTABLE

    def failure(self, *, who: str, usage: Usage) -> JudgeError:
        """Return the error to raise if nothing else is tried."""
        return status_failure(self.status, self.code, self._headers, who=who, usage=usage)


class Transport(Protocol):
    """Where requests go: an endpoint, or a replacement such as a batch."""

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Make a request; return the JSON of the reply, as `Endpoint.post` does."""
        ...

    async def aclose(self) -> None:
        """Release sockets."""
        ...


class Endpoint:
    """Posts to one base URL over a connection pool. Bound to the event loop that uses it first."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeout_s: float,
        who: str,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        most_bytes: int = MOST_REPLY_BYTES,
    ) -> None:
        self._place = BaseUrl.of(base_url)
        self._headers = {
            **self._place.authorization(api_key),
            "content-type": "application/json",
            "user-agent": f"ragtrace/{__version__}",
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._who = who
        self._tls = tls.context() if tls else None
        self._proxy = _proxy_for(base_url)
        self._opened: aiohttp.ClientSession | None = None

    async def post(self, path: str, call: JudgeCall) -> Any:
        """Post a JSON document; return the JSON of the reply. Its objects are `JsonObject`.

        Args:
            path: Appended to the base URL; begins with a slash.
            call: The request to post; it records the outcome.

        Raises:
            RequestRejected: the status is 400 or 422.
            JudgeError: there is no reply, or it is not JSON.
        """
        try:
            reply = await self.fetch("POST", path, data=call.asked.document, call=call)
        except RequestRejected as rejected:
            if rejected.is_adaptable:
                raise
            raise rejected.failure(who=self._who, usage=call.usage) from None
        try:
            return json.loads(reply, object_hook=JsonObject)
        except (ValueError, RecursionError):
            message = "the reply is not a JSON document"
            raise JudgeNonsense(f"{self._who}: {message}", usage=call.usage) from None

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        data: bytes | Payload | None = None,
        headers: Mapping[str, str] | None = None,
        call: JudgeCall,
        most_bytes: int | None = None,
    ) -> bytes:
        """Send a request; return the body of the reply. ``call`` records the outcome.

        ``most_bytes`` limits this reply.

        Raises:
            RequestRejected: the status is 300 or more.
            JudgeOversized: the reply, compressed or decompressed, is too long.
            JudgeNonsense: it cannot be decompressed.
            JudgeRefused: its certificate is not trusted.
            JudgeTimeout, JudgeUnavailable: there is no reply.
        """
        import aiohttp
        from yarl import URL

        address = self._place.address(path)
        try:
            async with self._session().request(
                method,
                URL(address, encoded=address.isascii()),
                data=data,
                headers=headers,
                proxy=self._proxy,
                allow_redirects=False,  # the texts must only reach the configured host
            ) as response:
                if response.status >= 300:
                    if was_turned_down(response.status):
                        call.turned_down()
                    await _raise_for(response)
                return await _read(response, most_bytes or self._most_bytes)
        # no cause is chained: it may quote the key
        except TimeoutError:
            message = f"no answer within {self._timeout_s:g} s: is the model busy, or too slow?"
            raise JudgeTimeout(f"{self._who}: {message}", usage=call.usage) from None
        except UnreadableBody as exc:
            kind = JudgeOversized if isinstance(exc, BodyTooLarge) else JudgeNonsense
            message = f"{self._who}: the reply cannot be read: {exc}"
            raise kind(message, usage=call.usage) from None
        except aiohttp.ClientError as exc:
            if isinstance(exc, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
                call.stayed()
            if fault := certificate_fault(exc):
                raise JudgeRefused(f"{self._who}: {fault}", usage=call.usage) from None
            message = "no connection: is the endpoint up, and the base URL right?"
            if isinstance(exc, aiohttp.ClientSSLError):
                message = "no connection by TLS: does its address begin with http://?"
            raise JudgeUnavailable(f"{self._who}: {message}", usage=call.usage) from None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> aiohttp.ClientSession:
        return open_session(ssl_context=self._trust(), timeout_s=self._timeout_s, headers=self._headers)

    def _trust(self) -> ssl.SSLContext | bool:
        if not self._place.url.startswith("https:"):
            return True
        return self._tls or ClientTls().context()


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    body = Body(response.headers.get("content-encoding"), most_bytes=most_bytes)
    async for piece in response.content.iter_any():
        body.take(piece)
    return body.whole()


async def _raise_for(response: aiohttp.ClientResponse) -> NoReturn:
    try:
        said = await _read(response, _MAX_COMPLAINT_BYTES)
    except UnreadableBody:
        said = b""
    try:
        body = json.loads(said)
    except (ValueError, RecursionError):
        body = said.decode(errors="replace")
    raise RequestRejected(response.status, body, response.headers)


def _proxy_for(base_url: str) -> str | None:
    """Read ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY`` once; aiohttp would at each call.

    Raises:
        ConfigError: aiohttp cannot use the proxy.
    """
    url = urlsplit(base_url)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise ConfigError(
            f"{url.hostname} cannot be reached through the {urlsplit(proxy).scheme!r} proxy that the"
            " environment names: set HTTP_PROXY or HTTPS_PROXY to an http:// proxy, or NO_PROXY to the host"
        )
    return proxy
