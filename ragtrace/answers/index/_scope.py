"""A part of the traffic as conditions in SQL."""

from __future__ import annotations

from typing import Final, NamedTuple

from ragtrace.answers.port import TrafficScope
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
