"""The host names that requests may use for the collector, checked if neither tokens nor TLS protect it.

A web page can make its own name resolve to this machine (DNS rebinding). Then a browser inside the network
sends its requests, and they have the same origin as the responses. But they must use that name as host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from google.rpc import code_pb2

from ragtrace_collector.web.errors import RequestRefused

_OF_THIS_MACHINE: Final = (".localhost", ".internal")
"""Domains in which no name can be registered: RFC 6761, and ICANN's domain for private use."""
_ANY: Final = "*."
_HEADER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{1,5})?")
_SHOWN: Final = 80


class KnownHosts:
    """Names of this machine, addresses, names without a dot, and the configured names."""

    def __init__(self, *, listening: Iterable[str] = (), allowed: Iterable[str] = ()) -> None:
        """Take the listening addresses (``host:port``), and the allowed names or ``*.name``."""
        names = {name.lower() for name in allowed}
        self._names = {_host(address) for address in listening} | {n for n in names if not n.startswith(_ANY)}
        self._endings = (*_OF_THIS_MACHINE, *(n.removeprefix("*") for n in names if n.startswith(_ANY)))

    def check(self, header: str | None) -> None:
        """Check the header ``Host``. An HTTP/1.0 client sends none; a browser always does.

        Raises:
            RequestRefused: the collector doesn't have that name.
        """
        if header is None or self._knows(_host(header)):
            return
        raise RequestRefused(
            code_pb2.PERMISSION_DENIED,
            f"the request names the host {header[:_SHOWN]!r}, which is none of the collector's names: "
            "use its address, or add the name to `receive.allowed_hosts`",
            http_status=421,
        )

    def _knows(self, host: str | None) -> bool:
        if not host:
            return False
        return _is_address(host) or "." not in host or host in self._names or host.endswith(self._endings)


def _host(header: str) -> str | None:
    """Return the name or address without the port, in lower case; ``None`` if there is something else."""
    found = _HEADER.fullmatch(header)
    return (found[1] or found[2]).lower().removesuffix(".") if found else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
