"""Send evaluations as log records: to log stores, and to back ends that take OpenTelemetry's events."""

from __future__ import annotations

from ragtrace.ports import SpanSink
from ragtrace.traces.evaluation_logs import encode_evaluation_logs
from ragtrace.traces.otlp import decode


class EvaluationLogSink:
    """Sends the records of the carriers in a request through a sink for logs. Other spans are ignored."""

    def __init__(self, sink: SpanSink) -> None:
        self._sink = sink

    @property
    def name(self) -> str:
        """``logs:`` and the address: traces may go to the same one."""
        return f"logs:{self._sink.name}"

    async def send(self, request: bytes) -> None:
        """Send the records of the carriers in a request; without any, an empty request.

        Raises:
            CodecError: the bytes are not OTLP.
            SendRetryable: not reachable, too slow, busy.
            SendUnconfirmed: success by its status, with an unreadable response.
            SendRejected: refused, in whole or in part.
            SendRefused: every request is refused.
        """
        await self._sink.send(encode_evaluation_logs(decode(request)))

    async def aclose(self) -> None:
        """Close the sink."""
        await self._sink.aclose()
