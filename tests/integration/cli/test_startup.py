"""What the program imports before a command runs: nothing that only a run needs. No time is measured here:
`tests/benchmarks/ratios/startup.py` compares the CPU of each command with that of `import click`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from ragtrace.cli.app import COMMANDS
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

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


EVALUATION = (
    {"click", "genai_prices", "grpc", "httpx", "jinja2", "openai", "pydantic", "rich", "sqlite3", "yaml"}
    | {f"ragtrace.{name}" for name in OWN - {"capture", "http", "model", "semconv"}}
    | {"ragtrace.cli", "ragtrace_collector"}
)
"""What judges, reads or stores. Capture has the values, the names of attributes, and the exporters."""

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


ENDS = [pytest.param("--help", 0, id="help"), pytest.param("--no-such-option", 2, id="wrong option")]
OF_LIBRARY = [name for name, (address, _) in COMMANDS.items() if address.startswith("ragtrace.")]
OF_COLLECTOR = [name for name, (address, _) in COMMANDS.items() if address.startswith("ragtrace_collector.")]


def test_every_command_is_the_librarys_or_the_collectors() -> None:
    assert sorted((*OF_LIBRARY, *OF_COLLECTOR)) == sorted(COMMANDS)


@pytest.mark.parametrize(("argument", "exit_code"), ENDS)
@pytest.mark.parametrize("command", OF_LIBRARY)
def test_a_command_of_the_library_imports_nothing_that_only_a_run_needs(
    command: str, argument: str, exit_code: int
) -> None:
    modules = imported_by(command, argument, exit_code=exit_code)
    assert_light(modules, guesses=exit_code != 0)
    assert not modules & PACKAGES
    assert not {name for name in modules if name.startswith("ragtrace_collector")}


@pytest.mark.parametrize(("argument", "exit_code"), ENDS)
@pytest.mark.parametrize("command", OF_COLLECTOR)
def test_a_command_of_the_collector_imports_nothing_that_only_a_run_needs(
    command: str, argument: str, exit_code: int
) -> None:
    assert_light(imported_by(command, argument, exit_code=exit_code), guesses=exit_code != 0)


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_program_alone_imports_no_command(argument: str) -> None:
    modules = imported_by(argument, exit_code=0)
    assert_light(modules)
    commands = {address.partition(":")[0] for address, _ in COMMANDS.values()}
    assert not modules & commands
    assert not {name for name in modules if name.startswith("ragtrace_collector.")}


def test_a_mistyped_command_imports_no_command() -> None:
    modules = imported_by("evalute", exit_code=2)
    assert_light(modules, guesses=True)
    assert not modules & {address.partition(":")[0] for address, _ in COMMANDS.values()}


@pytest.mark.parametrize(
    "statement",
    [
        "import ragtrace",
        "import ragtrace; ragtrace.instrument(endpoint='http://127.0.0.1:1', protocol='http/protobuf')",
    ],
    ids=["import", "instrument"],
)
def test_an_application_imports_nothing_that_evaluates(statement: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys; print(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    modules = set(done.stdout.splitlines())
    assert "ragtrace" in modules
    assert not modules & EVALUATION
