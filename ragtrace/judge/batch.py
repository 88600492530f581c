"""A judge whose requests go through OpenAI's Batch API: half the price, and an answer within a day.

It asks what the live judge asks, in the same words: its verdicts are the same evaluator's. Only the way is
another (`batch_lane`): what concurrent evaluations ask is gathered, and sent as one batch as soon as nothing
new comes; what they ask next, once they have the replies, goes along with the next one.
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
"""For a file of 200 MB."""


class BatchJudge(JudgeLayer):
    """A judge whose requests are sent in batches."""

    least_timeout_s = 3 * 86_400.0
    """A batch has a day; the provider's queue may have been full before."""
    most_at_once = MOST_REQUESTS

    def __init__(self, judge: Judge, lane: BatchLane) -> None:
        super().__init__(judge)
        self._log = lane.log

    def unfinished(self) -> tuple[int, int]:
        """Count the batches that go on at the provider, and their requests."""
        return self._log.unfinished()

    def forget(self) -> None:
        """Forget the replies that were handed on: a run came to its end, and what it could use is kept."""
        self._log.forget_taken()


def batches_of(judge: Judge) -> BatchJudge | None:
    """Return the layer that sends a judge's requests in batches, if there is one."""
    while isinstance(judge, JudgeLayer):
        if isinstance(judge, BatchJudge):
            return judge
        judge = judge.inner
    return None


def open_lane(endpoint: Endpoint, settings: BatchSettings, *, who: str, name: str) -> BatchLane:
    """Open what sends the requests of one judge in batches; ``name`` is of the judge and where it is.

    Raises:
        ConfigError: the list of its batches cannot be used.
    """
    return BatchLane(
        api=BatchApi(endpoint=endpoint, who=who), log=BatchLog(settings.path_of(name)), settings=settings
    )
