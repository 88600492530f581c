"""What goes to the terminal: data to stdout, talk to stderr, strangers' text made harmless."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ragtrace.cli.extras import needs_extra

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["one_line", "open_console", "print_json", "printable", "talk"]

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def open_console() -> Console:
    """Return a console for tables: as wide as the terminal or ``COLUMNS``, else 80 columns.

    Raises:
        ConfigError: rich is not installed.
    """
    with needs_extra("cli"):
        from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_json(value: Mapping[str, object]) -> None:
    """Print one line of JSON to stdout, in ASCII: whatever the locale, it can be read back."""
    click.echo(json.dumps(value, allow_nan=False))


def talk(message: str) -> None:
    """Say something to the person on stderr."""
    click.echo(message, err=True)


def printable(text: str) -> str:
    """Replace what would steer the terminal, or cannot be written to it: text under judgment is data."""
    return "".join(_shown(char) for char in text)


def one_line(text: str) -> str:
    """Make a text printable on one line."""
    return printable(" ".join(text.split()))


def _shown(char: str) -> str:
    if char in "\n\t":
        return char
    if char in _BIDI:
        return ""
    return "\ufffd" if unicodedata.category(char) in ("Cc", "Cs") else char
