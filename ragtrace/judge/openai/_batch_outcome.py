"""The outcome of a batch: a reply or a failure for each of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.judge.calls import JudgeCall, was_turned_down
from ragtrace.judge.openai._endpoint import JsonObject, RequestRejected, check_error_within


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a whole batch has no replies. Each waiting call raises its own error from it."""

    kind: type[JudgeError]
    message: str

    @classmethod
    def of(cls, exc: JudgeError) -> Failure:
        """Keep the error's type, except for ``JudgeUnavailable``."""
        return cls(JudgeTimeout if isinstance(exc, JudgeUnavailable) else type(exc), str(exc))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReplies:
    """The replies of a batch."""

    batch: str
    was_cancelled: bool
    lines: Mapping[str, JsonObject]
    """Lines of the reply files, by request."""

    def reply_to(self, request: str, *, who: str, call: JudgeCall) -> Any:
        """Return the JSON of a reply, and record the request's outcome in ``call``.

        Raises:
            RequestRejected: the endpoint rejected the request with 400 or 422.
            JudgeError: there is no reply.
        """
        line = self.lines.get(request, JsonObject())
        response = line.response
        if not isinstance(response, JsonObject) or not isinstance(response.status_code, int):
            call.turned_down()
            raise self._unanswered(line, who, call)
        if response.status_code < 400:
            check_error_within(response.body, who=who, call=call)
            return response.body
        if was_turned_down(response.status_code):
            call.turned_down()
        rejected = RequestRejected(response.status_code, response.body)
        raise rejected if rejected.is_adaptable else rejected.failure(who=who, usage=call.usage)

    def _unanswered(self, line: JsonObject, who: str, call: JudgeCall) -> JudgeError:
        if self.was_cancelled:
            return JudgeRefused(f"{who}: the batch {self.batch} was cancelled there", usage=call.usage)
        expired = isinstance(line.error, JsonObject) and line.error.code == "batch_expired"
        what = "the batch expired before it was answered" if expired else "the batch has no reply to it"
        return JudgeUnavailable(f"{who}: {what}", usage=call.usage)


Outcome: TypeAlias = BatchReplies | Failure | None
"""The outcome of a batch; ``None`` if its requests must be sent again."""
