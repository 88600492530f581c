"""``backfill --batch``: half the price, for answers that may wait a day."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ragtrace.backfill import BackfillReport
from ragtrace.cli.render import many, talk
from ragtrace.errors import JudgeTimeout
from ragtrace.judge.batch import batches_of
from ragtrace.judge.spec import BatchSettings
from ragtrace.pipeline.spec import EvaluatorSpec
from ragtrace.ports import Judge

_KIND: Final = "openai"


def in_batches(spec: EvaluatorSpec, *, path: Path, poll_s: float) -> EvaluatorSpec:
    """Return the evaluator with judges that are asked in batches.

    Raises:
        UsageError: the second judge cannot be asked in batches.
    """
    if spec.second is not None and spec.second.kind != _KIND:
        raise click.UsageError(
            f"--batch asks the second judge in batches too: --second-judge must be {_KIND}:MODEL"
        )
    batches = BatchSettings(path=path, poll_s=poll_s, tell=talk)
    return replace(
        spec,
        judge=replace(spec.judge, batches=batches),
        second=replace(spec.second, batches=batches) if spec.second else None,
    )


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
