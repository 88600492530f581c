"""The program as people start it: in this process, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO, Any

from click.testing import CliRunner, Result

from ragtrace.cli.app import cli

COMMAND = (sys.executable, "-m", "ragtrace.cli")


def run(*args: str, stdin: str | bytes | None = None, columns: int = 80) -> Result:
    """Run the program here; an error that is not its own comes out."""
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, args, input=stdin, prog_name="ragtrace")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def json_lines(output: str) -> list[dict[str, Any]]:
    """Parse output that must be JSON lines and nothing else."""
    return [json.loads(line) for line in output.splitlines()]


def run_quietly(args: tuple[str, ...]) -> None:
    """Run the program in a process that was made for it, and say nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    cli(args)


def start(*args: str, stdin: int | IO[bytes] | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start the program in a process of its own, without an environment that could lead it astray."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENAI_"))}
    return subprocess.Popen(
        [*COMMAND, *args], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
