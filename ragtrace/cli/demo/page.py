"""The demo's page: opened where a person sits at a desktop, and kept until that person has seen enough."""

from __future__ import annotations

import signal
import socket
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn
from urllib.parse import urlsplit

PREFERRED_PORT: Final = 4330
_POLL_S: Final = 0.2
_TRIES: Final = 25
_TRY_S: Final = 5.0
_LINE_BYTES: Final = 1024


def open_page(url: str) -> bool:
    """Open the page in the person's browser; say whether there is one."""
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPage:
    """Where the page of the first collector is."""

    port: int
    links: Mapping[str, str]
    """Pages of others that show a trace, with ``{trace_id}``."""

    @property
    def url(self) -> str:
        """The overview."""
        return f"http://127.0.0.1:{self.port}"

    def url_of(self, trace_id: str, span_id: str) -> str:
        """Return the page of one answer."""
        return f"{self.url}/answers/{trace_id}/{span_id}"

    def fault(self, url: str) -> str | None:
        """Wait until the page shows an answer; return why it does not."""
        said = "it does not answer"
        for _ in range(_TRIES):
            with suppress(OSError):
                line = _first_line(self.port, urlsplit(url).path)
                if " 200 " in line:
                    return None
                said = f"it answers {line!r}"
            time.sleep(_POLL_S)
        return said


def _first_line(port: int, path: str) -> str:
    """Ask for a page directly: proxies of the environment are not for this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=_TRY_S) as connection:
        connection.sendall(f"GET {path or '/'} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return connection.recv(_LINE_BYTES).decode("latin-1").partition("\r\n")[0]


def choose_port(preferred: int = PREFERRED_PORT) -> int:
    """Return a port of this machine that is free: the preferred one if it can be had."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", preferred))
        except OSError:
            server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def stay(check: Callable[[], None]) -> None:
    """Wait for Ctrl-C; ``check`` raises if there is nothing left to wait for."""
    with suppress(KeyboardInterrupt):
        while True:
            check()
            time.sleep(_POLL_S)


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Let whoever ends the demo, or closes its terminal, end its collectors too."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), _leave) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
