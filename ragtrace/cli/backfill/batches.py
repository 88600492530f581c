"""``backfill --batch``: half the price, for answers that may wait a day."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ragtrace.backfill import BackfillReport
from ragtrace.cli.judge_choice import JudgeChoice
from ragtrace.cli.render import many, talk
from ragtrace.errors import JudgeTimeout
from ragtrace.judge.batch_settings import BatchSettings
from ragtrace.judge.openai.batch import batches_of
from ragtrace.ports import Judge

_KIND: Final = "openai"


def in_batches(judge: JudgeChoice, second_judge: str | None, *, path: Path, poll_s: float) -> JudgeChoice:
    """Return the judge, asked in batches at their prices.

    Raises:
        UsageError: the second judge cannot be asked in batches.
    """
    _check_second(second_judge)
    batches = BatchSettings(path=path, poll_s=poll_s, tell=talk)
    return replace(judge, prices=judge.prices.in_batches(), batches=batches)


def waits_for_batches(judge: Judge) -> bool:
    """Say whether a judge's answers may take a day, so that nobody who stops a run waits for them."""
    return batches_of(judge) is not None


def finish_batches(judges: Iterable[Judge | None], report: BackfillReport) -> None:
    """After a run, forget the replies that it used, and say what goes on at the provider.

    They are not forgotten where an answer waits for more, or had no news of a batch: it needs them again.
    """
    for judge in judges:
        batched = batches_of(judge) if judge is not None else None
        if batched is None:
            continue
        if not (report.is_stopped or report.left or JudgeTimeout.error_type in report.failed):
            batched.forget()
        batches, requests = batched.unfinished()
        if batches:
            where = "in a batch" if batches == 1 else f"in {batches:,} batches"
            talk(
                f"{many(requests, 'request')} {where} at the provider: the same command takes the"
                " replies within 30 days, and pays for none twice"
            )


def _check_second(second_judge: str | None) -> None:
    if second_judge is not None and second_judge.partition(":")[0] != _KIND:
        raise click.UsageError(
            f"--batch asks the second judge in batches too: --second-judge must be {_KIND}:MODEL"
        )
