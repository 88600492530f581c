"""The program: help, usage, and what becomes of errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from ragtrace.cli.app import cli
from ragtrace.cli.options import needs_extra
from ragtrace.errors import ConfigError
from tests.integration.cli.program import COMMAND, run

COMMANDS = cli.list_commands(click.Context(cli))


def test_help_names_every_command() -> None:
    output = run("--help").output
    assert COMMANDS == [
        "demo",
        "evaluate",
        "explain",
        "backfill",
        "rejudge",
        "compare",
        "report",
        "calibrate",
        "doctor",
        "collector",
        "ui",
        "tail",
        "export-records",
        "why",
        "ledger",
        "drift",
    ]
    assert all(f"\n  {name} " in output for name in COMMANDS)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=lambda name: " ".join(name))
def test_help_has_an_example_and_fits_80_columns(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    example = " ".join(("  ragtrace", *command))
    assert "Examples:\n" in result.output
    assert example in result.output.partition("Examples:\n")[2]
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "export-records"])
def test_every_command_speaks_json(name: str) -> None:
    """`export-records` writes nothing but JSON lines."""
    assert "--json" in run(name, "--help").output


def test_a_command_that_is_mistyped_is_guessed() -> None:
    result = run("evalute")
    assert result.exit_code == 2
    assert "did you mean `evaluate`?" in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(["nonsense"], "No such command 'nonsense'", id="unknown command"),
        pytest.param(["ledger", "--jsn"], "--jsn", id="unknown option"),
        pytest.param(["explain"], "FILE|TRACE_ID", id="missing argument"),
        pytest.param(["explain", "missing.jsonl"], "neither a file nor a trace id", id="missing file"),
        pytest.param(["explain", "x.jsonl", "--from", "store:x.db"], "not a trace id", id="file with --from"),
        pytest.param(["backfill", "--to", "otlp-file:x"], "--from", id="backfill from nowhere"),
        pytest.param(["backfill", "--from", "otlp-file:x"], "--to", id="backfill to nowhere"),
        pytest.param(
            ["backfill", "--from", "ftp://x", "--dry-run", "--trace-id", "1"],
            "not an address",
            id="unknown source",
        ),
        pytest.param(
            ["backfill", "--from", "otlp-file:x", "--dry-run", "--rate", "2"], "--rate", id="ratio above 1"
        ),
        pytest.param(
            ["backfill", "--from", "otlp-file:x", "--dry-run", "--metrics", "vibes"],
            "there is no metric 'vibes'",
            id="unknown metric",
        ),
        pytest.param(
            ["backfill", "--from", "otlp-file:x", "--dry-run", "--metrics", ", ,"],
            "--metrics names none",
            id="no metric",
        ),
        pytest.param(
            ["backfill", "--from", "otlp-file:x", "--dry-run", "--judge", "oracle"],
            "there is no judge 'oracle'",
            id="unknown judge",
        ),
        pytest.param(
            ["backfill", "--from", "otlp-file:x", "--dry-run", "--base-url", "http://localhost/v1"],
            "--base-url needs --judge",
            id="endpoint without a model",
        ),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_message_on_stderr(args: list[str], says: str) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_extra_is_named_with_the_command_that_brings_it() -> None:
    missing = "this command needs uvicorn.*pip install .*\\[collector\\]"
    with pytest.raises(ConfigError, match=missing), needs_extra("collector"):
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn.config")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full: Linux has one")
@pytest.mark.slow
def test_a_full_disk_is_said_in_one_line() -> None:
    args = ["collector", "--print-config"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"


@pytest.mark.slow
def test_ctrl_c_is_answered_while_the_program_loads(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from ragtrace.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")
