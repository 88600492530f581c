"""The errors ragtrace raises.

RagtraceError
├── ConfigError            a setting is wrong: names the key, where it stands and what to do
├── InputError             a file, record or argument that ragtrace was given cannot be read
├── CodecError             bytes that are not the OTLP they claim to be
├── JudgeError             a judge could not answer; ``error_type`` is what stands in ``error.type``
│   ├── JudgeUnavailable   not reachable, or a 5xx / 429 that outlived its retries; may work later
│   ├── JudgeTimeout       no answer in time; may work later
│   ├── JudgeOverBudget    a limit to spending has no room for the request, which was not made
│   ├── JudgeRefused       401, 402, 403, 404, quota: will not work until a person acts
│   ├── JudgeUnable        it lacks what the request needs, such as log-probabilities: ask in another form
│   ├── NotInTranscript    no judge is asked here, and what it said to this is not known
│   ├── JudgeCompromised   it got a planted claim wrong: nothing it says of this record counts
│   └── JudgeNonsense      it answered, but not what was asked for
│       ├── JudgeCutOff    its reply ended at the token limit (``finish_reason=length``): ask for less at once
│       └── JudgeOversized its reply is longer than any is read
├── ReadError              a trace back end could not be read
│   ├── ReadOversized      an answer is longer than any is read: ask for less at once
│   └── ReadUnavailable    it is not reachable, or fails, for longer than it is waited for; may work later
└── SendError              a sink did not take the spans
    ├── SendRetryable      it may take them later; ``retry_after_s`` if it said when
    ├── SendUnconfirmed    it said yes, in a way that nobody can read: whether it took them is not known
    └── SendRejected       it never will
        └── SendRefused    401, 403, 404, wrong path: it takes nothing from us until a person acts
"""

from __future__ import annotations

from typing import ClassVar

from ragtrace._retry_after import bounded_wait_s
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
    "RagtraceError",
    "SendError",
]


class RagtraceError(Exception):
    """Whatever ragtrace raises on purpose."""


class ConfigError(RagtraceError):
    """A setting is wrong."""


class InputError(RagtraceError):
    """Something ragtrace was given cannot be read."""


class CodecError(RagtraceError):
    """The bytes are not the OTLP they claim to be."""


class JudgeError(RagtraceError):
    """A judge could not answer."""

    error_type: ClassVar[str] = "judge_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage or Usage(calls=1)
        """What the failed request cost."""


class JudgeUnavailable(JudgeError):
    """The judge is not reachable, or answers 429 or 5xx beyond its retries."""

    error_type = "judge_unavailable"
    retryable = True

    def __init__(
        self, message: str, *, usage: Usage | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, usage=usage)
        self.retry_after_s = bounded_wait_s(retry_after_s)
        """Seconds the endpoint asked us to wait, if it said so: a day at most."""


class JudgeTimeout(JudgeError):
    """The judge gave no answer in time."""

    error_type = "judge_timeout"
    retryable = True


class JudgeOverBudget(JudgeError):
    """A limit to spending has no room for the request, which was not made."""

    error_type = "over_budget"

    def __init__(self, message: str) -> None:
        super().__init__(message, usage=Usage())


class JudgeRefused(JudgeError):
    """The judge turned the request down for good: key, quota, model or permission."""

    error_type = "judge_refused"


class JudgeUnable(JudgeError):
    """The judge lacks what the request needs, such as log-probabilities."""

    error_type = "judge_unable"


class NotInTranscript(JudgeError):
    """No judge is asked, and the transcript does not hold what it said to this."""

    error_type = "not_in_transcript"


class JudgeCompromised(JudgeError):
    """The judge got a planted claim wrong: its verdicts on this record are not to be believed."""

    error_type = "judge_compromised"


class JudgeNonsense(JudgeError):
    """The judge answered, but not in the form it was asked for."""

    error_type = "judge_nonsense"


class JudgeCutOff(JudgeNonsense):
    """The reply ended at the token limit: ask for less at once."""

    error_type = "judge_cut_off"


class JudgeOversized(JudgeNonsense):
    """The reply is longer than any is read, as it came or unpacked."""

    error_type = "judge_oversized"


class ReadError(RagtraceError):
    """A trace back end could not be read."""


class ReadOversized(ReadError):
    """An answer of a trace back end is longer than any is read: ask for less at once."""


class ReadUnavailable(ReadError):
    """A trace back end is not reachable, or fails, for longer than it is waited for."""


class SendError(RagtraceError):
    """A sink did not take the spans."""


class SendRetryable(SendError):
    """The sink may take the spans later."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = bounded_wait_s(retry_after_s)
        """Seconds the sink asked us to wait, if it said so: a day at most."""


class SendUnconfirmed(SendError):
    """The sink said yes, and its answer cannot be read: it may have taken the spans, a part, or none."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
        """Whether another attempt may be answered better. Where the answer is whole and just none of the
        protocol's, it will not, and would double what was taken."""


class SendRejected(SendError):
    """The sink will never take these spans."""

    def __init__(self, message: str, *, partial: bool = False) -> None:
        super().__init__(message)
        self.partial = partial
        """Whether it took the others of the same request: to send them again would double them."""


class SendRefused(SendRejected):
    """The sink takes nothing from us, whatever it is: token, permission or path, until a person acts."""
