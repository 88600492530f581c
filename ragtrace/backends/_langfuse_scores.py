"""Langfuse's scores, by its public API: on the answer's observation.

Written by its documentation, and tried against requests in the form that stands there: its server needs
ClickHouse, Redis and an object store.
"""

from __future__ import annotations

import json

from ragtrace.backends._http_sink import HttpSink
from ragtrace.backends._scores import Score, scores_in
from ragtrace.model import AttributeValue


class LangfuseScoreSink(HttpSink):
    """Post one score a metric on the answer's observation. Spans that are no carriers are left out."""

    retryable = frozenset({429, 500, 502, 503, 504, 524})
    """A score of the same id is written over."""

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only whether the keys open is seen.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused.
            SendRefused: refused whatever is sent.
        """
        scores = scores_in(request)
        if not scores:
            await self._sender.ask("GET", "/api/public/projects")
        for score in scores:
            await self._sender.ask(
                "POST",
                "/api/public/scores",
                body=json.dumps(_body(score)).encode(),
                headers={"content-type": "application/json"},
            )


def _body(score: Score) -> dict[str, AttributeValue]:
    """Write a score as a number; what was skipped or failed has none, and says so in a word.

    Under another name: Langfuse gives a name one type.
    """
    value: dict[str, AttributeValue] = (
        {"name": f"{score.metric}.label", "value": score.label, "dataType": "CATEGORICAL"}
        if score.value is None
        else {"name": score.metric, "value": score.value, "dataType": "NUMERIC"}
    )
    return {
        "id": f"{score.carrier_id}-{score.metric}",
        "traceId": score.trace_id,
        **({"observationId": score.span_id} if score.span_id else {}),
        **value,
        "comment": score.explanation,
        "metadata": score.metadata,
    }
