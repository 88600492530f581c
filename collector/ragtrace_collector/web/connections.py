"""The connections of one listener. If there are too many, the least trusted are closed."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ragtrace_collector.web.tokens import TokenSender

if TYPE_CHECKING:
    from ragtrace_collector.web._connection import BoundedConnection

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
