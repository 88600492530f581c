"""What is in front of all pages: host names, sessions, cross-site requests, and headers of responses."""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragtrace import semconv
from ragtrace.answers.opened import OpenedAnswer
from ragtrace.answers.port import TrafficScope
from ragtrace.answers.summary import AnswerKey
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.ui.errors import error_page
from ragtrace_collector.ui.render import render
from ragtrace_collector.ui.session import Sessions, viewer_of_grant
from ragtrace_collector.ui.site import Viewer, site_of, viewer_of
from ragtrace_collector.web.errors import RequestRefused
from ragtrace_collector.web.tokens import TokenAuth

log = logging.getLogger("ragtrace.collector")

_CSP: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-robots-tag": "noindex",
}
_SAFE: Final = frozenset({"GET", "HEAD"})
_PUBLIC: Final = ("/static/", "/login")
_MOST_FORM_BYTES: Final = 256 << 10
_MOST_FIELDS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UiAccess:
    """Who may see the pages, and how they are reached."""

    tokens: TokenAuth
    sessions: Sessions
    is_secure: bool = False
    """The pages are served over TLS: cookies are for TLS only."""


class Gate:
    """ASGI middleware: sets ``request.state.viewer``, or answers itself.

    It also answers for what pages do not handle: an exception's text may quote an answer, so that the log
    gets its type and place only.
    """

    def __init__(self, app: ASGIApp, *, access: UiAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        request.state.viewer = Viewer(may_review=False)
        refusal = await self._refusal(request)
        answering = _Answering(send, is_static=_path(request).startswith("/static/"))
        try:
            await (refusal or self._app)(scope, receive, answering.send)
        except ClientDisconnect:
            return
        except Exception as exc:  # noqa: BLE001 -- the other pages go on
            log.error("page: %s", place_of(exc), extra=event("page_failed"))  # noqa: TRY400 -- no content
            if not answering.has_begun:
                await error_page(request, 500)(scope, receive, answering.send)

    async def _refusal(self, request: Request) -> Response | None:
        try:
            self._access.tokens.check_host(request.headers.get("host"))
        except RequestRefused as exc:
            return error_page(request, exc.http_status, str(exc))
        if request.method not in _SAFE and not _is_same_site(request):
            return error_page(request, 403, "this request came from another site: open the page itself.")
        return await self._find_viewer(request)

    async def _find_viewer(self, request: Request) -> Response | None:
        """Set the viewer; return a response if nobody is known who may read."""
        tokens, sessions = self._access.tokens, self._access.sessions
        if tokens.is_open:
            request.state.viewer = Viewer(csrf=sessions.csrf)
            return None
        if session := sessions.find(request.cookies):
            request.state.viewer = session.viewer
            return None
        if _path(request).startswith(_PUBLIC):
            return None
        if authorization := request.headers.get("authorization"):
            return self._admit(request, authorization)
        return await _to_login(request)

    def _admit(self, request: Request, authorization: str) -> Response | None:
        """Let a program read with a token in the header; it has no session, so it writes nothing."""
        try:
            sender = self._access.tokens.admit(authorization, "read")
        except RequestRefused as exc:
            return error_page(request, exc.http_status, str(exc))
        assert sender is not None
        request.state.viewer = viewer_of_grant(sender.grant)
        return None


def scoped(request: Request, scope: TrafficScope) -> TrafficScope:
    """Return a scope as the viewer may see it.

    Raises:
        HTTPException: 404, if it names another tenant.
    """
    return replace(scope, tenant=own_tenant(request, scope.tenant))


def own_tenant(request: Request, named: str | None) -> str | None:
    """Return the tenant that a request is about: the viewer's own, if the viewer has one.

    Raises:
        HTTPException: 404, if it names another tenant: whether that exists is not told.
    """
    tenant = viewer_of(request).tenant
    if tenant is None:
        return named
    if named not in (None, "", tenant):
        raise HTTPException(404)
    return tenant


async def open_own(request: Request, key: AnswerKey) -> OpenedAnswer:
    """Open an answer for the viewer: the one door to content.

    A key names the viewer's tenant already, and the place opens what is the tenant's. Here it is looked at
    once more: back ends keep the traces of all tenants together.

    Raises:
        HTTPException: 404, it is another tenant's.
        ReadError: it is not there, or the place cannot be read.
    """
    site, own = site_of(request), viewer_of(request).tenant
    opened = await site.source.open(key)
    if own is None:
        return opened
    resources = [version.carrier.resource.attributes for version in opened.versions if version.carrier]
    if opened.record.target:
        resources.append(opened.record.target.resource)
    owners = {resource[semconv.TENANT] for resource in resources if semconv.TENANT in resource}
    if opened.key != key or owners - {own}:
        raise HTTPException(404)
    if not owners and not await site.index.versions(key):  # a place may have left the tenant out
        raise HTTPException(404)
    return opened


def login_page(
    request: Request, back: str, problem: str = "", *, pending: str = "", status: int = 200
) -> Response:
    """Return the page that asks for a token; ``pending`` is a form to send after it, as a query string."""
    return render(
        request,
        "login.html",
        status_code=status,
        page="login",
        back=back,
        problem=problem,
        pending=pending,
    )


async def checked_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that this page sent; a repeated field keeps its last value.

    Raises:
        HTTPException: 403 without the viewer's CSRF token, 413 if the form is too large.
    """
    fields = await read_form(request, most_bytes=_MOST_FORM_BYTES)
    check_csrf(request, fields.pop("csrf", ""))
    return fields


async def read_form(request: Request, *, most_bytes: int) -> dict[str, str]:
    """Return the fields of a form, whoever sent it.

    Raises:
        HTTPException: 413, it is too large.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise HTTPException(413)
    text = body.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise HTTPException(413) from None


def check_csrf(request: Request, given: str) -> None:
    """Make sure that a form is the viewer's own.

    Raises:
        HTTPException: 403, it is not, or the viewer has no session.
    """
    expected = viewer_of(request).csrf
    if not expected or not hmac.compare_digest(given.encode(), expected.encode()):
        raise HTTPException(
            403, "this form is not of this session any more: go back, reload the page, and send it again."
        )


def _is_same_site(request: Request) -> bool:
    fetch_site = request.headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _path(request: Request) -> str:
    return request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"


async def _to_login(request: Request) -> Response:
    """Lead to the login, and back; the login keeps a form that was sent, so that nothing typed is lost."""
    back = _path(request) + (f"?{request.url.query}" if request.url.query else "")
    if request.method not in _SAFE:
        try:
            fields = await read_form(request, most_bytes=_MOST_FORM_BYTES)
        except HTTPException:
            return error_page(request, 413)
        fields.pop("csrf", None)
        return login_page(request, back, "Your session has ended.", pending=urlencode(fields), status=401)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/login?back={quote(back, safe='')}", 303)


class _Answering:
    """Sends a response with the headers that every page has."""

    def __init__(self, send: Send, *, is_static: bool) -> None:
        self._send = send
        self._kept = "no-cache" if is_static else "no-store"
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers.setdefault("cache-control", self._kept)
        await self._send(message)
