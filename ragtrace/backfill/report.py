"""The outcome of every trace and record of a back-fill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ragtrace.model import AnswerOutcome, Evaluation, Status, Usage, outcome_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    """The outcome of every trace and record: ``records`` is the sum of ``sampled_out``,
    ``already_evaluated``, ``judged``, ``ineligible``, ``failed`` and ``left``."""

    traces: int
    not_found: tuple[str, ...]
    """Requested or found trace ids that the source does not have."""
    unread: tuple[str, ...]
    """Trace ids that the source could not return."""
    unreadable: Mapping[str, int]
    """Traces on which the extraction failed, by type of the error."""
    without_record: int
    """Traces without a RAG call."""
    cut_windows: int
    """Time ranges with more traces than the source returns: some are missing."""
    records: int
    sampled_out: int
    already_evaluated: int
    """Their carrier is in the source or the destination, or an earlier run sent it."""
    judged: int
    ineligible: Mapping[str, int]
    """Records without a score because there was nothing to judge, by reason, as in the collector's ledger."""
    failed: Mapping[str, int]
    """Records on which the judge failed, by type. No carrier was sent: a second run tries them again."""
    left: int
    """Selected records that were not judged: the run was stopped, or its budget was used up."""
    labels: Mapping[str, int]
    """``pass`` and ``fail`` of the metrics with a score."""
    sent: int
    rejected: Mapping[str, int]
    """Carriers that the destination rejected, by its message."""
    usage: Usage
    is_stopped: bool
    """Whether the run was stopped before its end."""
    over_budget: str
    """The limit that had no room for a request; empty if none."""
    broken_off: str
    """Why reading the source stopped early; empty if it was read completely."""
    sessions: Mapping[str, int]
    """Sessions that were judged, by label; empty if they are not asked for."""
    sessions_known: int
    """Sessions of which a span was written before, by these verdicts on the same turns."""
    sessions_open: int
    """Sessions that are not over yet, or were not read to their end: a later run judges them."""
    sessions_left: int
    """Sessions that were not judged: the run was stopped, or its budget was used up."""
    sessions_failed: Mapping[str, int]
    """Sessions on which the judge failed, by type: a later run tries them again."""

    @property
    def is_behind(self) -> bool:
        """Whether a later run has something to do."""
        return bool(self.left or self.unread or self.sessions_left or self.is_stopped or self.broken_off)

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed, was rejected, truncated or missing."""
        missing = (self.not_found, self.unread, self.unreadable, self.cut_windows)
        gaps = (*missing, self.failed, self.rejected, self.sessions_failed)
        return not any(gaps) and not self.broken_off


@dataclass(slots=True, kw_only=True)
class RunCounts:
    """The counts of a running back-fill."""

    traces: int = 0
    not_found: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)
    without_record: int = 0
    cut_windows: int = 0
    records: int = 0
    sampled_out: int = 0
    already_evaluated: int = 0
    judged: int = 0
    ineligible: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    left: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    is_stopped: bool = False
    over_budget: str = ""
    broken_off: str = ""
    sessions: Counter[str] = field(default_factory=Counter)
    sessions_known: int = 0
    sessions_open: int = 0
    sessions_left: int = 0
    sessions_failed: Counter[str] = field(default_factory=Counter)
    is_limited: bool = False
    """Whether the selection's limit ended the search."""
    reached_ns: int = 0
    """The time that a search has reached: Unix time in nanoseconds."""

    @property
    def is_behind(self) -> bool:
        """Whether a later run must search again for records that were left."""
        return bool(self.left or self.unread or self.sessions_left)

    def leave(self, evaluation: Evaluation) -> None:
        """Count a record as not judged because the budget had no room."""
        self.usage += evaluation.usage
        self.left += 1

    def count(self, evaluation: Evaluation) -> None:
        """Count the outcome of a record: judged if a metric scored, else failed, else ineligible."""
        self.usage += evaluation.usage
        self.labels.update(str(result.label) for result in evaluation.results if result.score is not None)
        match outcome_of(evaluation):
            case AnswerOutcome(status=Status.FAILED, reason=str(error_type)):
                self.failed[error_type] += 1
            case AnswerOutcome(status=Status.INELIGIBLE, reason=str(skip_reason)):
                self.ineligible[skip_reason] += 1
            case _:
                self.judged += 1

    def report(self) -> BackfillReport:
        """Return the current counts."""
        counts = {field_.name: getattr(self, field_.name) for field_ in fields(BackfillReport)}
        frozen = {name: dict(count) for name, count in counts.items() if isinstance(count, Counter)}
        listed = {name: tuple(each) for name, each in counts.items() if isinstance(each, list)}
        return BackfillReport(**{**counts, **frozen, **listed})
