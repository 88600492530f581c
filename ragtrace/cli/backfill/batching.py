"""``backfill --batch``: half the price, for answers that may wait a day."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from ragtrace.backfill import BackfillReport, Progress
from ragtrace.cli.options import JudgeChoice
from ragtrace.cli.terminal import many, talk
from ragtrace.errors import JudgeTimeout
from ragtrace.judge.batch import batches_of
from ragtrace.judge.batch_settings import MOST_REQUESTS, BatchSettings
from ragtrace.ports import Judge

Callback: TypeAlias = Callable[..., Any]

_LIVE: Final = 8
_MOST_LIVE: Final = 256
_WAVE: Final = 1_000
_KIND: Final = "openai"


def batch_options(command: Callback) -> Callback:
    """Add ``--batch``, ``--batch-poll`` and ``--concurrency``; the callback gets ``concurrency``, and a judge
    that is asked in batches, at their prices, if that is wanted. It stands below `judge_options`."""

    @click.option(
        "--batch",
        "in_batches",
        is_flag=True,
        help="Ask the judge through OpenAI's Batch API, for half the price: each step of a metric takes up to"
        " a day. Only openai:MODEL can. Stopped, killed or repeated, no request is paid for twice.",
    )
    @click.option(
        "--batch-poll",
        "poll_s",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Between two looks at a batch.",
    )
    @click.option(
        "--concurrency",
        type=click.IntRange(min=1, max=MOST_REQUESTS),
        metavar="N",
        help=f"Answers judged at once: up to {_MOST_LIVE}, and with --batch as many as go into a batch."
        f"  [default: {_LIVE}; with --batch {_WAVE:,}]",
    )
    @wraps(command)
    def with_batches(
        in_batches: bool,
        poll_s: float,
        concurrency: int | None,
        judge: JudgeChoice,
        second_judge: str | None,
        source: str,
        destination: str | None,
        progress_path: Path | None,
        **others: Any,
    ) -> Any:
        if in_batches:
            _check_second(second_judge)
            path = progress_path or Progress.default_path(source=source, destination=destination or "")
            batches = BatchSettings(path=path, poll_s=poll_s, tell=talk)
            judge = replace(judge, prices=judge.prices.in_batches(), batches=batches)
        elif concurrency is not None and concurrency > _MOST_LIVE:
            raise click.UsageError(f"--concurrency is {_MOST_LIVE} at most without --batch")
        return command(
            judge=judge,
            second_judge=second_judge,
            source=source,
            destination=destination,
            progress_path=progress_path,
            concurrency=concurrency or (_WAVE if in_batches else _LIVE),
            **others,
        )

    return with_batches


def waits_for_batches(judge: Judge) -> bool:
    """Say whether a judge's answers may take a day, so that nobody who stops a run waits for them."""
    return batches_of(judge) is not None


def settle(judges: Iterable[Judge | None], report: BackfillReport) -> None:
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
        raise click.UsageError(f"--batch asks the second judge in batches, too: only {_KIND}:MODEL can be")
