"""Write scores as Phoenix's span annotations, which its page shows, filters and averages."""

from __future__ import annotations

import json
from typing import Final

from ragtrace.backends._http_sink import HttpSink
from ragtrace.backends._scores import Score, scores_in
from ragtrace.errors import SendRejected
from ragtrace.http.retry import REPEATABLE
from ragtrace.model import AttributeValue

_PATH: Final = "/v1/span_annotations?sync=true"
"""It responds after storing the annotations, and reports a missing span."""
_NO_SUCH_SPAN: Final = 404
_ANNOTATORS: Final = {"deterministic": "CODE", "human": "HUMAN"}
"""Phoenix's words, by the type of the evaluator; a language model's is ``LLM``."""


class PhoenixAnnotationSink(HttpSink):
    """Post one annotation per metric on the answer's span. Spans other than carriers are ignored."""

    retryable = REPEATABLE.statuses
    """Phoenix overwrites an annotation of the same identifier."""

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only check that Phoenix accepts scores.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendRejected: refused, or Phoenix has no such span.
            SendRefused: every request is refused.
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
        "annotator_kind": _ANNOTATORS.get(score.evaluator_type, "LLM"),
        "result": {"label": score.label, "score": score.value, "explanation": score.explanation},
        "metadata": score.metadata,
        "identifier": score.carrier_id,
    }
