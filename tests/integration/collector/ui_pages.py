"""The pages over a real index, an open or guarded door, and places that answers are opened from."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from starlette.testclient import TestClient

from ragtrace.answers.index import open_index
from ragtrace.answers.port import AnswerGone, OpenedAnswer
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import Chunk, RagRecord
from ragtrace.reviews import ReviewFile
from ragtrace_collector.ui.security import Sessions, UiAccess
from ragtrace_collector.ui.serving import ui_app
from ragtrace_collector.ui.site import Site
from ragtrace_collector.web.tokens import KnownHosts, Permission, TokenAuth, TokenGrant, digest_of

NOW_NS = 1_795_262_400_000_000_000
LISTEN = "127.0.0.1:4330"
SESSION_S = 3600


class HandClock:
    """A clock that stands until it is set."""

    now = NOW_NS

    def now_ns(self) -> int:
        return self.now


@dataclass
class Texts:
    """A place where every answer has one of these texts, by span id."""

    texts: Mapping[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    name: str = "memory:test"
    opened: int = 0

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        self.opened += 1
        if self.failure:
            raise self.failure
        if key.span_id not in self.texts:
            raise AnswerGone(f"{self.name} has no trace {key.trace_id}")
        record = RagRecord(
            id=f"{key.trace_id}:{key.span_id}",
            question="How long?",
            answer=self.texts[key.span_id],
            chunks=(Chunk(id="faq", text="Refunds take 14 days."),),
        )
        return OpenedAnswer(key=key, record=record, versions=(), trace=None, read_from=self.name)

    async def aclose(self) -> None:
        pass


def grant(token: str, *may: Permission, tenant: str | None = None) -> TokenGrant:
    return TokenGrant(
        name=token.removeprefix("rt_"),
        digest=digest_of(token),
        tenant=tenant,
        may=frozenset(may or ("read", "review")),
    )


@dataclass
class Pages:
    """The pages, and what they are made of."""

    rows: Sequence[AnswerSummary] = ()
    grants: Sequence[TokenGrant] = ()
    source: Any = field(default_factory=Texts)
    views: ReviewFile | None = field(default_factory=lambda: ReviewFile(Path(mkdtemp()) / "reviews.db"))
    is_secure: bool = False
    allowed: Sequence[str] = ()
    notices: Sequence[str] = ()
    review_sinks: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = HandClock()
        hosts = KnownHosts(listening=(LISTEN,), allowed=self.allowed)
        self.auth = TokenAuth(self.grants, self.clock, hosts=hosts)
        self.index = open_index()

    def client(self, address: str = "127.0.0.1", **options: Any) -> TestClient:
        """Return a browser without a session."""
        site = Site(
            index=self.index,
            source=self.source,
            reviews=self.views,
            clock=self.clock,
            notices=lambda: self.notices,
            review_sinks=tuple(self.review_sinks),
            links=self.links,
        )
        sessions = Sessions(self.auth, self.clock, lifetime_s=SESSION_S)
        app = ui_app(site, access=UiAccess(tokens=self.auth, sessions=sessions, is_secure=self.is_secure))
        scheme = "https" if self.is_secure else "http"
        client = TestClient(app, base_url=f"{scheme}://{LISTEN}", client=(address, 50_000), **options)
        if self.rows:
            with ThreadPoolExecutor() as beside:  # a test may have an event loop of its own
                beside.submit(asyncio.run, self.index.add(self.rows)).result()
            self.rows = ()
        return client


def log_in(client: TestClient, token: str, back: str = "/answers") -> Any:
    """Send the form of the login, and follow to where it leads."""
    return client.post("/login", data={"token": token, "back": back})


def csrf_of(client: TestClient, path: str = "/review?saved=1:1") -> str:
    """Return the token in the forms of a page."""
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found
    return found[1]


def with_tenant(row: AnswerSummary, tenant: str) -> AnswerSummary:
    return replace(row, key=row.key._replace(tenant=tenant))
