"""The program ``ragtrace``: finds a command, and turns whatever stops it into a line and an exit code.

Exit codes: 0 done; 1 failed, or something that was asked for failed; 2 wrong usage, settings or input;
130 interrupted.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click

from ragtrace import __version__
from ragtrace.cli.script import INTERRUPTED
from ragtrace.cli.terminal import printable
from ragtrace.errors import ConfigError, InputError, RagtraceError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_COMMANDS = {
    "demo": "See the whole job on human-labelled traffic.",
    "collector": "Receive OTLP, judge the answers in it, write the verdicts back.",
    "token": "Make a token for the collector's receivers and pages.",
    "evaluate": "Judge records of a JSON-lines file.",
    "explain": "Say what is read from a trace, from where, and why.",
    "why": "Say why an answer has a score, or has none.",
    "ledger": "Count the answers a collector saw, by where they stand.",
    "budget": "Show what judging has cost, and what is left.",
    "outbox": "Show what back ends refused, and send it again.",
    "backup": "Copy a collector's store while it runs.",
    "backfill": "Judge the answers in stored traces.",
    "rejudge": "Score kept verdicts again without a call, or compare two judges.",
    "calibrate": "Measure a judge against human labels.",
    "metrics": "List the metrics.",
    "doctor": "Check judge, endpoints and store; see what an application sends.",
}
"""The help line of each command stands here, so that ``--help`` loads none of them."""


def run() -> NoReturn:
    """Run the program and exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a lone surrogate in an answer must not stop a run
    try:
        cli(prog_name="ragtrace")
    except OSError as exc:
        if exc.errno not in _FULL:
            raise
        click.echo(f"Error: the output cannot be written: {exc.strerror}", err=True)
        sys.exit(1)
    raise AssertionError("click exits")


class _Failed(click.ClickException):
    """What the wall makes of an error of ours: click prints ``Error: …`` and exits with 1."""


class _Unusable(_Failed):
    """What it makes of a setting or an input that is wrong."""

    exit_code = 2


class _Commands(click.Group):
    """Commands that are imported when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"ragtrace.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], _COMMANDS, n=1)
        if near and args[0] not in _COMMANDS:
            ctx.fail(f"there is no command {args[0]!r}: did you mean `{near[0]}`?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        with _wall(ctx):
            return super().invoke(ctx)


@contextmanager
def _wall(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except RagtraceError as exc:
        raise _refusal(exc) from exc
    except ExceptionGroup as group:
        ours = [each for each in _leaves(group) if isinstance(each, RagtraceError)]
        if len(ours) < len(_leaves(group)):
            raise  # a bug is not hidden behind a message
        raise _refusal(ours[0]) from group
    except click.ClickException as exc:
        exc.message = printable(exc.message)  # type: ignore[misc]  # it may quote a file's name
        raise
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        ctx.exit(INTERRUPTED)


def _refusal(error: RagtraceError) -> _Failed:
    kind = _Unusable if isinstance(error, ConfigError | InputError) else _Failed
    return kind(printable(str(error)))


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ragtrace", message="%(prog)s %(version)s")
def cli() -> None:
    """Faithfulness verdicts for RAG answers, in the trace you already look at.

    \b
    Examples:
      ragtrace demo
      ragtrace evaluate records.jsonl
      ragtrace collector --config collector.yaml
    """
