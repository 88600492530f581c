"""``ragtrace export-records``: answers that people reviewed, as records with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, FILE
from ragtrace.cli.render import many, talk
from ragtrace.cli.settings import command, option, takes
from ragtrace.errors import InputError

if TYPE_CHECKING:
    from ragtrace.reviews.averages import ReviewAgreement
    from ragtrace.reviews.review import LabelRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewsOptions:
    """Which reviews are written, and where."""

    reviews: Path | None = option(
        "--reviews",
        type=FILE,
        metavar="PATH",
        help="The file of reviews. [default: that of --config, else ragtrace-reviews.db in the state folder]",
    )
    config: Path | None = option(
        "--config",
        type=EXISTING_FILE,
        metavar="FILE",
        help="A collector's configuration: its file of reviews.",
    )
    out: Path | None = option(
        "--out", type=FILE, metavar="FILE", help="Where the labels go. [default: standard output]"
    )
    tenant: str | None = option("--tenant", metavar="NAME", help="Only reviews of this tenant's answers.")
    random: bool = option(
        "--random", is_flag=True, help="Only answers of the random queue: a fair sample of the traffic."
    )


@command()
@takes(options=ReviewsOptions)
def export_records(options: ReviewsOptions) -> None:
    """Write reviewed answers as records with labels, which `evaluate` and `calibrate` read.

    A claim gets the majority's label, or null on a tie or if nobody can tell. Pages may run meanwhile.

    \b
    Examples:
      ragtrace export-records --out labels.jsonl
      ragtrace export-records --random --config collector.yaml > labels.jsonl
    """
    import asyncio

    from ragtrace.files.private import replace_file

    path = _path(options)
    if not path.is_file():
        raise InputError(
            f"there is no file of reviews {str(path)!r}: review answers on the page (`ragtrace ui`), or name"
            " the file with --reviews"
        )
    rows, agreement = asyncio.run(_read(path, options))
    text = "".join(row.line for row in rows)
    if options.out:
        replace_file(options.out, text)
    else:
        click.echo(text, nl=False)
    _say(rows, agreement)


def _path(options: ReviewsOptions) -> Path:
    from ragtrace.files.state import state_folder

    if options.reviews:
        return options.reviews
    with needs_extra("collector"):
        from ragtrace_collector.config import load_config
        from ragtrace_collector.service.page import REVIEWS_NAME, reviews_of
    return (
        reviews_of(load_config(options.config, needs_secrets=False))
        if options.config
        else state_folder() / REVIEWS_NAME
    )


async def _read(path: Path, options: ReviewsOptions) -> tuple[Sequence[LabelRow], ReviewAgreement]:
    from ragtrace.reviews.averages import ReviewAgreement
    from ragtrace.reviews.file import ReviewFile
    from ragtrace.reviews.review import ReviewPick

    file = ReviewFile(path)
    try:
        rows = await file.labels(tenant=options.tenant)
        reviewed = await file.reviewed(tenant=options.tenant)
    finally:
        await file.aclose()
    if options.random:
        rows = [row for row in rows if row.picked is ReviewPick.RANDOM]
    return rows, ReviewAgreement(reviewed[row.key] for row in rows)


def _say(rows: Sequence[LabelRow], found: ReviewAgreement) -> None:
    labels = sum(label is not None for row in rows for label in row.labels.values())
    agreed = f"; people and judge agree on {found.agreed} of {found.decided} claims" if found.decided else ""
    talk(f"{many(len(rows), 'answer')} with {many(labels, 'labeled claim')}{agreed}")
