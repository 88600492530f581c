"""Read the responses of web frameworks by their shape: no framework is imported.

Starlette and FastAPI: a body of bytes, or a ``body_iterator``. Flask and other WSGI frameworks on Werkzeug:
``get_data()``, or an iterable ``response``. A tuple is Flask's ``(body, status, headers)``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Generator, Iterable
from typing import Any, NamedTuple

MAX_BODY = 4_194_304
"""The largest body, in bytes, that is searched for an answer."""
_FIRST_ERROR = 400


class StreamedBody(NamedTuple):
    """The body of a response that is not sent yet."""

    media_type: str
    pieces: Iterable[Any] | AsyncIterable[Any]
    replaced: Callable[[Any], Any]
    """Replaces the body with a generator and returns the response."""


def streamed_body(result: object) -> StreamedBody | None:
    """Return the streamed body of a response, ``None`` for anything else."""
    if type(result) is tuple and result:
        return _streamed_first(result)
    if not _is_response(result):
        return None
    for name in ("body_iterator", "response"):
        pieces = getattr(result, name, None)
        if isinstance(pieces, AsyncIterable) or (isinstance(pieces, Iterable) and _is_streamed(result)):
            return StreamedBody(_media_type(result), pieces, _replacing(result, name))
    return None


def body_of(result: object) -> object:
    """Return a response's body, with JSON parsed, or ``None``; return any other value unchanged."""
    status = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    if isinstance(result, tuple) and result and (type(status) is int or _is_response(result[0])):
        return None if type(status) is int and status >= _FIRST_ERROR else body_of(result[0])
    if not _is_response(result):
        return result
    body = None if _is_streamed(result) else _bytes_of(result)
    if not body or len(body) > MAX_BODY or getattr(result, "status_code", 0) >= _FIRST_ERROR:
        return None
    text = body.decode("utf-8", "replace")
    return json.loads(text) if "json" in _media_type(result) else text


def _is_response(result: object) -> bool:
    # a mock has every attribute, and would store the replacement
    if not isinstance(getattr(result, "status_code", None), int) or getattr(result, "headers", None) is None:
        return False
    return any(hasattr(result, name) for name in ("body", "body_iterator", "get_data"))


def _is_streamed(response: object) -> bool:
    # a file that the server sends itself is not an answer
    return bool(getattr(response, "is_streamed", False)) and not getattr(
        response, "direct_passthrough", False
    )


def _bytes_of(response: object) -> bytes | None:
    read = getattr(response, "get_data", None)
    body = read() if callable(read) else getattr(response, "body", None)
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else None


def _media_type(response: Any) -> str:
    return str(response.headers.get("content-type") or getattr(response, "media_type", None) or "")


def _replacing(response: object, name: str) -> Callable[[Any], Any]:
    def replaced(generator: Any) -> Any:
        setattr(response, name, generator)
        return response

    return replaced


def _streamed_first(result: tuple[Any, ...]) -> StreamedBody | None:
    """Find a streamed body, or a bare generator, in ``(body, status, headers)``."""
    first, *rest = result
    if isinstance(first, Generator):
        return StreamedBody("", first, lambda generator: (generator, *rest))
    body = streamed_body(first)
    return body and body._replace(replaced=lambda generator: (body.replaced(generator), *rest))
