"""Sessions of people who logged in with a token. They live in memory: a restart asks to log in again."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ragtrace.ports import Clock
from ragtrace_collector.ui.site import Viewer
from ragtrace_collector.web.tokens import TokenAuth, TokenGrant, digest_of

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
