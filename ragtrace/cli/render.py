"""What goes to the terminal: data to stdout, messages to stderr; tables, bars, numbers, money and times.

Text of others is made harmless: it cannot steer the terminal.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from ragtrace.text import one_json_line

if TYPE_CHECKING:
    from rich.console import Console


_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


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


def dollars(usd: float) -> str:
    """Write an estimated sum, the smaller the more exactly: ``$12.50``, ``$0.250``, ``$0.0012``."""
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:.2g}" if usd < 0.01 else f"${usd:.3f}"


def rough_duration(seconds: float) -> str:
    """Write a duration in the largest unit that it is at least twice as long as."""
    for length_s, unit in _UNITS:
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else f"{seconds:.1g} s"


def utc(time_ns: int, *, seconds: bool = False) -> str:
    """Write a time: ``2026-11-20 18:00 UTC``."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):{form}} UTC"


def shortened(line: str, most: int) -> str:
    """Cut a line that is longer."""
    return line if len(line) <= most else f"{line[:most]}…"


def _shown(char: str) -> str:
    if char in "\n\t":
        return char
    if char in _BIDI:
        return ""
    return "\ufffd" if unicodedata.category(char) in ("Cc", "Cs") else char


def has_desktop(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Say whether a browser can be opened here for the person who runs the command."""
    if environ.get("CI") or environ.get("SSH_CONNECTION"):
        return False
    if platform in ("darwin", "win32"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def without_login(source: str) -> str:
    """Leave out a user and password from an address."""
    start, mark, rest = source.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2] if mark and '@' in rest.partition('/')[0] else rest}"


def page_of_trace(source: str) -> str | None:
    """Return the address of a trace's page, where it is known by that of the source: Jaeger's."""
    address = without_login(source).removeprefix("jaeger:")
    is_jaeger = source.startswith(("jaeger:http", "http"))
    return f"{address.rstrip('/')}/trace/{{trace_id}}" if is_jaeger else None
