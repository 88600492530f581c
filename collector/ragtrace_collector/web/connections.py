"""The connections of a listener, bounded in number; each passes on whole, bounded requests."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary

import httptools

from ragtrace_collector.web.tokens import TokenSender

_MAX_CONNECTIONS: Final = 1_000
_RESERVED: Final = 250
"""The number of these that is reserved for senders with a known token."""
_A_PEER: Final = 200
"""The limit of connections without a token from one address."""
_ADMITTED: Final = "ragtrace.admitted"
_IPV6_NETWORK: Final = 64

Address = tuple[str, int] | None
"""Host and port of the peer; None if it has none."""


class Connections:
    """The open connections. An unauthenticated one has not shown a known token.

    Every new connection is accepted, because its token is not known yet. If there are then too many, the
    longest idle unauthenticated one is closed, of the address that has most of them.
    """

    def __init__(self) -> None:
        self._unauthenticated: dict[str, dict[BoundedConnection, None]] = {}
        self._peers: dict[BoundedConnection, str] = {}
        """Unauthenticated ones only."""
        self._known: set[BoundedConnection] = set()

    def join(self, connection: BoundedConnection, address: Address) -> None:
        """Add a connection, and close another if there are too many now."""
        peer = _peer(_host(address))
        self._peers[connection] = peer
        self._unauthenticated.setdefault(peer, {})[connection] = None
        if len(self._unauthenticated[peer]) > _A_PEER:
            self._end_one_of(peer)
        elif self._is_too_full():
            self._end_one_of(max(self._unauthenticated, key=lambda each: len(self._unauthenticated[each])))

    def note_request(self, connection: BoundedConnection) -> None:
        """Note a request on a connection."""
        of_peer = self._unauthenticated.get(self._peers.get(connection, ""), {})
        if connection in of_peer:
            of_peer[connection] = of_peer.pop(connection)

    def admit(self, connection: BoundedConnection) -> None:
        """Note that a connection showed a known token."""
        if connection in self._peers:
            self._leave_unauthenticated(connection)
            self._known.add(connection)

    def leave(self, connection: BoundedConnection) -> None:
        """Remove a closed connection."""
        self._known.discard(connection)
        self._leave_unauthenticated(connection)

    def _is_too_full(self) -> bool:
        unauthenticated = len(self._peers)
        return (
            unauthenticated > _MAX_CONNECTIONS - _RESERVED
            or unauthenticated + len(self._known) > _MAX_CONNECTIONS
        )

    def _end_one_of(self, peer: str) -> None:
        of_peer = self._unauthenticated[peer]
        ended = next((each for each in of_peer if each.is_idle()), None) or next(reversed(of_peer))
        self._leave_unauthenticated(ended)
        ended.hang_up()

    def _leave_unauthenticated(self, connection: BoundedConnection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            del self._unauthenticated[peer][connection]
            if not self._unauthenticated[peer]:
                del self._unauthenticated[peer]


def admitted(scope: Mapping[str, Any]) -> None:
    """Report that the token of this request is known."""
    admit = scope.get(_ADMITTED)
    if admit is not None:
        admit()


def on_admission(scope: MutableMapping[str, Any], admit: Callable[[], None]) -> None:
    """Call ``admit`` later if the token of this request is known."""
    scope[_ADMITTED] = admit


def who_sends(sender: TokenSender | None, address: Address) -> str:
    """Name the sender: by token, else by address, or by its own network if it is IPv6."""
    return f"token {sender.grant.name}" if sender is not None else _peer(_host(address))


def _host(address: Address) -> str:
    return address[0] if address else ""


@lru_cache(1_000)
def _peer(host: str) -> str:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        mapped = ip.ipv4_mapped
        return str(mapped or ipaddress.ip_network((ip, _IPV6_NETWORK), strict=False))
    return str(ip)


HEADERS_TIMEOUT_S: Final = 10.0
"""From the connection, or from the last answer, to the end of the next request's headers."""
_MAX_HEAD_BYTES: Final = 16 << 10

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_CONNECTION: Final = b"ragtrace-connection"
"""The header that tells the application which connection a request came by. A sender's own is removed."""


class BoundedConnection(asyncio.Protocol):
    """A connection that passes one request at a time on, and closes if its sender exceeds a limit.

    Servers wait forever for a request, its headers, and the rest of an answered body; they queue pipelined
    requests, and parsers in C keep headers of any length.
    """

    def __init__(self, server: asyncio.Protocol, name: bytes, connections: Connections) -> None:
        self._server = server
        self._name = name
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = b""

    _transport: asyncio.Transport
    _impatience: asyncio.TimerHandle | None = None
    _unfinished_bytes = 0
    """Bytes since the last whole head or piece of a body: headers, trailers, chunk extensions."""
    _is_reading = False
    """Whether a request has begun and not ended."""
    _has_head = False
    _is_chunked = False
    _body_left = 0
    """Bytes of the body that are still to come, if its length is known."""
    _is_answering = False
    """Whether a request was passed on whose answer isn't complete."""
    _has_answer_begun = False
    """Whether the request that is read, or was read last, is being answered or was."""
    _is_last = False
    """Whether the connection closes after the current answer."""
    _has_ended = False
    """Whether the server was told that the connection is lost."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connection_made(transport)
        self._wait_for_headers()
        self._connections.join(self, transport.get_extra_info("peername"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._connections.leave(self)
        self._end(exc)

    def eof_received(self) -> bool | None:
        return self._server.eof_received()

    def pause_writing(self) -> None:
        self._server.pause_writing()

    def resume_writing(self) -> None:
        self._server.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._body_left:
            data = self._pass_on_body(data)
            if not data:
                return
        self._unfinished_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:  # also raised by the methods below
            self._refuse("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as stopped:
            self._decline_upgrade(data[stopped.args[0] :])
        else:
            if self._unfinished_bytes > _MAX_HEAD_BYTES:
                self._refuse("Headers are too long.")

    # what the connections and the application know of it

    def is_idle(self) -> bool:
        """Say whether no request is being answered on this connection."""
        return not self._is_answering

    def hang_up(self) -> None:
        """Close this connection at once, because there are too many."""
        self._transport.abort()

    def admit(self) -> None:
        """Note that the sender showed a known token."""
        self._connections.admit(self)

    def begin_answer(self) -> bool:
        """Note that the answer begins; return whether it is the last one."""
        self._has_answer_begun = True
        return self._is_last

    def end_answer(self) -> None:
        """Note that the answer is complete, or will never be."""
        was_answering, self._is_answering = self._is_answering, False
        if not was_answering or self._transport.is_closing():
            return
        if self._is_last:
            self._transport.close()
        else:
            self._wait_for_headers()

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._is_reading or self._is_answering:
            raise ValueError("one request at a time")
        self._is_reading, self._has_head, self._has_answer_begun = True, False, False
        self._headers, self._url = [], b""
        self._connections.note_request(self)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # else it is a trailer
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._unfinished_bytes = 0
        self._has_head = True
        self._check_head()
        if not self._parser.should_upgrade():
            self._pass_on_head()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        self._body_left -= 0 if self._is_chunked else len(body)
        self._pass_on(b"%x\r\n%b\r\n" % (len(body), body) if self._is_chunked else body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        self._is_reading = False
        if self._is_chunked and not self._parser.should_upgrade():
            self._pass_on(b"0\r\n\r\n")

    def _check_head(self) -> None:
        if (
            len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
            > _MAX_HEAD_BYTES
        ):
            raise ValueError("headers are too long")
        hosts = sum(name == b"host" for name, _ in self._headers)
        if hosts > 1 or (hosts == 0 and self._parser.get_http_version() == "1.1"):
            raise ValueError("RFC 9112, section 3.2: a request names one host")

    def _pass_on_head(self) -> None:
        self._stop_waiting()
        self._is_answering = True
        headers = dict(self._headers)
        self._is_chunked = b"transfer-encoding" in headers
        self._body_left = int(headers.get(b"content-length", 0))
        self._pass_on(self._head((_CONNECTION, self._name)))

    def _pass_on_body(self, data: bytes) -> bytes:
        """Pass a body of known length on unparsed, since the parser copies it; return what follows."""
        body, rest = data[: self._body_left], data[self._body_left :]
        self._body_left -= len(body)
        self._pass_on(body)
        if not self._body_left:
            self.on_message_complete()
            self._parser = httptools.HttpRequestParser(self)
        return rest

    def _pass_on(self, data: bytes) -> None:
        if not self._transport.is_closing():  # the server may have refused what came before
            self._server.data_received(data)

    def _head(self, *more: tuple[bytes, bytes]) -> bytes:
        version = self._parser.get_http_version().encode()
        head = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, version)]
        head += [b"%b: %b" % header for header in self._headers if header[0] not in _NOT_PASSED_ON]
        head += [b"%b: %b" % header for header in more]
        return b"\r\n".join([*head, b"", b""])

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parse the request without `Upgrade`: with it, the parser expects the body in that protocol.

        A client may ask for HTTP/2 in its first request, whose body is HTTP/1.1 (RFC 7540, section 3.2).
        """
        if self._parser.get_method() == b"CONNECT":
            self._refuse("This is not a proxy.")
            return
        head = self._head()
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _refuse(self, why: str) -> None:
        """Answer what cannot be read. If another answer is due or under way, make that the last one."""
        if self._is_answering and not self._is_reading:  # refuse only what follows the request
            self._is_last = True
            return
        if not (self._is_reading and self._has_answer_begun):
            self._transport.write(_BAD_REQUEST % (len(why), why.encode()))
        self._transport.close()
        self._end(None)

    def _end(self, exc: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._server.connection_lost(exc)

    def _wait_for_headers(self) -> None:
        self._stop_waiting()
        loop = asyncio.get_running_loop()
        self._impatience = loop.call_later(HEADERS_TIMEOUT_S, self._transport.abort)

    def _stop_waiting(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None


_NOT_PASSED_ON: Final = {b"upgrade", _CONNECTION}
_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b"
)


class BoundedApp:
    """An ASGI application whose connections are bounded: each learns when its answers begin and end."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._connections = Connections()
        self._names = count(1)
        self._open: WeakValueDictionary[bytes, BoundedConnection] = WeakValueDictionary()

    def connect(self, server: asyncio.Protocol) -> BoundedConnection:
        """Return a new connection before the server's."""
        name = b"%d" % next(self._names)
        connection = self._open[name] = BoundedConnection(server, name, self._connections)
        return connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._open.get(dict(scope["headers"])[_CONNECTION])
        if connection is None:  # it is closed
            return
        scope["headers"] = [header for header in scope["headers"] if header[0] != _CONNECTION]
        on_admission(scope, connection.admit)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and connection.begin_answer():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                connection.end_answer()

        try:
            await self._app(scope, receive, answer)
        finally:
            connection.end_answer()
