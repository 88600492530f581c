"""The watch over objectives in a SQLite store. No row has content: numbers, names and ids."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Final

from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary
from ragtrace.model import Label
from ragtrace_collector.store.port import WatchedAnswer

WATCH: Final = """
CREATE TABLE watched_answer (           -- judged, and not counted by the watch yet
    id INTEGER PRIMARY KEY AUTOINCREMENT, summary TEXT NOT NULL);
CREATE TABLE watch_state (name TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
"""
_NAMES: Final = ("service", "model", "prompt_version")


def add(db: sqlite3.Connection, summary: AnswerSummary) -> None:
    """Add a judged answer."""
    db.execute("INSERT INTO watched_answer (summary) VALUES (?)", (_written(summary),))


def oldest(db: sqlite3.Connection, limit: int) -> tuple[WatchedAnswer, ...]:
    """Return the answers that were added first."""
    rows = db.execute("SELECT id, summary FROM watched_answer ORDER BY id LIMIT ?", (limit,)).fetchall()
    return tuple(WatchedAnswer(id=id_, summary=_read(text)) for id_, text in rows)


def states(db: sqlite3.Connection) -> dict[str, str]:
    """Return the states by name."""
    return dict(db.execute("SELECT name, state FROM watch_state").fetchall())


def note(db: sqlite3.Connection, changed: Mapping[str, str | None], *, up_to: int) -> None:
    """Keep states and delete the answers that they count."""
    for name, state in changed.items():
        if state is None:
            db.execute("DELETE FROM watch_state WHERE name = ?", (name,))
        else:
            db.execute("INSERT OR REPLACE INTO watch_state VALUES (?, ?)", (name, state))
    db.execute("DELETE FROM watched_answer WHERE id <= ?", (up_to,))


def _written(summary: AnswerSummary) -> str:
    metrics = [[metric.name, metric.label, metric.score] for metric in summary.metrics]
    told = {
        "key": [*summary.key],
        "judged_ns": summary.judged_ns,
        "probability": summary.probability,
        "label": summary.label,
        "metrics": metrics,
        **{name: getattr(summary, name) for name in _NAMES},
    }
    return json.dumps(told)


def _read(text: str) -> AnswerSummary:
    told = json.loads(text)
    return AnswerSummary(
        key=AnswerKey(*told["key"]),
        carrier_span_id="",
        time_ns=told["judged_ns"],
        judged_ns=told["judged_ns"],
        label=Label(told["label"]),
        probability=told["probability"],
        metrics=tuple(
            MetricSummary(name=name, label=Label(label), score=score)
            for name, label, score in told["metrics"]
        ),
        **{name: told[name] for name in _NAMES},
    )
