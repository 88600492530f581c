"""Where answers come from as small numbers, bounded against senders who invent names."""

from __future__ import annotations

from typing import Final

from ragtrace.answers.index._scope import clean
from ragtrace.answers.summary import AnswerSummary
from ragtrace.sql import Rows, Statements

OTHERS: Final = "(others)"
"""In place of all names of a kind beyond the bound."""
MOST_NAMES: Final = 1_000
"""Of a kind. Names that no answer has any more make room."""
MOST_STREAMS: Final = 5_000

_NAMES: Final = ("tenant", "service", "model", "prompt_version", "service_version")
_KEY: Final = ", ".join(_NAMES)
FIND_STREAM: Final = f"SELECT id FROM answer_stream WHERE {' AND '.join(f'{name} = ?' for name in _NAMES)}"


def names_of(summary: AnswerSummary) -> tuple[str, ...]:
    """Return the names of where an answer comes from, its tenant first."""
    given = (summary.key.tenant, summary.service, summary.model)
    return tuple(clean(text) for text in (*given, summary.prompt_version, summary.service_version))


def stream_of(db: Statements, names: tuple[str, ...], known: Rows) -> tuple[int, str]:
    """Return the number of where an answer comes from, which may be new, and the tenant under which it is.

    ``known`` has what `FIND_STREAM` found.
    """
    found = known.fetchone()
    if found is not None:
        return int(found[0]), names[0]
    tenant, *others = (_bounded(db, kind, text) for kind, text in zip(_NAMES, names, strict=True))
    (streams,) = db.execute("SELECT count(*) FROM answer_stream").fetchone()
    if streams >= MOST_STREAMS:  # then it is told by its tenant alone, so that none sees another's answers
        others = [OTHERS, OTHERS, OTHERS, ""]
    # a name is set to itself, so that the row is returned though it is known
    ((number,),) = db.execute(
        f"INSERT INTO answer_stream ({_KEY}) VALUES (?, ?, ?, ?, ?)"
        f" ON CONFLICT ({_KEY}) DO UPDATE SET tenant = excluded.tenant RETURNING id",
        (tenant, *others),
    ).fetchall()
    return int(number), tenant


def tenant_in(db: Statements, tenant: str) -> str:
    """Return the tenant under which a tenant's answers are, if there are any."""
    return _bounded(db, "tenant", clean(tenant))


def _bounded(db: Statements, kind: str, text: str) -> str:
    if not text or db.execute(f"SELECT 1 FROM answer_stream WHERE {kind} = ? LIMIT 1", (text,)).fetchone():
        return text
    (names,) = db.execute(
        f"SELECT count(DISTINCT {kind}) FROM answer_stream WHERE {kind} != ?", (OTHERS,)
    ).fetchone()
    return text if names < MOST_NAMES else OTHERS
