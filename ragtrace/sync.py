"""`evaluate_sync`: evaluation for notebooks, scripts and tests without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, TypeVar

from ragtrace.metrics import Prompts, StepLimits
from ragtrace.metrics.judge_card import JudgeCard
from ragtrace.model import Evaluation
from ragtrace.pipeline import evaluate
from ragtrace.ports import Clock, Embedder, Judge, Metric

T = TypeVar("T")


def evaluate_sync(
    record: object,
    *,
    metrics: Sequence[Metric | str] = ("faithfulness",),
    judge: Judge | str = "lexical",
    run_id: str | None = None,
    clock: Clock | None = None,
    prompts: Prompts | None = None,
    limits: StepLimits | None = None,
    embedder: Embedder | str | None = None,
    second_judge: Judge | str | None = None,
    cards: Sequence[JudgeCard] = (),
) -> Evaluation:
    """Run `evaluate` and wait for the result. Works inside a running event loop too, as in Jupyter.

    Example:
        ```python
        record = RagRecord.of(question="How long?", contexts=["Refunds take 14 days."], answer="30 days.")
        evaluate_sync(record, judge="openai:gpt-4o-mini").results[0].score
        ```

    Raises:
        ConfigError: no metric or judge has that name, or the judge lacks a setting.
    """
    return wait_for(
        evaluate(
            record,
            metrics=metrics,
            judge=judge,
            run_id=run_id,
            clock=clock,
            prompts=prompts,
            limits=limits,
            embedder=embedder,
            second_judge=second_judge,
            cards=cards,
        )
    )


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared event loop and return its value.

    All callers share one loop, because a judge's open connections belong to one loop.
    """
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:  # Ctrl-C in a notebook must also stop the coroutine
        future.cancel()
        raise


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ragtrace-sync", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # a forked child inherits the loop without its thread
