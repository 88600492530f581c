"""Back ends that can be searched, and cannot list all they hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

from ragtrace.errors import ReadError
from ragtrace.traces.trace import Trace


class SearchOnlyReader:
    """What their readers have in common."""

    back_end: ClassVar[str]

    async def traces(self) -> AsyncIterator[Trace]:
        """Refuse: there is no way to list every trace.

        Raises:
            ReadError: always.
        """
        raise ReadError(
            f"{self.back_end} cannot list every trace: search a stretch of time, or name the trace ids"
        )
        yield  # makes this an async generator, as the port wants
