"""A judge whose requests go through OpenAI's Batch API: half the price, and an answer within a day.

It sends the same prompts as the live judge, so the evaluator is the same. Only the transport differs
(`batch_lane`): it collects the requests of concurrent evaluations and sends them as one batch as soon as no
new request arrives. Their next requests go into the next batch.
"""

from __future__ import annotations

from typing import Final

from ragtrace.judge._batch_api import BatchApi
from ragtrace.judge._batch_lane import BatchLane
from ragtrace.judge._batch_log import BatchLog
from ragtrace.judge._endpoint import Endpoint
from ragtrace.judge.batch_settings import MOST_REQUESTS, BatchSettings
from ragtrace.judge.layers import JudgeLayer
from ragtrace.ports import Judge

TRANSFER_TIMEOUT_S: Final = 600.0
"""Enough time for a file of 200 MB."""


class BatchJudge(JudgeLayer):
    """A judge whose requests are sent in batches."""

    least_timeout_s = 3 * 86_400.0
    """A batch may take a day, after waiting for a full queue at the provider."""
    most_at_once = MOST_REQUESTS

    def __init__(self, judge: Judge, lane: BatchLane) -> None:
        super().__init__(judge)
        self._log = lane.log

    def unfinished(self) -> tuple[int, int]:
        """Count the batches that are pending at the provider, and their requests."""
        return self._log.unfinished()

    def forget(self) -> None:
        """Forget the delivered replies; call it when a run has ended and its results are stored."""
        self._log.forget_taken()


def batches_of(judge: Judge) -> BatchJudge | None:
    """Return the layer that sends a judge's requests in batches, if there is one."""
    while isinstance(judge, JudgeLayer):
        if isinstance(judge, BatchJudge):
            return judge
        judge = judge.inner
    return None


def open_lane(endpoint: Endpoint, settings: BatchSettings, *, who: str, name: str) -> BatchLane:
    """Open the batch transport of one judge; ``name`` identifies the judge and its endpoint.

    Raises:
        ConfigError: the file of its batches cannot be used.
    """
    return BatchLane(
        api=BatchApi(endpoint=endpoint, who=who), log=BatchLog(settings.path_of(name)), settings=settings
    )
