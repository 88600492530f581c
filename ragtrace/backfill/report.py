"""The outcome of every trace and record of a back-fill."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from ragtrace.model import AnswerOutcome, Evaluation, Status, Usage, outcome_of


@dataclass(kw_only=True)
class BackfillReport:
    """The outcome of every trace and record: ``records`` is the sum of ``sampled_out``,
    ``already_evaluated``, ``judged``, ``ineligible``, ``failed`` and ``left``."""

    traces: int = 0
    not_found: list[str] = field(default_factory=list)
    """Requested or found trace ids that the source does not have."""
    unread: list[str] = field(default_factory=list)
    """Trace ids that the source could not return."""
    unreadable: dict[str, int] = field(default_factory=Counter)
    """Traces on which the extraction failed, by type of the error."""
    without_record: int = 0
    """Traces without a RAG call."""
    cut_windows: int = 0
    """Time ranges with more traces than the source returns: some are missing."""
    records: int = 0
    sampled_out: int = 0
    already_evaluated: int = 0
    """Their carrier is in the source or the destination, or an earlier run sent it."""
    judged: int = 0
    ineligible: dict[str, int] = field(default_factory=Counter)
    """Records without a score because there was nothing to judge, by reason, as in the collector's ledger."""
    failed: dict[str, int] = field(default_factory=Counter)
    """Records on which the judge failed, by type. No carrier was sent: a second run tries them again."""
    left: int = 0
    """Selected records that were not judged: the run was stopped, or its budget was used up."""
    labels: dict[str, int] = field(default_factory=Counter)
    """``pass`` and ``fail`` of the metrics with a score."""
    sent: int = 0
    rejected: dict[str, int] = field(default_factory=Counter)
    """Carriers that the destination rejected, by its message."""
    usage: Usage = field(default_factory=Usage)
    is_stopped: bool = False
    """Whether the run was stopped before its end."""
    over_budget: str = ""
    """The limit that had no room for a request; empty if none."""
    broken_off: str = ""
    """Why reading the source stopped early; empty if it was read completely."""
    sessions: dict[str, int] = field(default_factory=Counter)
    """Sessions that were judged, by label; empty if they are not asked for."""
    sessions_known: int = 0
    """Sessions of which a span was written before, by these verdicts on the same turns."""
    sessions_open: int = 0
    """Sessions that are not over yet, or were not read to their end: a later run judges them."""
    sessions_left: int = 0
    """Sessions that were not judged: the run was stopped, or its budget was used up."""
    sessions_failed: dict[str, int] = field(default_factory=Counter)
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


@dataclass(kw_only=True)
class RunCounts(BackfillReport):
    """The counts of a running back-fill."""

    is_limited: bool = False
    """Whether the selection's limit ended the search."""
    reached_ns: int = 0
    """The time that a search has reached: Unix time in nanoseconds."""

    @property
    def has_left_some(self) -> bool:
        """Whether a later run must search again for records that were left."""
        return bool(self.left or self.unread or self.sessions_left)

    def leave(self, evaluation: Evaluation) -> None:
        """Count a record as not judged because the budget had no room."""
        self.usage += evaluation.usage
        self.left += 1

    def count(self, evaluation: Evaluation) -> None:
        """Count the outcome of a record: judged if a metric scored, else failed, else ineligible."""
        self.usage += evaluation.usage
        for result in evaluation.results:
            if result.score is not None:
                self.labels[str(result.label)] += 1
        match outcome_of(evaluation):
            case AnswerOutcome(status=Status.FAILED, reason=str(error_type)):
                self.failed[error_type] += 1
            case AnswerOutcome(status=Status.INELIGIBLE, reason=str(skip_reason)):
                self.ineligible[skip_reason] += 1
            case _:
                self.judged += 1

    def report(self) -> BackfillReport:
        """Return the current counts."""
        counts = {each.name: getattr(self, each.name) for each in fields(BackfillReport)}
        plain = {name: dict(count) for name, count in counts.items() if isinstance(count, Counter)}
        return BackfillReport(**{**counts, **plain})
