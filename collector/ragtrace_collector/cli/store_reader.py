"""A reader of the collector's own store, also while the collector runs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ragtrace.errors import CodecError, ReadError
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Trace


class StoreReader:
    """Read the traces that a collector still keeps; nothing is written, and no lock is held for long."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the store has none (any more).

        Behind the id may stand ``@`` and a tenant: one id may be that of several tenants' traces.

        Raises:
            ReadError: the file is no collector's store, or cannot be read.
        """
        wanted, at, tenant = trace_id.partition("@")
        keys = await asyncio.to_thread(self._keys, wanted.lower())
        if at:
            keys = [key for key in keys if key.partition("@")[2] == tenant]
        if len(keys) > 1:
            named = ", ".join(key if "@" in key else f"{key}@" for key in keys)
            raise ReadError(f"several tenants have a trace {wanted}: name one of {named}")
        return await self._read(keys[0]) if keys else None

    async def _read(self, key: str) -> Trace | None:
        payloads = await asyncio.to_thread(self._payloads, key)
        return self._trace(key.partition("@")[0], payloads) if payloads else None

    async def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace in the store.

        Raises:
            ReadError: the file is no collector's store, or cannot be read.
        """
        for key in await asyncio.to_thread(self._keys):
            trace = await self._read(key)
            if trace is not None:  # else it expired in the meantime
                yield trace

    async def aclose(self) -> None:
        """Do nothing: the file is closed after every reading."""

    def _keys(self, trace_id: str = "") -> list[str]:
        """Return the keys of the traces with this id, or of all."""
        found = self._rows(
            "SELECT DISTINCT trace_id FROM slice WHERE ?1 = '' OR trace_id = ?1"
            " OR (trace_id > ?1 || '@' AND trace_id < ?1 || 'A')",
            trace_id,
        )
        return [row[0] for row in found]

    def _payloads(self, key: str) -> list[bytes]:
        found = self._rows("SELECT payload FROM slice WHERE trace_id = ? ORDER BY seq", key)
        return [row[0] for row in found]

    def _rows(self, query: str, *values: str) -> list[tuple[Any]]:
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as db:
                return db.execute(query, values).fetchall()
        except sqlite3.Error as exc:
            raise ReadError(f"{self._path} cannot be read as a collector's store: {exc}") from exc

    def _trace(self, trace_id: str, payloads: list[bytes]) -> Trace:
        try:
            return Trace.of(trace_id, [span for payload in payloads for span in decode(payload)])
        except CodecError as exc:
            raise ReadError(f"{self._path}: the spans of trace {trace_id} are damaged: {exc}") from exc
