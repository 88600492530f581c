"""A judge whose requests go through OpenAI's Batch API: half the price, and an answer within a day.

It sends the same prompts as the live judge, so the evaluator is the same. Only the transport differs
(`batch_lane`): it collects the requests of concurrent evaluations and sends them as one batch as soon as no
new request arrives. Their next requests go into the next batch.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from ragtrace.judge._http import openai_headers
from ragtrace.judge.base_url import BaseUrl
from ragtrace.judge.batch_settings import MOST_REQUESTS, BatchSettings
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.layers import JudgeLayer
from ragtrace.judge.openai._batch_api import BatchApi
from ragtrace.judge.openai._batch_lane import BatchLane
from ragtrace.judge.openai._batch_log import BatchLog
from ragtrace.judge.openai._client import Access
from ragtrace.judge.openai._credentials import openai_credential
from ragtrace.judge.openai.judge import OpenAICompatibleJudge
from ragtrace.ports import Judge

_TRANSFER_TIMEOUT_S: Final = 600.0
"""For a file of 200 MB."""


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


def open_batch_judge(settings: JudgeSettings, batches: BatchSettings, base_url: str) -> Judge:
    """Open a judge behind an OpenAI endpoint whose requests are sent in batches.

    Raises:
        ConfigError: the settings, or the log of the batches, cannot be used.
    """
    key, model = openai_credential(settings, base_url), settings.argument
    who = f"judge {model} at {urlsplit(base_url).hostname}"
    access = Access(
        place=BaseUrl.of(base_url), credential=key, headers=openai_headers(settings), tls=settings.tls
    )
    api = BatchApi.of(access, who=who, timeout_s=_TRANSFER_TIMEOUT_S)
    log = BatchLog(batches.path_of(_lane_name(settings, base_url)))
    lane = BatchLane(api=api, log=log, settings=batches)
    judge = OpenAICompatibleJudge(
        model=model,
        api_key=key,
        base_url=base_url,
        instead=lane,
        extra_body=settings.extra_body,
        reply_rules=settings.reply_rules,
        parameters=settings.parameters,
    )
    return BatchJudge(judge, lane)


def _lane_name(settings: JudgeSettings, base_url: str) -> str:
    """Name the requests that can use one another's replies: same model, parameters and endpoint."""
    parts = (BaseUrl.of(base_url).url, settings.argument, settings.parameters)
    return "|".join(part for part in parts if part)
