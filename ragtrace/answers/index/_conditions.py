"""A filter as conditions on rows."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from ragtrace.answers.index._rows import (
    FEEDBACKS,
    LABELS,
    SCORES,
    metric_in,
    packed_session,
    session_hash,
    trace_numbers,
)
from ragtrace.answers.index._scope import listed, streams_in
from ragtrace.answers.index._words import Kind, find_word
from ragtrace.answers.port import AnswerFilter
from ragtrace.errors import InputError
from ragtrace.model import VerdictLabel

_FIRST: Final = "faithfulness"
_TRACE_DIGITS: Final = 32
_VERDICT_COLUMNS: Final = {
    VerdictLabel.SUPPORTED: "supported > 0",
    VerdictLabel.CONTRADICTED: "contradicted > 0",
    VerdictLabel.UNSUPPORTED: "unsupported > 0",
    VerdictLabel.UNJUDGED: "(unjudged > 0 OR unjudged_chunks > 0)",
    VerdictLabel.RELEVANT: "relevant > 0",
    VerdictLabel.PARTLY_RELEVANT: "partly_relevant > 0",
    VerdictLabel.IRRELEVANT: "irrelevant > 0",
}
_SUM_COLUMNS: Final = ("passed", "failed", "error", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCondition:
    """A condition in SQL."""

    sql: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What rows must meet."""

    since_ns: int
    until_ns: int
    streams: list[int] | None
    metric: int
    """The one that score and label are about, or -1 if no answer has it."""
    metric_label: int | None = None
    low: int | None = None
    """The lowest score, in millionths."""
    high: int | None = None
    row: tuple[SqlCondition, ...] = ()
    narrow: tuple[SqlCondition, ...] = ()
    """Those that an index finds directly; ``row`` has them too."""
    sums: tuple[SqlCondition, ...] = ()
    """On hours in ``answer_sums``: others have no such answer."""
    blame: int | None = None
    """Its word: hours without it have no such answer."""

    @property
    def is_about_metric(self) -> bool:
        """Whether the outcome of a metric decides."""
        return not (self.metric_label is None and self.low is None and self.high is None)

    def keeps(self, packed: bytes) -> bool:
        """Return whether the metric's outcome in a row meets the filter."""
        if not self.is_about_metric:
            return True
        found = metric_in(packed, self.metric)
        if found is None or self.metric_label not in (None, found.label):
            return False
        if self.low is None and self.high is None:
            return True
        score = found.score
        return (
            score is not None
            and (self.low is None or score >= self.low)
            and (self.high is None or score <= self.high)
        )

    def all_of_row(self) -> SqlCondition:
        """Return all conditions on a row but those of time, with the scope's."""
        streams, values = listed(self.streams)
        sql = " AND ".join(["is_valid = 1", streams, *(condition.sql for condition in self.row)])
        return SqlCondition(sql=sql, values=(*values, *(v for each in self.row for v in each.values)))


def conditions_of(db: sqlite3.Connection, chosen: AnswerFilter) -> Conditions:
    """Return a filter's conditions.

    Raises:
        InputError: the beginning of a trace id is not hexadecimal.
    """
    scope = chosen.scope
    label = None if chosen.label is None else LABELS.index(chosen.label)
    of_answer = label if chosen.metric is None else None
    named = find_word(db, Kind.METRIC, chosen.metric or _FIRST)
    row, narrow, sums = [], [], []
    if of_answer is not None:
        row.append(SqlCondition(sql="answer_row.label = ?", values=(of_answer,)))
        sums.append(SqlCondition(sql=f"{_SUM_COLUMNS[of_answer]} > 0"))
    if chosen.verdict is not None:
        column = _VERDICT_COLUMNS[chosen.verdict]
        row.append(SqlCondition(sql=column))
        sums.append(SqlCondition(sql=column))
    if chosen.feedback:
        row.append(_of_feedback(chosen.feedback))
        narrow += [row[-1]] if chosen.feedback != "none" else []
    if chosen.session is not None:
        row.append(_of_session(chosen.session))
        narrow.append(row[-1])
    if chosen.trace_id:
        row.append(_of_trace(chosen.trace_id))
        narrow += [row[-1]] if len(chosen.trace_id) == _TRACE_DIGITS else []
    blame = None
    if chosen.blame is not None:
        blame = find_word(db, Kind.BLAME, chosen.blame)
        row.append(SqlCondition(sql="coalesce(blame, 0) = ?", values=(-1 if blame is None else blame,)))
    if chosen.judge is not None:
        judge = find_word(db, Kind.JUDGE, chosen.judge)
        row.append(SqlCondition(sql="coalesce(judge, 0) = ?", values=(-1 if judge is None else judge,)))
    return Conditions(
        since_ns=-(2**63) if scope.since_ns is None else scope.since_ns,
        until_ns=2**63 - 1 if scope.until_ns is None else min(scope.until_ns, 2**63 - 1),
        streams=streams_in(db, scope),
        metric=-1 if named is None else named,
        metric_label=label if chosen.metric is not None else None,
        low=None if chosen.min_score is None else round(chosen.min_score * SCORES),
        high=None if chosen.max_score is None else round(chosen.max_score * SCORES),
        row=tuple(row),
        narrow=tuple(narrow),
        sums=tuple(sums),
        blame=blame or None,
    )


def _of_feedback(feedback: str) -> SqlCondition:
    if feedback == "any":
        return SqlCondition(sql="feedback > 0")
    number = FEEDBACKS.index(feedback) if feedback in FEEDBACKS else 0
    above = " AND feedback > 0" if number else ""  # the words of the index's own condition
    return SqlCondition(sql=f"feedback = {number}{above}")


def _of_session(session: str) -> SqlCondition:
    return SqlCondition(
        sql="session_hash = ? AND session = ?", values=(session_hash(session), packed_session(session))
    )


def _of_trace(prefix: str) -> SqlCondition:
    """Return the condition that a trace's id begins so. Halves of ids are kept as signed numbers."""
    try:
        low, high = (
            trace_numbers(prefix.lower().ljust(_TRACE_DIGITS, digit)[:_TRACE_DIGITS]) for digit in "0f"
        )
    except ValueError as exc:
        raise InputError(
            "a trace id has hexadecimal digits only: correct it, or filter by something else"
        ) from exc
    if low == high:
        return SqlCondition(
            sql="trace_low = ? AND is_alone IN (0, 1) AND trace_high = ?", values=(low[1], low[0])
        )
    if low[0] == high[0]:
        return SqlCondition(
            sql="trace_high = ? AND trace_low BETWEEN ? AND ?", values=(low[0], low[1], high[1])
        )
    return SqlCondition(sql="trace_high BETWEEN ? AND ?", values=(low[0], high[0]))
