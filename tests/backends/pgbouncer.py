"""The real pgbouncer as a process, in transaction mode: each transaction may get another connection."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.backends.binary import required
from tests.backends.process import free_ports, is_listening, running


@contextmanager
def running_pgbouncer(url: str) -> Iterator[str]:
    """Stand before a database until the block ends; yield the address to use instead."""
    program = required(
        Path(shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"),
        reason="pgbouncer is not installed: install the package `pgbouncer`",
    )
    to = conninfo_to_dict(url)
    (port,) = free_ports(1)
    folder = Path(tempfile.mkdtemp(prefix="ragtrace-pgbouncer-"))
    as_user = []
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(folder, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    (folder / "users").write_text(f'"{to["user"]}" ""\n')
    (folder / "pgbouncer.ini").write_text(f"""
[databases]
{to["dbname"]} = host={to["host"]} port={to["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder / "users"}
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
""")
    try:
        command = [*as_user, program, folder / "pgbouncer.ini"]
        with running(command, env={}, ready=lambda: is_listening(port), log=folder / "log"):
            yield f"postgresql://{to['user']}@127.0.0.1:{port}/{to['dbname']}"
    finally:
        shutil.rmtree(folder)
