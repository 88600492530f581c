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

from ragtrace.errors import RagtraceError

PREFERRED_PORT: Final = 4330
_POLL_S: Final = 0.2
_TRIES: Final = 50


def has_desktop(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Say whether a browser can be opened here for the person who runs the demo."""
    if environ.get("CI") or environ.get("SSH_CONNECTION"):
        return False
    if platform in ("darwin", "win32"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


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

    def wait_for(self, url: str) -> None:
        """Wait until the page has an answer.

        Raises:
            RagtraceError: it does not show it.
        """
        import httpx

        said = "it does not answer"
        for _ in range(_TRIES):
            with suppress(httpx.HTTPError):
                status = httpx.get(url, trust_env=False, follow_redirects=False).status_code
                if status == httpx.codes.OK:
                    return
                said = f"it answers {status}"
            time.sleep(_POLL_S)
        raise RagtraceError(f"the page {url} was not opened: {said}")


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
