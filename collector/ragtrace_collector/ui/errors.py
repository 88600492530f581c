"""Error pages: a plain sentence and a way on; never an exception's trace, and never content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ragtrace.answers.opened import AnswerGone
from ragtrace.errors import InputError, ReadError, WriteError
from ragtrace_collector.ui.render import render

_TITLES: Final[Mapping[int, str]] = {
    400: "This request is not valid",
    401: "Log in again",
    403: "Not allowed",
    404: "Not here",
    405: "Not here",
    410: "Gone",
    413: "Too large",
    421: "Unknown host name",
    429: "Too many attempts",
    503: "Cannot be read now",
    507: "Cannot be kept now",
}
_SENTENCES: Final[Mapping[int, str]] = {
    404: "there is no such page, or no such answer that you may see.",
    405: "this address does not accept such a request.",
    413: "what was sent is larger than this page takes.",
    500: "something went wrong inside ragtrace: the log says where.",
}


def error_page(request: Request, status: int, sentence: str = "") -> Response:
    """Return an error page."""
    return render(
        request,
        "error.html",
        status_code=status,
        page="",
        heading=_TITLES.get(status, "Something went wrong"),
        sentence=_capitalized(sentence or _SENTENCES.get(status, "this did not work.")),
        can_retry=status in (503, 507, 429),
    )


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


async def _http(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    own = exc.detail if exc.status_code in (403, 429) and " " in exc.detail else ""
    return error_page(request, exc.status_code, own)


def _told(status: int) -> Callable[[Request, Exception], Any]:
    async def handle(request: Request, exc: Exception) -> Response:
        return error_page(request, status, str(exc))

    return handle


HANDLERS: Final[Mapping[Any, Callable[[Request, Exception], Any]]] = {
    HTTPException: _http,
    AnswerGone: _told(410),
    ReadError: _told(503),
    WriteError: _told(507),
    InputError: _told(400),
}
