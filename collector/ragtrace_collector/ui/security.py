"""What is in front of all pages: host names, sessions, logins, cross-site requests, headers of responses."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragtrace import semconv
from ragtrace.answers.port import OpenedAnswer, TrafficScope
from ragtrace.answers.summary import AnswerKey
from ragtrace.ports import Clock
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.ui.site import Viewer, error_page, render, site_of, viewer_of
from ragtrace_collector.web.tokens import RequestRefused, TokenAuth, TokenGrant, digest_of

COOKIE: Final = "ragtrace_session"
_MOST: Final = 1_000
_ATTEMPTS: Final = 10
_MINUTE_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One login."""

    id: str = field(repr=False)
    grant: TokenGrant
    csrf: str = field(repr=False)
    until_ns: int

    @property
    def viewer(self) -> Viewer:
        """The person who logged in."""
        return viewer_of_grant(self.grant, csrf=self.csrf)


def viewer_of_grant(grant: TokenGrant, *, csrf: str = "") -> Viewer:
    """Return the person who has a token."""
    return Viewer(name=grant.name, tenant=grant.tenant, may_review="review" in grant.may, csrf=csrf)


class Sessions:
    """The sessions of one process. A session ends a fixed time after its login, or with its token."""

    def __init__(self, access: TokenAuth, clock: Clock, *, lifetime_s: float) -> None:
        self._access = access
        self._clock = clock
        self._lifetime_ns = int(lifetime_s * 1e9)
        self._sessions: dict[bytes, Session] = {}
        self._failures: OrderedDict[str, deque[int]] = OrderedDict()
        self.csrf = secrets.token_urlsafe(32)
        """For forms if no tokens are configured."""

    @property
    def lifetime_s(self) -> int:
        """How long a session lasts."""
        return self._lifetime_ns // 1_000_000_000

    def may_try(self, client: str) -> bool:
        """Say whether this client failed to log in only a few times in the last minute."""
        failures = self._failures.get(client, deque[int]())
        return len(failures) < _ATTEMPTS or self._clock.now_ns() - failures[0] >= _MINUTE_NS

    def note_failure(self, client: str) -> None:
        """Count an attempt that failed."""
        failures = self._failures.setdefault(client, deque(maxlen=_ATTEMPTS))
        failures.append(self._clock.now_ns())
        self._failures.move_to_end(client)
        if len(self._failures) > _MOST:
            self._failures.popitem(last=False)

    def begin(self, grant: TokenGrant) -> Session:
        """Begin a session; its id is new, so that nobody else knows it."""
        session = Session(
            id=secrets.token_urlsafe(32),
            grant=grant,
            csrf=secrets.token_urlsafe(32),
            until_ns=self._clock.now_ns() + self._lifetime_ns,
        )
        while len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[digest_of(session.id)] = session
        return session

    def find(self, cookies: Mapping[str, str]) -> Session | None:
        """Return the session of a request, if it has one that is still valid."""
        wanted = digest_of(cookies.get(COOKIE, ""))  # the digest hides the id from the time of the search
        session = self._sessions.get(wanted)
        if session is None:
            return None
        if self._clock.now_ns() >= session.until_ns or not self._access.has(session.grant):
            del self._sessions[wanted]
            return None
        return session

    def end(self, cookies: Mapping[str, str]) -> None:
        """End the session of a request."""
        self._sessions.pop(digest_of(cookies.get(COOKIE, "")), None)


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
        kept = "no-cache" if _path(request).startswith("/static/") else "no-store"
        has_begun = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", kept)
            await send(message)

        try:
            await (refusal or self._app)(scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as exc:  # noqa: BLE001 -- the other pages go on
            log.error("page: %s", place_of(exc), extra=event("page_failed"))  # noqa: TRY400 -- no content
            if not has_begun:
                await error_page(request, 500)(scope, receive, answer)

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
        return _to_login(request)

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


def login_page(request: Request, back: str, problem: str = "", *, status: int = 200) -> Response:
    """Return the page that asks for a token."""
    return render(request, "login.html", status_code=status, page="login", back=back, problem=problem)


async def checked_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that this page sent; a repeated field keeps its last value.

    Raises:
        HTTPException: 403 without the viewer's CSRF token, 413 if the form is too large.
    """
    fields = await read_form(request)
    check_csrf(request, fields.pop("csrf", ""))
    return fields


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form, whoever sent it.

    Raises:
        HTTPException: 413, it is too large.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
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


def _to_login(request: Request) -> Response:
    """Lead to the login, and back."""
    back = _path(request) + (f"?{request.url.query}" if request.url.query else "")
    if request.method not in _SAFE:
        return error_page(
            request, 401, "your session has ended: log in in another tab, then go back and send this again."
        )
    return RedirectResponse(f"{request.scope.get('root_path', '')}/login?back={quote(back, safe='')}", 303)


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
        fields = await read_form(request)
        back = fields.get("back", "/")
        if access.tokens.is_open:
            return RedirectResponse(_home(request), 303)
        client = request.client.host if request.client else ""
        if not access.sessions.may_try(client):
            return login_page(request, back, "Too many attempts: wait a minute, then try again.", status=429)
        try:
            sender = access.tokens.admit(f"Bearer {fields.get('token', '')}", "read")
        except RequestRefused as exc:
            access.sessions.note_failure(client)
            return login_page(request, back, _said(exc), status=403)
        assert sender is not None
        access.sessions.end(request.cookies)
        session = access.sessions.begin(sender.grant)
        response = RedirectResponse(_local(request, back), 303)
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
