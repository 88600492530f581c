"""The errors ragtrace raises.

RagtraceError
├── ConfigError            a setting is wrong: names the key, its source and the fix
├── InputError             an input file, record or argument cannot be read
├── CodecError             bytes are not valid OTLP
├── JudgeError             a judge could not answer; ``error_type`` becomes ``error.type``
│   ├── JudgeUnavailable   not reachable, or 5xx / 429 after all retries; may work later
│   ├── JudgeTimeout       no answer in time; may work later
│   ├── JudgeOverBudget    a budget limit leaves no room; the request was not sent
│   ├── JudgeRefused       401, 402, 403, 404, quota: will not work until an operator acts
│   ├── JudgeUnable        it lacks a feature, such as log-probabilities: ask in another form
│   ├── NotInTranscript    the transcript holds no reply to this request, and no judge is asked
│   ├── JudgeDeclined      the model, or its content filter, refuses to judge this answer
│   ├── JudgeContextCut    the server cut the prompt: the judge saw less than was sent
│   ├── JudgeCompromised   it failed a canary claim: all its verdicts on this record are void
│   └── JudgeNonsense      the reply does not have the requested form
│       ├── JudgeCutOff    the reply hit the token limit (``finish_reason=length``): ask for less
│       └── JudgeOversized the reply exceeds the size limit
├── ReadError              a trace back end could not be read
│   ├── ReadOversized      a response exceeds the size limit: ask for less at once
│   └── ReadUnavailable    it is not reachable, or fails, after all retries; may work later
└── SendError              a sink did not take the spans
    ├── SendRetryable      it may take them later; ``retry_after_s`` if it named a wait
    ├── SendUnconfirmed    success with an unreadable body: it may or may not have taken them
    └── SendRejected       it will never take them
        └── SendRefused    401, 403, 404, wrong path: it takes nothing until an operator acts
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ragtrace.text import bounded_wait_s

if TYPE_CHECKING:
    from ragtrace.model import Usage

__all__ = [
    "ConfigError",
    "InputError",
    "JudgeError",
    "JudgeNonsense",
    "JudgeRefused",
    "JudgeTimeout",
    "JudgeUnable",
    "JudgeUnavailable",
    "SendError",
]


class RagtraceError(Exception):
    """Base class of all errors that ragtrace raises on purpose."""


class ConfigError(RagtraceError):
    """A setting is wrong."""


class InputError(RagtraceError):
    """An input file, record or argument cannot be read."""


class CodecError(RagtraceError):
    """The bytes are not valid OTLP."""


class JudgeError(RagtraceError):
    """A judge could not answer."""

    error_type: ClassVar[str] = "judge_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        if usage is None:
            from ragtrace.model import Usage  # a program that raises none starts without the values

            usage = Usage(calls=1)
        self.usage = usage
        """What the failed request cost."""


class JudgeUnavailable(JudgeError):
    """The judge is not reachable, or answers 429 or 5xx after all retries."""

    error_type = "judge_unavailable"
    retryable = True

    def __init__(
        self, message: str, *, usage: Usage | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, usage=usage)
        self.retry_after_s = bounded_wait_s(retry_after_s)
        """Seconds the endpoint asked us to wait, if any: one day at most."""


class JudgeTimeout(JudgeError):
    """The judge gave no answer in time."""

    error_type = "judge_timeout"
    retryable = True


class JudgeOverBudget(JudgeError):
    """A budget limit leaves no room for the request, which was not sent."""

    error_type = "over_budget"

    def __init__(self, message: str) -> None:
        from ragtrace.model import Usage

        super().__init__(message, usage=Usage())


class JudgeRefused(JudgeError):
    """The judge refused the request permanently: key, quota, model or permission."""

    error_type = "judge_refused"


class JudgeUnable(JudgeError):
    """The judge lacks a feature that the request needs, such as log-probabilities."""

    error_type = "judge_unable"


class NotInTranscript(JudgeError):
    """The transcript holds no reply to this request, and no judge is asked."""

    error_type = "not_in_transcript"


class JudgeDeclined(JudgeError):
    """The model declines to judge these texts, or its provider's content filter stops it."""

    error_type = "judge_declined"


class JudgeContextCut(JudgeError):
    """The judge read far less than was sent: its server cut the prompt without saying so."""

    error_type = "context_cut"


class JudgeCompromised(JudgeError):
    """The judge failed a canary claim: its verdicts on this record cannot be trusted."""

    error_type = "judge_compromised"


class JudgeNonsense(JudgeError):
    """The judge's reply does not have the requested form."""

    error_type = "judge_nonsense"


class JudgeCutOff(JudgeNonsense):
    """The reply hit the token limit: ask for less at once."""

    error_type = "judge_cut_off"


class JudgeOversized(JudgeNonsense):
    """The reply exceeds the size limit, compressed or decompressed."""

    error_type = "judge_oversized"


class ReadError(RagtraceError):
    """A trace back end could not be read."""


class ReadOversized(ReadError):
    """A response of a trace back end exceeds the size limit: ask for less at once."""


class ReadUnavailable(ReadError):
    """A trace back end is not reachable, or fails, after all retries."""


class WriteError(RagtraceError):
    """A file could not be written: the disk is full, or the file is read-only."""


class SendError(RagtraceError):
    """A sink did not take the spans."""


class SendRetryable(SendError):
    """The sink may take the spans later."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = bounded_wait_s(retry_after_s)
        """Seconds the sink asked us to wait, if any: one day at most."""


class SendUnconfirmed(SendError):
    """The sink reported success with an unreadable body: it may have taken all spans, some, or none."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
        """Whether a retry may get a readable answer. It will not if the answer is complete but not in the
        protocol; a retry would then duplicate spans."""


class SendRejected(SendError):
    """The sink will never take these spans."""

    def __init__(self, message: str, *, partial: bool = False) -> None:
        super().__init__(message)
        self.partial = partial
        """Whether it took the other spans of the request: a retry would duplicate those."""


class SendRefused(SendRejected):
    """The sink refuses every request until an operator acts: token, permission or path."""
