"""The real PostgreSQL as a process, with a database for each test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from tests.backends.binary import required
from tests.backends.process import eventually, free_ports
from tests.patience import PATIENCE_S


@dataclass(slots=True)
class Postgres:
    """A server that runs. Its methods block."""

    port: int
    folder: Path
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def address(self) -> str:
        """Its address, without a database."""
        return f"postgresql://ragtrace@127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        """Start it over its folder, and wait until it takes connections."""
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "max_connections": 200,
        }
        command = program("postgres", "-D", self.folder / "data", "-p", self.port)
        command += [f"--{name}={value}" for name, value in options.items()]
        with self.log.open("ab") as output:
            process = self._process = subprocess.Popen(command, stdout=output, stderr=output)

        def is_ready() -> bool:
            assert process.poll() is None, self.log.read_text()[-4_000:]
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                return False
            return True

        eventually(is_ready, what="the database")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it without waiting for its clients; with SIGQUIT, so that it must recover as after a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all its processes where they are until the block ends, as a machine that hangs."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        processes = [self._process.pid, *map(int, children.split())]
        try:
            for each in processes:
                os.kill(each, signal.SIGSTOP)
            yield
        finally:
            for each in processes:
                os.kill(each, signal.SIGCONT)

    @contextmanager
    def standby(self) -> Iterator[Postgres]:
        """Run another server, which follows this one and takes no writes, until the block ends."""
        with _in_new_folder() as standby:
            copy = ["-D", standby.folder / "data", "-R", "-c", "fast", "-d", f"{self.address}/postgres"]
            subprocess.run(program("pg_basebackup", *copy), check=True, timeout=PATIENCE_S)
            with standby.running():
                yield standby

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

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
def running_postgres() -> Iterator[Postgres]:
    """Run an empty server until the block ends; skip the test without the program."""
    with _in_new_folder() as server:
        fill = ["-D", server.folder / "data", "-U", "ragtrace", "-A", "trust", "-E", "UTF8", "--no-locale"]
        subprocess.run(program("initdb", *fill), capture_output=True, check=True, timeout=PATIENCE_S)
        with server.running():
            yield server


@contextmanager
def _in_new_folder() -> Iterator[Postgres]:
    (port,) = free_ports(1)
    # Not among pytest's folders: nobody but their user may enter those, and root may run no server.
    folder = Path(tempfile.mkdtemp(prefix="ragtrace-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    try:
        yield Postgres(port, folder)
    finally:
        shutil.rmtree(folder)


def program(name: str, *arguments: object) -> list[str]:
    """Return the command that runs one of the server's programs, as its user; skip the test without it."""
    found = required(_programs(), reason="PostgreSQL is not installed: install the package `postgresql`")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    return [*(as_user if os.geteuid() == 0 else ()), str(found / name), *map(str, arguments)]


def _programs() -> Path:
    """Return the folder of the newest version; Debian has it where no PATH leads."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return (
        Path(on_path).resolve().parent if on_path else found[-1] if found else Path("/usr/lib/postgresql/bin")
    )
