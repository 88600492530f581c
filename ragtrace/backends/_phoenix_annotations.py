"""Phoenix's span annotations: scores where its page shows them, filters by them and averages them."""

from __future__ import annotations

import json
from typing import Final

from ragtrace.backends._http_sink import HttpSink
from ragtrace.backends._scores import Score, scores_in
from ragtrace.errors import SendRejected
from ragtrace.model import AttributeValue

_PATH: Final = "/v1/span_annotations?sync=true"
"""It answers once the annotations are stored, and says so where there is no such span."""
_NO_SUCH_SPAN: Final = 404


class PhoenixAnnotationSink(HttpSink):
    """Post one annotation a metric on the answer's span. Spans that are no carriers are left out."""

    retryable = frozenset({429, 500, 502, 503, 504})
    """An annotation of the same identifier is written over."""

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only whether Phoenix takes some is seen.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused, or Phoenix has no such span.
            SendRefused: refused whatever is sent.
        """
        body = json.dumps({"data": [_annotation(score) for score in scores_in(request)]})
        headers = {"content-type": "application/json"}
        reply = await self._sender.ask(
            "POST", _PATH, body=body.encode(), headers=headers, understood={_NO_SUCH_SPAN}
        )
        if reply.status == _NO_SUCH_SPAN:
            raise SendRejected(f"{self.name} has no such span: send the traces there first")


def _annotation(score: Score) -> dict[str, AttributeValue]:
    return {
        "span_id": score.span_id,
        "name": score.metric,
        "annotator_kind": "CODE" if score.is_computed else "LLM",
        "result": {"label": score.label, "score": score.value, "explanation": score.explanation},
        "metadata": score.metadata,
        "identifier": score.carrier_id,
    }
