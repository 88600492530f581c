"""Options for the files that a command writes about what it judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from ragtrace.cli.options import FILE
from ragtrace.cli.settings import option

REPORT_SUFFIXES: Final = (".html", ".jsonl", ".csv", ".parquet")
"""As `ragtrace.reports.SUFFIXES`."""


def _known_suffixes(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        if path.suffix.lower() not in REPORT_SUFFIXES:
            raise ValueError(
                f"{path.name!r} is not a report: its name must end with {', '.join(REPORT_SUFFIXES)}"
            )
    return tuple(dict.fromkeys(paths))


def _trace_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https") or "{trace_id}" not in url:
        raise ValueError("write an address with {trace_id}: http://localhost:16686/trace/{trace_id}")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Which reports are wanted."""

    paths: tuple[Path, ...] = option(
        "--out",
        type=FILE,
        multiple=True,
        metavar="FILE",
        parse=_known_suffixes,
        help="Also write judged answers with their texts to a .html, .jsonl, .csv or .parquet file. Appends"
        " to an existing .jsonl or .csv, replaces others. Repeatable.",
    )
    worst: int = option(
        "--worst",
        type=click.IntRange(0, 1_000),
        default=50,
        show_default=True,
        metavar="N",
        help="List the N worst answers in the page.",
    )
    trace_url: str | None = option(
        "--trace-url",
        metavar="URL",
        parse=_trace_url,
        help="Link from the page to a trace: http://localhost:16686/trace/{trace_id}; {span_id} works too."
        " [default: the Jaeger that is read]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptOption:
    """``--transcripts``."""

    path: Path | None = option(
        "--transcripts",
        type=FILE,
        metavar="FILE",
        help="Save records, replies and verdicts for `ragtrace rejudge`. The file contains texts; only you"
        " can read it.",
    )
