"""A filter as conditions on rows of the index."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ragtrace.answers.port import AnswerFilter, TrafficScope
from ragtrace.errors import InputError
from ragtrace.model import VerdictLabel

_MOST_CHARS: Final = 200
LATEST_NS: Final = 2**63 - 1


class Condition(NamedTuple):
    """A condition in SQL with a value for each of its placeholders in order."""

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


def equal(**wanted: str | None) -> Condition:
    """Return the condition that columns of ``answer_row`` have these values; ``None`` is any."""
    given = {name: clean(text) for name, text in wanted.items() if text is not None}
    return Condition().and_(*(Condition(f"answer_row.{name} = ?", (text,)) for name, text in given.items()))


def in_scope(scope: TrafficScope) -> Condition:
    """Return the condition to be a valid row of a scope."""
    since_ns = max(scope.since_ns or 0, 0)
    until_ns = LATEST_NS if scope.until_ns is None else min(scope.until_ns - 1, LATEST_NS)
    return Condition("is_valid = 1 AND time_ns >= ? AND time_ns <= ?", (since_ns, until_ns)).and_(
        equal(
            tenant=scope.tenant,
            service=scope.service,
            model=scope.model,
            prompt_version=scope.prompt_version,
        )
    )


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
_FEEDBACK: Final = {
    "any": "feedback != ''",
    "none": "feedback = ''",
    "up": "feedback != '' AND feedback = 'up'",
    "down": "feedback != '' AND feedback = 'down'",
}
"""With the words of the index's own condition."""


def metric_of(chosen: AnswerFilter) -> str:
    """Return the metric that score and label are about."""
    return clean(chosen.metric or "faithfulness")


def meeting(chosen: AnswerFilter) -> Condition:
    """Return the condition to be a valid row that meets a filter.

    Raises:
        InputError: the beginning of a trace id is not hexadecimal.
    """
    label = chosen.label if chosen.metric is None else None
    named = equal(blame=chosen.blame, judge=chosen.judge, session=chosen.session, label=label)
    return in_scope(chosen.scope).and_(
        named,
        Condition("session != ''" if chosen.session is not None else ""),
        Condition(_VERDICTS[chosen.verdict] if chosen.verdict is not None else ""),
        Condition(_FEEDBACK[chosen.feedback] if chosen.feedback else ""),
        _of_trace(chosen.trace_id) if chosen.trace_id else Condition(),
        _of_score(chosen),
    )


def _of_score(chosen: AnswerFilter) -> Condition:
    """Return the condition on a score that a filter sets, if it sets any."""
    wanted = {
        "label = ?": chosen.label if chosen.metric is not None else None,
        "score >= ?": chosen.min_score,
        "score <= ?": chosen.max_score,
    }
    asked = [Condition(sql, (value,)) for sql, value in wanted.items() if value is not None]
    if not asked:
        return Condition()
    found = Condition("answer = answer_row.id AND metric = ?", (metric_of(chosen),)).and_(*asked)
    return Condition(f"EXISTS (SELECT 1 FROM answer_score WHERE {found.sql})", found.values)


def _of_trace(prefix: str) -> Condition:
    begin = prefix.lower()[:_TRACE_DIGITS]
    if not re.fullmatch("[0-9a-f]+", begin):
        raise InputError("a trace id has hexadecimal digits only: correct it, or filter by something else")
    return Condition("trace_id >= ? AND trace_id < ?", (begin, f"{begin}g"))
