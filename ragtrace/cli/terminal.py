"""What goes to the terminal: data to stdout, talk to stderr, strangers' text made harmless."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ragtrace.escaping import one_json_line

if TYPE_CHECKING:
    from rich.console import Console


_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def open_console(*, stderr: bool = False) -> Console:
    """Return a console for tables: as wide as the terminal or ``COLUMNS``, else 80 columns."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_json(value: Mapping[str, object]) -> None:
    """Print one line of JSON to stdout."""
    print_line(one_json_line(value, allow_nan=False))


def print_line(line: str) -> None:
    """Print a line to stdout in UTF-8, whatever the locale: for machines.

    What has no UTF-8 form (lone surrogates) becomes the escape that JSON has for it.
    """
    click.echo(line.encode("utf-8", "backslashreplace"))


def print_indented(console: Console, indent: int, text: str, *, style: str = "") -> None:
    """Print a text, wrapped, each line so many columns from the left."""
    from rich.text import Text

    for line in Text(printable(text), style=style).wrap(console, max(20, console.width - indent)):
        line.rstrip()
        line.pad_left(indent)
        console.print(line)


def talk(message: str) -> None:
    """Say something to the person on stderr."""
    click.echo(printable(message), err=True)


def printable(text: str) -> str:
    """Replace what would steer the terminal, or cannot be written to it: text under judgment is data."""
    return "".join(_shown(char) for char in text)


def one_line(text: str) -> str:
    """Make a text printable on one line."""
    return printable(" ".join(text.split()))


def by_kind(counts: Mapping[str, int]) -> str:
    """Write a sum and what it is made of: ``3 (no_content 2, refusal 1)``."""
    if not counts:
        return "0"
    parts = ", ".join(f"{one_line(kind)} {number}" for kind, number in sorted(counts.items()))
    return f"{sum(counts.values())} ({parts})"


def many(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 record``, ``2 records``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(char: str) -> str:
    if char in "\n\t":
        return char
    if char in _BIDI:
        return ""
    return "\ufffd" if unicodedata.category(char) in ("Cc", "Cs") else char
