"""The sink for OTLP over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Literal

from ragtrace.backends._http_sink import HttpSink
from ragtrace.backends._otlp_answer import TRACES, Signal, parse_answer, raise_for_rejected_items
from ragtrace.errors import SendUnconfirmed
from ragtrace.http.retry import OTLP
from ragtrace.http.tls import ClientTls


class OtlpHttpSink(HttpSink):
    """Post requests as binary protobuf to an OTLP/HTTP receiver's full URL (``…/v1/traces``).

    ``signal`` is what the requests carry: spans, unless told otherwise.
    """

    retryable = OTLP.statuses

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
        timeout_s: float = 10,
        compression: Literal["none", "gzip"] = "none",
        signal: Signal = TRACES,
    ) -> None:
        super().__init__(url, headers=headers, tls=tls, timeout_s=timeout_s)
        self._compression = compression
        self._signal = signal

    async def send(self, request: bytes) -> None:
        """Post the request and wait for the receiver's response.

        Raises:
            SendRetryable: not reachable, too slow, busy.
            SendUnconfirmed: success by its status, with an unreadable response.
            SendRejected: refused, in whole or in part.
            SendRefused: every request is refused.
        """
        headers, body = {"content-type": "application/x-protobuf"}, request
        if self._compression == "gzip":
            headers, body = {**headers, "content-encoding": "gzip"}, gzip.compress(request, mtime=0)
        reply = await self._sender.ask("POST", body=body, headers=headers)
        if reply.body is None:
            raise SendUnconfirmed(
                f"{self.name} answered {reply.status} with an unreadable response", again=True
            )
        answer = parse_answer(reply.body, self._signal)
        if answer is None:  # such as the page of a proxy or of another web server
            raise SendUnconfirmed(
                f"{self.name} answered {reply.status} with a response that is not OTLP: "
                f"is this the address of a receiver (…{self._signal.path})?",
                again=False,
            )
        raise_for_rejected_items(self.name, answer)
