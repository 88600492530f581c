"""The filter of a list as the query string of its URL, read and written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import VERDICTS, AnswerFilter, SortBy, TrafficScope
from ragtrace.durations import duration_of
from ragtrace.errors import InputError
from ragtrace.model import Label, VerdictLabel

T = TypeVar("T")

_FEEDBACK: Final = ("up", "down", "any", "none")
_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{1,32}")
_MOST_CHARS: Final = 500
_MOST_VALUES: Final = 100
FIELDS: Final = (
    *("since", "until", "metric", "min", "max", "label", "verdict", "blame", "judge", "service", "model"),
    *("prompt_version", "tenant", "session", "feedback", "trace", "text", "sort"),
)
"""The parameters of a filter, in the order in which URLs have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A filter and an order, as typed and as understood."""

    typed: Mapping[str, str]
    """The fields that are not empty."""
    chosen: AnswerFilter
    sort: SortBy
    problems: Mapping[str, str] = field(default_factory=dict)
    """Sentences by field; such a field is not part of ``chosen``."""

    def url(self, **changed: str | None) -> str:
        """Return the query string with some fields changed; ``None`` and the empty string take one out."""
        fields = {**self.typed, **changed}
        kept = [(name, value) for name in (*FIELDS, "after") if (value := fields.get(name))]
        return urlencode(kept)


def check_parameters(request: Request, *known: str) -> None:
    """See that a page is asked for nothing that it would ignore.

    Raises:
        InputError: a query parameter is not one of these.
    """
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise InputError(f"this page has no parameter `{unknown[:40]}`: it knows {', '.join(known)}")


class _Problem(ValueError):
    """What is typed in a field makes no sense."""


def read_query(typed: Mapping[str, str], *, now_ns: int) -> ListQuery:
    """Read a filter; what makes no sense is told by field and left out."""
    given = {name: value for name in FIELDS if (value := typed.get(name, "").strip())}
    problems: dict[str, str] = {}

    def of(name: str, parse: Callable[[str], T]) -> T | None:
        try:
            return parse(given[name]) if name in given else None
        except _Problem as exc:
            problems[name] = str(exc)
            return None

    def text(name: str) -> str | None:
        return of(name, _bounded)

    scope = TrafficScope(
        tenant=text("tenant"),
        since_ns=of("since", lambda typed: _time(typed, now_ns)),
        until_ns=of("until", lambda typed: _time(typed, now_ns)),
        service=text("service"),
        model=text("model"),
        prompt_version=text("prompt_version"),
    )
    chosen = AnswerFilter(
        scope=scope,
        metric=text("metric"),
        min_score=of("min", _score),
        max_score=of("max", _score),
        label=of("label", _one_of(Label)),
        verdict=of("verdict", _one_of(VerdictLabel, VERDICTS)),
        blame=text("blame"),
        judge=text("judge"),
        session=text("session"),
        feedback=of("feedback", _feedback),
        trace_id=of("trace", _trace_id),
        text=text("text"),
    )
    sort = of("sort", _one_of(SortBy)) or SortBy.NEWEST
    if scope.since_ns is not None and scope.until_ns is not None and scope.since_ns >= scope.until_ns:
        problems["until"] = "This is not after the begin: no answer can be between."
    if chosen.min_score is not None and chosen.max_score is not None and chosen.min_score > chosen.max_score:
        problems["max"] = "This is below the lowest score: no answer can be between."
    return ListQuery(typed=given, chosen=chosen, sort=sort, problems=problems)


def _bounded(text: str) -> str:
    if len(text) > _MOST_CHARS:
        raise _Problem(f"Use at most {_MOST_CHARS} characters.")
    return text


def _score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 1:
        raise _Problem("A score is a number from 0 to 1, such as 0.5.")
    return score


def _one_of(values: type[T], among: Sequence[T] = ()) -> Callable[[str], T]:
    known: Sequence[Any] = among or tuple(values)  # type: ignore[arg-type]

    def parse(text: str) -> T:
        if text not in known:
            raise _Problem(f"Choose one of {', '.join(known)}.")
        return values(text)  # type: ignore[call-arg]

    return parse


def _feedback(text: str) -> str:
    if text not in _FEEDBACK:
        raise _Problem(f"Choose one of {', '.join(_FEEDBACK)}.")
    return text


def _trace_id(text: str) -> str:
    if not _TRACE_ID.fullmatch(text):
        raise _Problem("A trace id has up to 32 hex digits; its first digits are enough.")
    return text.lower()


def _time(text: str, now_ns: int) -> int:
    """Read ``24h`` as so long ago, else a date or time; without a zone it is UTC."""
    try:
        ago = duration_of(text)
        if ago is not None:
            return now_ns - int(ago.total_seconds() * 1e9)
        moment = datetime.fromisoformat(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _Problem("Write 24h or 7d for so long ago, or a time such as 2026-05-01T10:00 (UTC).") from None
    return int(seconds * 1e9)


async def values_of(index: AnswerIndex, scope: TrafficScope, *dimensions: str) -> Mapping[str, Sequence[str]]:
    """Return what a form offers of dimensions: the most frequent values of each."""
    return {name: tuple(await index.values(name, scope, limit=_MOST_VALUES)) for name in dimensions}
