"""Connections to PostgreSQL that fail where a test wants them to. They run inside the collector's process."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg

from ragtrace_collector.store import postgres
from ragtrace_collector.store.postgres import PostgresDb
from tests.faults.disk import Blow, Counting

_GONE_S: Final = 8
"""How long after its last heartbeat a collector is missed: a test does not wait for half a minute."""
_FULL: Final = "DO $$ BEGIN RAISE EXCEPTION 'could not extend a file' USING ERRCODE = 'disk_full'; END $$"


def fail_on_the_wire(folder: Path, blow: Blow) -> None:
    """From now on, this process's connections count their statements and commits, and take the blow."""
    counting, unharmed = Counting(folder, blow), PostgresDb.execute

    def execute(db: PostgresDb, statement: str, values: Sequence[Any] = (), /) -> Any:
        if counting.counts_to_the_blow():
            if blow.kind == "full":
                return unharmed(db, _FULL)
            with socket.socket(fileno=os.dup(db.connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)
        return unharmed(db, statement, values)

    class Connection(psycopg.Connection[Any]):
        def commit(self) -> None:
            strikes = counting.counts_to_the_blow()
            super().commit()
            if strikes:  # and nobody hears that it was
                self.close()
                raise psycopg.OperationalError("the connection was cut")

    psycopg.connect = Connection.connect
    PostgresDb.execute = execute  # type: ignore[method-assign]
    postgres.PostgresServer = partial(postgres.PostgresServer, gone_s=_GONE_S)  # type: ignore[assignment, misc]
