"""Langfuse's scores, by its public API: on the answer's observation.

Written by its documentation, and tried against requests in the form that stands there: its server needs
ClickHouse, Redis and an object store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ragtrace.backends.posting import Poster
from ragtrace.backends.scores import Score, scores_in
from ragtrace.model import AttributeValue
from ragtrace.tls import ClientTls

__all__ = ["LangfuseScoreSink"]

_RETRYABLE: Final = frozenset({429, 500, 502, 503, 504, 524})
"""Sending again does no harm: a score of the same id is written over."""


class LangfuseScoreSink:
    """Post one score a metric on the answer's observation. Spans that are no carriers are left out."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
    ) -> None:
        self._poster = Poster(
            base_url.rstrip("/"), headers=headers, tls=tls, timeout_s=timeout_s, retryable=_RETRYABLE
        )

    @property
    def name(self) -> str:
        """The URL without user, password and query."""
        return self._poster.name

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only whether the keys open is seen.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused.
            SendRefused: refused whatever is sent.
        """
        scores = scores_in(request)
        if not scores:
            await self._poster.ask("GET", "/api/public/projects")
        for score in scores:
            await self._poster.ask(
                "POST",
                "/api/public/scores",
                body=json.dumps(_body(score)).encode(),
                headers={"content-type": "application/json"},
            )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._poster.aclose()


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
