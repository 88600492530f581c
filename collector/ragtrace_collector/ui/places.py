"""Where the pages read: a collector's store, or an index of their own that a search fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from ragtrace.answer_sources import open_source
from ragtrace.answers.index.own_file import open_index
from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.answers.opened import AnswerSource
from ragtrace_collector.ui.searching import AnswerSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """An index, and where the content of its answers is."""

    index: AnswerIndex
    source: AnswerSource
    notices: Callable[[], tuple[str, ...]] = tuple
    """Sentences about what the index does not have (yet)."""


@asynccontextmanager
async def open_searched_place(search: AnswerSearch) -> AsyncIterator[AnswerPlace]:
    """Open an index in memory that a search fills in the background.

    Raises:
        ConfigError: the address cannot be used.
    """
    source = open_source(search.address, access=search.access, rules=search.rules)
    async with aclosing(source), aclosing(open_index()) as index:
        filling = asyncio.create_task(search.run(index), name="search")
        try:
            yield AnswerPlace(index=index, source=source, notices=search.notices)
        finally:
            filling.cancel()
            await asyncio.wait([filling])
