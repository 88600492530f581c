"""A collector process under attack: what it is told to do, and what it says of itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.acceptance.collector_process import CollectorProcess, settings_of
from tests.rag_spans import rag_trace, trace_id_of

__all__ = ["idle_config", "readiness", "send", "stored_traces"]


def idle_config(folder: Path, *, store: Path | None = None, **changes: Any) -> Mapping[str, Any]:
    """Return a configuration by which spans are kept and nothing is done with them for a while."""
    own = {
        "assemble": {"quiet_period": "10m", "deadline": "10m"},
        "judge": {"use": "scripted"},
        "store": {"path": str(store or folder / "store.db")},
        "drain_timeout": "0s",
    }
    return settings_of(folder, **own | changes)


def send(collector: CollectorProcess, numbers: Sequence[int]) -> list[str]:
    """Send answers, each in a request of its own; return the ids of the traces that were acknowledged."""
    sent = {number: collector.send(*rag_trace(number)).status_code for number in numbers}
    return [trace_id_of(number) for number, status in sent.items() if status == 200]


def readiness(collector: CollectorProcess) -> tuple[int, str]:
    """Return the status of ``/readyz`` and the reasons that stand there."""
    answer = collector.page("/readyz")
    return answer.status_code, " ".join(answer.json()["reasons"])


def stored_traces(store: Path) -> set[str]:
    """Return the ids of the traces in a store that nobody uses."""
    with closing(sqlite3.connect(store)) as db:
        return {row[0] for row in db.execute("SELECT DISTINCT trace_id FROM slice")}
