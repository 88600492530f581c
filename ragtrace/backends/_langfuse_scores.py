"""Write scores to the answer's observation through Langfuse's public API.

This follows Langfuse's documentation and is tested against documented requests, not a real server, which
needs ClickHouse, Redis and an object store.
"""

from __future__ import annotations

import json

from ragtrace.backends._http_sink import HttpSink
from ragtrace.backends._scores import Score, scores_in
from ragtrace.http.retry import REPEATABLE
from ragtrace.model import AttributeValue


class LangfuseScoreSink(HttpSink):
    """Post one score per metric on the answer's observation. Spans other than carriers are ignored."""

    retryable = REPEATABLE.statuses
    """Langfuse overwrites a score of the same id."""

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only check the keys.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused.
            SendRefused: every request is refused.
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
    """Return the request body: a number for a score, or a word for a skipped or failed metric.

    The word has another score name, because Langfuse allows one type per name.
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
