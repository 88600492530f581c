"""The message if a search finds nothing."""

from __future__ import annotations

from typing import Final

from ragtrace.backfill import BackfillReport
from ragtrace.cli.render import one_line, talk, utc
from ragtrace.errors import ReadError
from ragtrace.ports import TraceQuery, TraceReader

_MOST_NAMED: Final = 10


async def report_not_found(reader: TraceReader, query: TraceQuery | None, report: BackfillReport) -> None:
    """Say on stderr that a search found nothing, if so: where it looked, and whether its service is known."""
    if query is not None and not (report.traces or report.not_found or report.unread or report.is_stopped):
        talk(await _message(reader, query))


async def _message(reader: TraceReader, query: TraceQuery) -> str:
    found_none = f"no trace was found from {utc(query.since_ns)} to {utc(query.until_ns)}"
    names = await _services(reader) if query.service is not None else ()
    if not names or query.service in names:
        return f"{found_none}: --since searches further back, --min-age 0s includes the newest traces"
    others = ", ".join(map(one_line, sorted(names)[:_MOST_NAMED]))
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f"{found_none}: there is no service {query.service!r}, but {others}{more}"


async def _services(reader: TraceReader) -> tuple[str, ...]:
    """Return the services that the back end knows, if it tells them."""
    ask = getattr(reader, "services", None)
    try:
        return tuple(await ask()) if ask is not None else ()
    except ReadError:
        return ()
