"""The program ``ragtrace``: finds a command, and turns an error into one line and an exit code.

Exit codes: 0 done; 1 failed, or something that was asked for failed; 2 wrong usage, settings or input;
130 interrupted.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final, NoReturn

import click

from ragtrace import __version__
from ragtrace.cli import INTERRUPTED
from ragtrace.cli.render import printable
from ragtrace.errors import ConfigError, InputError, RagtraceError
from ragtrace.process import look_for_cycles_seldom

COMMANDS: Final = {
    "demo": ("ragtrace.cli.demo:demo", "See the whole pipeline on human-labeled traffic."),
    "evaluate": ("ragtrace.cli.evaluate:evaluate", "Judge the records of a JSON-lines file."),
    "explain": ("ragtrace.cli.explain:explain", "Show what is read from a trace, from where, and why."),
    "backfill": ("ragtrace.cli.backfill:backfill", "Judge the answers in stored traces."),
    "rejudge": ("ragtrace.cli.evaluate:rejudge", "Score kept verdicts again, or ask another judge."),
    "compare": ("ragtrace.cli.report:compare", "Say whether one version answers better than another."),
    "report": ("ragtrace.cli.report:report", "Measure production quality from judged answers."),
    "calibrate": ("ragtrace.cli.calibrate:calibrate", "Measure a judge against human labels."),
    "doctor": ("ragtrace.cli.doctor:doctor", "Check judge, endpoints, store, and an application's spans."),
    "collector": (
        "ragtrace_collector.cli.collector:collector",
        "Receive OTLP, judge the answers in it, write the verdicts back.",
    ),
    "ui": (
        "ragtrace_collector.cli.ui:ui",
        "Show judged answers on a page: trends, lists, claims and evidence.",
    ),
    "tail": ("ragtrace_collector.cli.tail:tail", "Follow verdicts in the terminal."),
    "export-records": (
        "ragtrace_collector.cli.export_records:export_records",
        "Write answers of production as records: failed, disputed, reviewed, a sample.",
    ),
    "why": ("ragtrace_collector.cli.why:why", "Say why an answer has a score, or has none."),
    "ledger": (
        "ragtrace_collector.cli.ledger:ledger",
        "Count the answers a collector saw, what judging has cost, what was rejected.",
    ),
    "drift": (
        "ragtrace_collector.cli.drift:drift",
        "Check by labeled answers whether the judge has changed.",
    ),
}
"""Where each command is, which is loaded only to run, and its line in ``ragtrace --help``."""
_EXTRAS: Final = {
    **dict.fromkeys(("yaml", "starlette", "uvicorn", "httptools", "prometheus_client"), "collector"),
    "numpy": "calibrate",
    "confluent_kafka": "kafka",
}
"""Which extra of the distribution brings a module that a command imports when it runs."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def run() -> NoReturn:
    """Run the program and exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a lone surrogate in an answer must not stop a run
    look_for_cycles_seldom()
    try:
        cli(prog_name="ragtrace")
    except OSError as exc:
        if exc.errno not in _FULL:
            raise
        click.echo(f"Error: the output cannot be written: {exc.strerror}", err=True)
        sys.exit(1)
    raise AssertionError("click exits")


class _Failed(click.ClickException):
    """An error of ours: click prints ``Error: …`` and exits with 1."""


class _Unusable(_Failed):
    """A setting or an input is wrong."""

    exit_code = 2


class _Commands(click.Group):
    """Commands that are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(module), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            from difflib import get_close_matches

            if near := get_close_matches(args[0], COMMANDS, n=1):
                ctx.fail(f"there is no command {args[0]!r}: did you mean `{near[0]}`?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, told) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        with _errors_told(ctx):
            return super().invoke(ctx)


@contextmanager
def _errors_told(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except RagtraceError as exc:
        raise _failure(exc) from exc
    except ExceptionGroup as group:
        if group.split(RagtraceError)[1]:
            raise  # a bug is not hidden behind a message
        first: Exception = group
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        raise _failure(first) from group
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        from ragtrace.extras import install_command

        command = install_command(_EXTRAS[missing])
        raise _Unusable(f"this command needs {missing}, which is not installed: {command}") from exc
    except click.ClickException as exc:
        exc.message = printable(exc.message)  # type: ignore[misc]  # it may quote a file's name
        raise
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        ctx.exit(INTERRUPTED)


def _failure(error: Exception) -> _Failed:
    kind = _Unusable if isinstance(error, ConfigError | InputError) else _Failed
    return kind(printable(str(error)))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ragtrace", message="%(prog)s %(version)s")
def cli() -> None:
    """Find out which RAG answers are made up, in the trace you already look at.

    \b
    Examples:
      ragtrace demo
      ragtrace evaluate records.jsonl
      ragtrace collector --config collector.yaml
    """
