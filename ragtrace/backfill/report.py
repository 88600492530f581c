"""What became of every trace and every record of a back-fill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ragtrace.model import Evaluation, Usage
from ragtrace.outcomes import AnswerOutcome, Status, outcome_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    """What became of every trace and every record: ``records`` is the sum of ``sampled_out``,
    ``already_evaluated``, ``judged``, ``ineligible``, ``failed`` and ``left``."""

    traces: int
    not_found: tuple[str, ...]
    """Trace ids that were asked for, or found by a search, and that the source does not have."""
    unread: tuple[str, ...]
    """Trace ids that the source has, and could not give."""
    unreadable: Mapping[str, int]
    """Traces whose spans broke the extraction, by the type of the error."""
    without_record: int
    """Traces that hold no RAG call."""
    cut_windows: int
    """Stretches of time with more traces than the source gives: some of theirs are missing."""
    records: int
    sampled_out: int
    already_evaluated: int
    """Their carrier stands in the source or the destination, or was sent by an earlier run."""
    judged: int
    ineligible: Mapping[str, int]
    """Records without a score because there was nothing to judge, by reason: as the collector's ledger."""
    failed: Mapping[str, int]
    """Records the judge failed on, by type. Nothing was sent about them: a second run tries them again."""
    left: int
    """Records that were chosen, and not judged: the run was stopped, or had nothing left to spend."""
    labels: Mapping[str, int]
    """``pass`` and ``fail`` of the metrics that scored."""
    sent: int
    rejected: Mapping[str, int]
    """Carriers that the destination will never take, by what it said."""
    usage: Usage
    is_stopped: bool
    """The run was asked to stop before its end."""
    over_budget: str
    """Which limit had no room for a request; empty if all had."""
    broken_off: str
    """Why the source was read no further; empty if it was read to its end."""

    @property
    def is_behind(self) -> bool:
        """Whether something remains for a later run."""
        return bool(self.left or self.unread or self.is_stopped or self.broken_off)

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed, was rejected, was cut or was not there."""
        gaps = (self.not_found, self.unread, self.unreadable, self.failed, self.rejected, self.cut_windows)
        return not any(gaps) and not self.broken_off


@dataclass(slots=True, kw_only=True)
class RunCounts:
    """The counts of a run under way."""

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
    reached_ns: int = 0
    """Up to when a search has come: Unix time in nanoseconds."""

    @property
    def is_behind(self) -> bool:
        """Whether something was left that a later run may judge: it must be searched for again."""
        return bool(self.left or self.unread)

    def leave(self, evaluation: Evaluation) -> None:
        """Count a record as not judged, for which the budget had no room."""
        self.usage += evaluation.usage
        self.left += 1

    def count(self, evaluation: Evaluation) -> None:
        """Count what became of a record: judged where one metric scored, else failed, else ineligible."""
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
        """Return the counts as they stand."""
        counts = {each.name: getattr(self, each.name) for each in fields(BackfillReport)}
        frozen = {name: dict(count) for name, count in counts.items() if isinstance(count, Counter)}
        listed = {name: tuple(each) for name, each in counts.items() if isinstance(each, list)}
        return BackfillReport(**{**counts, **frozen, **listed})
