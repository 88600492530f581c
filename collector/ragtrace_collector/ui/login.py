"""Log in with a token, and log out."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ragtrace_collector.ui.render import render
from ragtrace_collector.ui.security import UiAccess, checked_form, login_page, read_form
from ragtrace_collector.ui.session import COOKIE, Session
from ragtrace_collector.web.errors import RequestRefused

_MOST_BYTES: Final = 1 << 20
"""With a form that waits to be sent."""


def login_routes(access: UiAccess) -> list[Route]:
    """Return the routes ``login``, ``login_send`` and ``logout``."""

    async def show(request: Request) -> Response:
        if access.tokens.is_open:
            return RedirectResponse(_home(request), 303)
        back = request.query_params.get("back", "/")
        if request.headers.get("sec-fetch-site") == "cross-site":
            # The browser holds the session's cookie back as long as another site leads here: begin again.
            return render(request, "onward.html", page="login", onward=_local(request, back))
        return login_page(request, back)

    async def send(request: Request) -> Response:
        fields = await read_form(request, most_bytes=_MOST_BYTES)
        back, pending = fields.get("back", "/"), fields.get("pending", "")
        if access.tokens.is_open:
            return RedirectResponse(_home(request), 303)
        client = request.client.host if request.client else ""
        if not access.sessions.may_try(client):
            wait = "Too many attempts: wait a minute, then try again."
            return login_page(request, back, wait, pending=pending, status=429)
        try:
            sender = access.tokens.admit(f"Bearer {fields.get('token', '')}", "read")
        except RequestRefused as exc:
            access.sessions.note_failure(client)
            return login_page(request, back, _said(exc), pending=pending, status=403)
        assert sender is not None
        access.sessions.end(request.cookies)
        session = access.sessions.begin(sender.grant)
        response = _resumed(request, session, back, pending)
        response.set_cookie(
            COOKIE,
            session.id,
            max_age=access.sessions.lifetime_s,
            path=request.scope.get("root_path", "") or "/",
            secure=access.is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def leave(request: Request) -> Response:
        await checked_form(request)
        access.sessions.end(request.cookies)
        response = RedirectResponse(request.url_for("login").path, 303)
        response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
        return response

    return [
        Route("/login", show, methods=["GET"], name="login"),
        Route("/login", send, methods=["POST"], name="login_send"),
        Route("/logout", leave, methods=["POST"], name="logout"),
    ]


def _resumed(request: Request, session: Session, back: str, pending: str) -> Response:
    """Go where the login was asked for; a form that was being sent is shown, to be sent with a click."""
    if not pending:
        return RedirectResponse(_local(request, back), 303)
    request.state.viewer = session.viewer
    fields = parse_qsl(pending, keep_blank_values=True)
    return render(request, "resume.html", page="login", action=_local(request, back), fields=fields)


def _said(exc: RequestRefused) -> str:
    if "known" in str(exc) or "send a token" in str(exc):
        return "This token is not known here: its SHA-256 must be in `receive.tokens` (docs/security.md)."
    return f"{exc}."


def _home(request: Request) -> str:
    return request.url_for("overview").path


def _local(request: Request, back: str) -> str:
    """Return where to go after the login: a path of this site and nothing else."""
    is_local = back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable()
    return request.scope.get("root_path", "") + back if is_local and "\\" not in back else _home(request)
