"""A filter as conditions on rows of the index, and cursors: where a filtered list goes on."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ragtrace.answers.port import AnswerFilter, SortBy, TrafficScope
from ragtrace.errors import InputError
from ragtrace.model import Label, VerdictLabel
from ragtrace.sql import Statements

STREAM: Final = ("tenant", "service", "model", "prompt_version")
_MOST_CHARS: Final = 200


class Condition(NamedTuple):
    """A condition in SQL, or a query, with a value for each of its placeholders in order."""

    sql: str = ""
    values: tuple[object, ...] = ()

    def and_(self, *others: Condition) -> Condition:
        """Return the condition that all of these hold; an empty one always holds."""
        given = [each for each in (self, *others) if each.sql]
        return Condition(
            " AND ".join(each.sql for each in given), tuple(value for each in given for value in each.values)
        )


def clean(text: str) -> str:
    """Return a name that a database can hold, not too long."""
    return text[:_MOST_CHARS].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def stream_names(scope: TrafficScope) -> Condition:
    """Return the condition on a stream that a scope sets; an empty one if all are wanted."""
    wanted = [(name, getattr(scope, name)) for name in STREAM]
    return Condition().and_(
        *(Condition(f"{name} = ?", (clean(text),)) for name, text in wanted if text is not None)
    )


def streams_in(db: Statements, scope: TrafficScope) -> Condition:
    """Return the same condition on rows and sums, with the numbers of streams: their statistics are known."""
    names = stream_names(scope)
    if not names.sql:
        return names
    found = db.execute(f"SELECT id FROM answer_stream WHERE {names.sql} ORDER BY id", names.values)
    numbers = tuple(number for (number,) in found)
    return Condition(f"stream IN ({', '.join('?' for _ in numbers)})" if numbers else "1 = 0", numbers)


_TRACE_DIGITS: Final = 32
_VERDICTS: Final = {
    VerdictLabel.SUPPORTED: "supported > 0",
    VerdictLabel.CONTRADICTED: "contradicted > 0",
    VerdictLabel.UNSUPPORTED: "unsupported > 0",
    VerdictLabel.UNJUDGED: "(unjudged > 0 OR unjudged_chunks > 0)",
    VerdictLabel.RELEVANT: "relevant > 0",
    VerdictLabel.PARTLY_RELEVANT: "partly_relevant > 0",
    VerdictLabel.IRRELEVANT: "irrelevant > 0",
}


def metric_of(chosen: AnswerFilter) -> str:
    """Return the metric that score and label are about."""
    return clean(chosen.metric or "faithfulness")


def all_of(chosen: AnswerFilter, streams: Condition) -> Condition:
    """Return the condition to be a valid row of some streams that meets a filter.

    Raises:
        InputError: the beginning of a trace id is not hexadecimal.
    """
    label = Condition()
    if chosen.label is not None and chosen.metric is None:
        label = Condition("answer_row.label = ?", (chosen.label.value,))
    verdict = Condition(_VERDICTS[chosen.verdict]) if chosen.verdict is not None else Condition()
    names = (("blame", chosen.blame), ("judge", chosen.judge))
    named = [Condition(f"{column} = ?", (clean(text),)) for column, text in names if text is not None]
    scored = _of_score(chosen)
    if scored.sql:
        scored = Condition(
            f"EXISTS (SELECT 1 FROM answer_score WHERE answer = answer_row.id AND {scored.sql})",
            scored.values,
        )
    return Condition("is_valid = 1").and_(
        times_of(chosen.scope),
        streams,
        label,
        verdict,
        *named,
        *_found_directly(chosen),
        scored,
    )


LABELS: Final = {Label.PASS: "passed", Label.FAIL: "failed", Label.ERROR: "error", Label.SKIPPED: "skipped"}


def counted_of(chosen: AnswerFilter) -> list[str]:
    """Return conditions on the sums of a day: one that does not meet them has no row that meets a filter."""
    found = [] if chosen.label is None or chosen.metric is not None else [f"{LABELS[chosen.label]} > 0"]
    return found if chosen.verdict is None else [*found, _VERDICTS[chosen.verdict]]


def times_of(scope: TrafficScope) -> Condition:
    """Return the condition to be in the time of a scope, which always has both ends."""
    return Condition("time_ns >= ? AND time_ns <= ?", times_in(scope))


def times_in(scope: TrafficScope) -> tuple[int, int]:
    """Return the first and the last nanosecond of a scope."""
    since_ns = 0 if scope.since_ns is None else max(scope.since_ns, 0)
    return since_ns, 2**63 - 1 if scope.until_ns is None else min(scope.until_ns, 2**63) - 1


def narrow(chosen: AnswerFilter, *, most: int) -> Iterator[Condition]:
    """Yield conditions of a filter that an index finds directly: each may leave few rows.

    One on scores looks at no more than ``most``.

    Raises:
        InputError: the beginning of a trace id is not hexadecimal.
    """
    yield from (each for each in _found_directly(chosen) if each.sql != _NO_FEEDBACK)
    if chosen.min_score is not None or chosen.max_score is not None:
        scored = _of_score(chosen)
        yield Condition(
            f"id IN (SELECT answer FROM answer_score WHERE {scored.sql} LIMIT ?)", (*scored.values, most)
        )


def _found_directly(chosen: AnswerFilter) -> Iterator[Condition]:
    if chosen.feedback:
        yield _of_feedback(chosen.feedback)
    if chosen.session is not None:
        yield Condition("session = ? AND session != ''", (clean(chosen.session),))
    if chosen.trace_id:
        yield _of_trace(chosen.trace_id)


def _of_score(chosen: AnswerFilter) -> Condition:
    """Return the condition on a score that a filter sets, if it sets any."""
    found = Condition()
    if chosen.label is not None and chosen.metric is not None:
        found = found.and_(Condition("answer_score.label = ?", (chosen.label.value,)))
    elif chosen.min_score is not None or chosen.max_score is not None:
        found = found.and_(Condition("answer_score.label IN ('pass', 'fail', 'error', 'skipped')"))
    if chosen.min_score is not None:
        found = found.and_(Condition("score >= ?", (chosen.min_score,)))
    if chosen.max_score is not None:
        found = found.and_(Condition("score <= ?", (chosen.max_score,)))
    return Condition("metric = ?", (metric_of(chosen),)).and_(found) if found.sql else found


_FEEDBACK: Final = "feedback != ''"
"""The words of the index's own condition."""
_NO_FEEDBACK: Final = "feedback = ''"


def _of_feedback(feedback: str) -> Condition:
    if feedback in ("any", "none"):
        return Condition(_FEEDBACK if feedback == "any" else _NO_FEEDBACK)
    return Condition(f"{_FEEDBACK} AND feedback = ?", (feedback,))


def _of_trace(prefix: str) -> Condition:
    begin = prefix.lower()[:_TRACE_DIGITS]
    if not re.fullmatch("[0-9a-f]+", begin):
        raise InputError("a trace id has hexadecimal digits only: correct it, or filter by something else")
    if len(begin) == _TRACE_DIGITS:
        return Condition("trace_id = ?", (begin,))
    return Condition("trace_id >= ? AND trace_id < ?", (begin, f"{begin}g"))


Place = tuple[float | int, ...]
"""A place in a list: the values that it is ordered by, and the row. What comes later has a later place."""

_LARGEST: Final = 2**63


def encode(place: Place, chosen: AnswerFilter, sort: SortBy) -> str:
    """Return the cursor of a place, for URLs."""
    text = json.dumps([_digest(chosen, sort), *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, chosen: AnswerFilter, sort: SortBy, *, values: int) -> Place:
    """Return the place of a cursor, of so many values.

    Raises:
        InputError: it is no cursor, or that of another filter or order.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, *place = json.loads(text)
    except (ValueError, TypeError, RecursionError) as exc:
        raise InputError("the place in the list cannot be read: begin at the first page") from exc
    if digest != _digest(chosen, sort):
        raise InputError(
            "the place is in another list, with another filter or order: begin at the first page"
        )
    if len(place) != values or not all(_is_number(value) for value in place):
        raise InputError("the place in the list cannot be read: begin at the first page")
    return tuple(place)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) < _LARGEST  # type: ignore[arg-type]


def _digest(chosen: AnswerFilter, sort: SortBy) -> str:
    return hashlib.sha256(f"{chosen!r}|{sort.value}".encode("utf-8", "replace")).hexdigest()[:12]
