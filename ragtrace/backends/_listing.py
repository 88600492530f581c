"""Readers of back ends that can search, but cannot list all traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

from ragtrace.errors import ReadError
from ragtrace.traces.trace import Trace


class SearchOnlyReader:
    """Base class of these readers."""

    back_end: ClassVar[str]

    async def traces(self) -> AsyncIterator[Trace]:
        """Raise an error, because the back end cannot list every trace.

        Raises:
            ReadError: always.
        """
        raise ReadError(
            f"{self.back_end} cannot list every trace: search a time range, or name the trace ids"
        )
        yield  # makes this an async generator, as the port requires
