"""The program: help, usage, and what becomes of errors."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from ragtrace.cli.app import COMMANDS, cli
from ragtrace.traces.otlp import encode_json
from tests.backends.process import eventually
from tests.integration.cli.program import COMMAND, run, start
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

NAMES = cli.list_commands(click.Context(cli))


def test_help_has_an_example_and_fits_80_columns_and_every_command_speaks_json() -> None:
    for command in ("", *NAMES):
        result = run(*command.split(), "--help")
        assert result.exit_code == 0, command
        assert f"  ragtrace {command}".rstrip() in result.output.partition("Examples:\n")[2], command
        assert max(map(len, result.output.splitlines())) <= 80, command
        assert "--json" in result.output or command in ("", "export-records"), command  # nothing but JSON


def test_a_command_that_is_mistyped_is_guessed() -> None:
    result = run("evalute")
    assert result.exit_code == 2
    assert "did you mean `evaluate`?" in result.stderr


DRY = ("backfill", "--from", "otlp-file:x", "--dry-run")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["ledger", "--jsn"], "--jsn"),
        (["explain", "missing.jsonl"], "neither a file nor a trace id"),
        (["evaluate", "missing.jsonl"], "'missing.jsonl' is not a file"),
        (["backfill", "--from", "otlp-file:x"], "--to"),
        (["backfill", "--from", "ftp://x", "--dry-run", "--trace-id", "1"], "not an address"),
        ([*DRY, "--metrics", "vibes"], "there is no metric 'vibes'"),
        ([*DRY, "--judge", "oracle"], "there is no judge 'oracle'"),
        ([*DRY, "--base-url", "http://localhost/v1"], "--base-url needs --judge"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_exit_code_2_and_one_message_on_stderr(args: list[str], says: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_extra_is_named_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.yaml").write_text("{}")
    monkeypatch.setitem(sys.modules, "yaml", None)
    result = run("drift", "status", "--config", str(tmp_path / "c.yaml"))
    assert result.exit_code == 2
    assert re.search(r"this command needs yaml.*pip install .*\[collector\]", result.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full: Linux has one")
@pytest.mark.slow
def test_a_full_disk_is_said_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *["collector", "--print-config"]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"


@pytest.mark.slow
def test_ctrl_c_is_answered_while_the_program_loads(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from ragtrace.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


DEPENDENCIES = {
    *("aiohttp", "anyio", "asyncio", "genai_prices", "google", "grpc", "httpx", "httpx2", "jinja2", "numpy"),
    *("openai", "opentelemetry", "prometheus_client", "pyarrow", "pydantic", "pydantic_core", "rich"),
    *("starlette", "uvicorn", "yaml"),
}
STANDARD = {"hashlib", "multiprocessing", "sqlite3", "ssl", "subprocess", "webbrowser"}
"""Of Python's own modules, those that take long to load."""
PACKAGES = {"email", "importlib.metadata"}
"""They find installed packages: for the commands of packages, and for nothing else."""
OWN = {
    *("answers", "backends", "backfill", "budget", "calibration", "capture", "compat", "conversations"),
    *("drift", "http", "judge", "metrics", "model", "pipeline", "plugins", "ports", "quality", "records"),
    *("reports", "reviews", "sampling", "scoring", "semconv", "sql", "traces", "transcripts"),
}
OF_THE_COLLECTOR = {
    *("assemble", "config", "deliver", "drift", "evaluate", "judge", "ledger", "operations"),
    *("receive", "sample", "sampling", "service", "sessions", "stage", "store", "telemetry", "ui", "web"),
}
NOT_IMPORTED = (
    DEPENDENCIES
    | STANDARD
    | {f"ragtrace.{name}" for name in OWN}
    | {f"ragtrace_collector.{name}" for name in OF_THE_COLLECTOR}
)


PROGRAM = """
import sys
from ragtrace.cli import main
try:
    main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def imported_by(*args: str, exit_code: int) -> set[str]:
    """Run the program; return the modules that it held at its end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == exit_code, done.stderr
    modules = set(done.stderr.splitlines())
    assert "click" in modules
    return modules


def assert_light(modules: set[str], *, guesses: bool = False) -> None:
    """Refuse what only a run needs. What was typed wrong may be guessed."""
    assert not modules & (NOT_IMPORTED if guesses else NOT_IMPORTED | {"difflib"})


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_nothing_that_only_a_run_needs(command: str) -> None:
    modules = imported_by(command, "--help", exit_code=0)
    assert_light(modules)
    if COMMANDS[command][0].startswith("ragtrace."):
        assert not modules & PACKAGES
        assert not {name for name in modules if name.startswith("ragtrace_collector")}


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_program_alone_imports_no_command(argument: str) -> None:
    modules = imported_by(argument, exit_code=0)
    assert_light(modules)
    commands = {address.partition(":")[0] for address, _ in COMMANDS.values()}
    assert not modules & commands
    assert not {name for name in modules if name.startswith("ragtrace_collector.")}


INT, TERM = signal.SIGINT, signal.SIGTERM
RECORD = json.dumps({"question": "Refunds?", "contexts": ["Refunds take 14 days."], "answer": "14 days."})
READERS = {
    "evaluate": ("evaluate", "-", "--judge", "lexical"),
    "backfill": ("backfill", "--from", "otlp-file:-", "--judge", "lexical", "--to"),
    "explain": ("explain", "--from", "otlp-file:-", trace_id_of(7)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "signals",
    [(INT,), *(pytest.param(each, marks=pytest.mark.night) for each in ((INT, INT), (TERM,), (TERM, TERM)))],
    ids=str,
)
@pytest.mark.parametrize("reader", READERS)
def test_a_signal_ends_what_waits_for_standard_input(
    reader: str, signals: Sequence[signal.Signals], tmp_path: Path
) -> None:
    to = (f"otlp-file:{tmp_path / 'out.jsonl'}",) if reader == "backfill" else ()
    process = start(*READERS[reader], *to, stdin=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        given = RECORD.encode() if reader == "evaluate" else encode_json(rag_trace(0)).encode()
        process.stdin.write(given + b"\n")
        process.stdin.flush()
        pipe = process.stdin.fileno()
        eventually(lambda: not unread(pipe) or process.poll() is not None, what="that it waits for more")
        for number in signals:
            process.send_signal(number)
        try:
            process.wait(PATIENCE_S)  # its input stays open
        finally:
            process.kill()
        assert process.stderr is not None
        err = process.stderr.read()
    assert process.returncode in {130, -TERM, 0, 1}
    assert b"Traceback" not in err, err.decode()
    assert b"Fatal" not in err, err.decode()


def unread(pipe: int) -> int:
    """Return how many bytes wait in a pipe."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(waiting)
