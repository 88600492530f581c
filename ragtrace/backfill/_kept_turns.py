"""The turns of sessions that a back-fill has read or judged, in its progress file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ragtrace import semconv
from ragtrace.backfill.progress import Progress
from ragtrace.conversations.judging import PlacedTurn, SessionName
from ragtrace.conversations.turns import SessionSettings, Turn, turn_of_json
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Span

_PAGE: Final = 100
_Key = tuple[int, str, str]


class WrittenSpan(NamedTuple):
    """The span of a session that somebody wrote before."""

    span_id: str
    supersedes: str
    unchecked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTurn:
    """A turn that is read back."""

    turn: Turn
    """Without its texts if they are deleted."""
    place: bytes
    digest: str
    checked: bytes | None
    """What the judge said of it against the earlier turns with this digest."""
    written: tuple[WrittenSpan, ...]
    """Spans of its session under this answer."""

    @property
    def last_span(self) -> Span:
        """Where the span of a session goes whose last turn this is."""
        (span,) = decode(self.place)
        return span


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurns:
    """Keeps turns on disk, so that memory does not grow with the sessions of a run.

    Turns belong to an evaluator: that of the run.
    """

    progress: Progress
    evaluator: str
    """Its version."""

    async def add(self, placed: PlacedTurn, spans: Sequence[Span] = ()) -> None:
        """Keep a turn, and the spans of sessions under its answer. Its session is open then.

        Texts that are known already are not replaced by none.
        """
        name, turn = placed.name, placed.turn
        key = (self.evaluator, name.tenant, name.session, turn.start_ns, *turn.key)
        known = self.progress.rows(f"SELECT carrier, turn, told FROM session_turn WHERE {_KEY}", *key)
        carrier, text, told = known[0] if known else ("", None, "[]")
        if turn.has_text or carrier != turn.carrier_span_id:
            text = turn.to_json() if turn.has_text else None
        before = tuple(_written(told))
        written = dict.fromkeys((*before, *_session_spans(spans, name)))
        is_new = (
            not known or carrier != turn.carrier_span_id or text != known[0][1] or len(written) > len(before)
        )
        if not is_new:
            await self._open(key)
            return
        await self.progress.write(
            (
                _ADD_TURN,
                (
                    *key,
                    turn.carrier_span_id,
                    turn.without_text().to_json(),
                    text,
                    encode([placed.place]),
                    json.dumps(list(written)),
                ),
            ),
            (
                _OPEN_SESSION,
                key[:4],
            ),
        )

    async def add_known(self, placed: PlacedTurn) -> None:
        """Keep a turn of which only its carrier's id is known, unless more of it is kept already."""
        name, turn = placed.name, placed.turn
        key = (self.evaluator, name.tenant, name.session, turn.start_ns, *turn.key)
        query = f"SELECT 1 FROM session_turn WHERE {_KEY} AND carrier = ?"
        if self.progress.rows(query, *key, turn.carrier_span_id):
            await self._open(key)
        else:
            await self.add(placed)

    async def _open(self, key: tuple[str, str, str, int, str, str]) -> None:
        """Open the session of a turn that is kept already; most are, and a write waits for the disk."""
        query = "SELECT is_open FROM session WHERE evaluator = ? AND tenant = ? AND session = ?"
        if self.progress.rows(query, *key[:3]) != [(1,)]:
            await self.progress.write((_OPEN_SESSION, key[:4]))

    def open(self, *, before_ns: int) -> list[SessionName]:
        """Return the open sessions whose last turn began before a time, the oldest first."""
        query = (
            "SELECT tenant, session FROM session WHERE evaluator = ? AND is_open = 1 AND newest_ns < ?"
            " ORDER BY newest_ns"
        )
        rows = self.progress.rows(query, self.evaluator, before_ns)
        return [SessionName(tenant=tenant, session=session) for tenant, session in rows]

    def number_open(self) -> int:
        """Count the open sessions."""
        query = "SELECT count(*) FROM session WHERE evaluator = ? AND is_open = 1"
        [(number,)] = self.progress.rows(query, self.evaluator)
        return int(number)

    def sessions(self, name: SessionName, settings: SessionSettings) -> Iterator[list[KnownTurn]]:
        """Yield the turns of each session under an id, in order of time, the newest of too many.

        A turn that comes ``keep_ns`` after the last one begins another session.
        """
        found: list[KnownTurn] = []
        for kept in self._in_order(name):
            if found and kept.turn.start_ns - found[-1].turn.start_ns > settings.keep_ns:
                yield found
                found = []
            found.append(kept)
            del found[: -settings.max_turns]
        if found:
            yield found

    def before(
        self, name: SessionName, start_ns: int, trace_id: str, span_id: str, *, limit: int
    ) -> list[Turn]:
        """Return the last turns with texts that began before an answer, the newest first."""
        own = (start_ns, trace_id, span_id)
        rows = self.progress.rows(_BEFORE, self.evaluator, name.tenant, name.session, *own, limit)
        return [turn_of_json(turn) for (turn,) in rows]

    async def keep_check(self, name: SessionName, turn: Turn, *, digest: str, checked: bytes) -> None:
        """Keep what the judge said of a turn, so that it is not asked again."""
        key = (self.evaluator, name.tenant, name.session, turn.start_ns, *turn.key)
        await self.progress.write(
            (f"UPDATE session_turn SET digest = ?, checked = ? WHERE {_KEY}", (digest, checked, *key))
        )

    async def written(self, name: SessionName, last: KnownTurn, span: Span, payload: bytes) -> None:
        """Note the span of a session, and keep it until it is sent."""
        key = (self.evaluator, name.tenant, name.session, last.turn.start_ns, *last.turn.key)
        told = dict.fromkeys((*last.written, *_session_spans([span], name)))
        await self.progress.write(
            ("INSERT OR REPLACE INTO carrier VALUES (?, ?, ?)", (span.trace_id, span.span_id, payload)),
            (f"UPDATE session_turn SET told = ? WHERE {_KEY}", (json.dumps(list(told)), *key)),
        )

    async def end(self, name: SessionName) -> None:
        """Note that a session is told of."""
        statement = "UPDATE session SET is_open = 0 WHERE evaluator = ? AND tenant = ? AND session = ?"
        await self.progress.write((statement, (self.evaluator, name.tenant, name.session)))

    async def forget(self, *, before_ns: int) -> None:
        """Delete the texts of all sessions that are told of and had no turn since a time."""
        await self.progress.write((_FORGET, (before_ns,)))

    def _in_order(self, name: SessionName) -> Iterator[KnownTurn]:
        after: _Key = (-1, "", "")
        while rows := self.progress.rows(_IN_ORDER, self.evaluator, name.tenant, name.session, *after):
            for row in rows:
                yield _kept(row)
            after = rows[-1][:3]


_KEY: Final = "evaluator = ? AND tenant = ? AND session = ? AND start_ns = ? AND trace_id = ? AND span_id = ?"

_ADD_TURN: Final = """
INSERT INTO session_turn (
    evaluator, tenant, session, start_ns, trace_id, span_id, carrier, bare, turn, place, told)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET carrier = excluded.carrier, bare = excluded.bare, turn = excluded.turn,
    place = excluded.place, told = excluded.told
"""
_OPEN_SESSION: Final = """
INSERT INTO session (evaluator, tenant, session, newest_ns) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET newest_ns = max(newest_ns, excluded.newest_ns), is_open = 1
"""
_FORGET: Final = """
UPDATE session_turn SET turn = NULL, checked = NULL, digest = ''
WHERE turn IS NOT NULL AND (evaluator, tenant, session) IN (
    SELECT evaluator, tenant, session FROM session WHERE is_open = 0 AND newest_ns < ?)
"""
_BEFORE: Final = """
SELECT turn FROM session_turn
WHERE evaluator = ? AND tenant = ? AND session = ? AND (start_ns, trace_id, span_id) < (?, ?, ?)
    AND turn IS NOT NULL
ORDER BY start_ns DESC, trace_id DESC, span_id DESC LIMIT ?
"""
_IN_ORDER: Final = f"""
SELECT start_ns, trace_id, span_id, ifnull(turn, bare), place, digest, checked, told FROM session_turn
WHERE evaluator = ? AND tenant = ? AND session = ? AND (start_ns, trace_id, span_id) > (?, ?, ?)
ORDER BY start_ns, trace_id, span_id LIMIT {_PAGE}
"""


def _kept(row: Sequence[Any]) -> KnownTurn:
    turn, place, digest, checked, told = row[3:]
    return KnownTurn(
        turn=turn_of_json(turn), place=place, digest=digest, checked=checked, written=tuple(_written(told))
    )


def _written(told: str) -> Iterator[WrittenSpan]:
    return (WrittenSpan(*each) for each in json.loads(told))


def _session_spans(spans: Sequence[Span], name: SessionName) -> Iterator[WrittenSpan]:
    for span in spans:
        if semconv.SESSION_LABEL in span.attributes:
            supersedes = span.attributes.get(semconv.SESSION_SUPERSEDES)
            unchecked = span.attributes.get(semconv.SESSION_UNCHECKED)
            yield WrittenSpan(
                span.span_id,
                supersedes if isinstance(supersedes, str) else "",
                unchecked if isinstance(unchecked, int) else 0,
            )
