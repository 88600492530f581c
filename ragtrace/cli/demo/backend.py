"""Which trace back end the demo shows its result in."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from ragtrace.cli.demo.process import Backend
from ragtrace.errors import InputError

_LOCAL_OTLP = "http://localhost:4317"
_JAEGER_UI_PORT = 16686
_PROBE_S = 0.3


def find_backend(endpoint: str | None, ui: str | None) -> Backend | None:
    """Return the back end that was named, else the one that listens on localhost:4317, else ``None``.

    Raises:
        InputError: nothing listens at the endpoint that was named.
    """
    if endpoint is None:
        if not _listens(_LOCAL_OTLP):
            return None
        endpoint = _LOCAL_OTLP
    elif not endpoint.startswith("otlp-file:") and not _listens(endpoint):
        raise InputError(
            f"--to {endpoint}: nothing listens there; start the back end first, or leave --to out"
        )
    return Backend(endpoint=endpoint, ui=ui or _jaeger_ui_beside(endpoint))


def trace_link(backend: Backend, trace_id: str) -> str:
    """Say where a person sees the trace."""
    if backend.ui:
        return f"{backend.ui.rstrip('/')}/trace/{trace_id}"
    return f"trace {trace_id} in {backend.endpoint}"


def _jaeger_ui_beside(endpoint: str) -> str | None:
    host = _address(endpoint)[0]
    ui = f"http://{host}:{_JAEGER_UI_PORT}"
    return ui if host and _listens(ui) else None


def _listens(url: str) -> bool:
    host, port = _address(url)
    try:
        with socket.create_connection((host, port), timeout=_PROBE_S):
            return True
    except OSError:
        return False


def _address(url: str) -> tuple[str, int]:
    if url.startswith("otlp-file:"):
        return "", 0
    parts = urlsplit(url if "://" in url else f"//{url}")
    try:
        return parts.hostname or "", parts.port or 4317
    except ValueError as exc:
        raise InputError(f"--to {url}: {exc}") from exc
