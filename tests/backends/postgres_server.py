"""The real PostgreSQL as a process, with a database for each test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from tests.backends.binary import required
from tests.backends.process import free_ports, running
from tests.patience import PATIENCE_S

__all__ = ["Postgres", "running_postgres"]


@dataclass(slots=True)
class Postgres:
    """A server that runs. Its methods block."""

    address: str
    process: subprocess.Popen[str] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def is_ready(self) -> bool:
        """Say whether it takes connections."""
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def new_database(self) -> str:
        """Create an empty database; return its address."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return f"{self.address}/{name}"

    def copy(self, url: str) -> str:
        """Copy a database as of a moment, though others use it; return the copy's address."""
        copied = self.new_database()
        dump = subprocess.run(["pg_dump", url], capture_output=True, check=True, timeout=PATIENCE_S)
        subprocess.run(
            ["psql", "-q", "-v", "ON_ERROR_STOP=1", copied],
            input=dump.stdout,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=PATIENCE_S,
        )
        return copied

    def execute(self, statement: str, url: str | None = None) -> Sequence[tuple[object, ...]]:
        """Run a statement by hand; return its rows."""
        with psycopg.connect(url or f"{self.address}/postgres", autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running_postgres(folder: Path, *, port: int | None = None) -> Iterator[Postgres]:
    """Run a server over a folder, which it fills if it is new; skip the test without the program."""
    programs = required(_programs(), reason="PostgreSQL is not installed: install the package `postgresql`")
    port = port or free_ports(1)[0]
    as_user = _as_user(folder)
    data = folder / "data"
    if not data.exists():
        command = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "ragtrace",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        subprocess.run([*as_user, *map(str, command)], capture_output=True, check=True, timeout=PATIENCE_S)
    options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "max_connections": 200}
    command = [*as_user, programs / "postgres", "-D", data, "-p", port]
    command += [f"--{name}={value}" for name, value in options.items()]
    server = Postgres(f"postgresql://ragtrace@127.0.0.1:{port}")
    log = folder.with_name(f"{folder.name}.log")
    with running(list(map(str, command)), env={}, ready=server.is_ready, log=log) as process:
        try:
            server.process = process
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # else it waits until its clients have gone
            process.wait(PATIENCE_S)


def _programs() -> Path:
    """Return the folder of the newest version; Debian has it where no PATH leads."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return (
        Path(on_path).resolve().parent if on_path else found[-1] if found else Path("/usr/lib/postgresql/bin")
    )


def _as_user(folder: Path) -> list[str]:
    """Return how to run a program as a user that may run a server: root may not."""
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        return []
    shutil.chown(folder, "postgres")
    for above in folder.parents:  # pytest's folders are its user's alone
        if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
