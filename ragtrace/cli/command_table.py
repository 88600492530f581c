"""The commands of the program: each is named here or by an installed package, and loaded only to run.

A package adds commands by an entry point of the group ``ragtrace.commands``: a tuple of `CommandEntry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

import click

GROUP: Final = "ragtrace.commands"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command, without its code."""

    name: str
    help: str
    """Its line in ``ragtrace --help``."""
    address: str
    """``module:name`` of the command."""

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.address.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@cache
def command_entries() -> Mapping[str, CommandEntry]:
    """Return the commands by name: the library's, then those of installed packages."""
    from importlib.metadata import entry_points

    added = (entry for point in entry_points(group=GROUP) for entry in point.load())
    ours = _library_entries()
    return {**ours, **{entry.name: entry for entry in added if entry.name not in ours}}


def find_command(name: str) -> CommandEntry | None:
    """Return the command of this name. Installed packages are looked at only if the library has none."""
    return _library_entries().get(name) or command_entries().get(name)


def _library_entries() -> dict[str, CommandEntry]:
    return {entry.name: entry for entry in _LIBRARY}


_LIBRARY: Final = (
    CommandEntry(
        "demo",
        "See the whole pipeline on human-labeled traffic.",
        "ragtrace.cli.demo:demo",
    ),
    CommandEntry(
        "evaluate",
        "Judge the records of a JSON-lines file.",
        "ragtrace.cli.evaluate:evaluate",
    ),
    CommandEntry(
        "explain",
        "Show what is read from a trace, from where, and why.",
        "ragtrace.cli.explain:explain",
    ),
    CommandEntry(
        "backfill",
        "Judge the answers in stored traces.",
        "ragtrace.cli.backfill:backfill",
    ),
    CommandEntry(
        "rejudge",
        "Score kept verdicts again, or compare two judges.",
        "ragtrace.cli.rejudge:rejudge",
    ),
    CommandEntry(
        "report",
        "Say how good production is, from the judged answers.",
        "ragtrace.cli.report:report",
    ),
    CommandEntry(
        "calibrate",
        "Measure a judge against human labels.",
        "ragtrace.cli.calibrate:calibrate",
    ),
    CommandEntry(
        "metrics",
        "List the metrics.",
        "ragtrace.cli.metrics:metrics",
    ),
    CommandEntry(
        "doctor",
        "Check judge, endpoints, store, and an application's spans.",
        "ragtrace.cli.doctor:doctor",
    ),
)
