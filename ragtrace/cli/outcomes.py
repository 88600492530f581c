"""Outcomes for people: a table of answers and metrics, and the verdicts that cost a score."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from textwrap import wrap
from typing import TYPE_CHECKING, Final, TypeVar

from ragtrace.cli.render import by_kind, many, one_line, shortened
from ragtrace.model import (
    Blame,
    ChunkVerdict,
    CompatStatus,
    Direction,
    Evaluation,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Metric
from ragtrace.reports.report import MetricTally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_LABEL_STYLE = {Label.PASS: "green", Label.FAIL: "bold red", Label.ERROR: "bold yellow", Label.SKIPPED: "dim"}
_SCORE_WIDTH, _LABEL_WIDTH = 5, 7
_NARROWEST_ID, _OTHERS_WIDTH, _WIDEST = 8, 38, 32
_OWN_PROFILE: Final = "ragtrace"


class OutcomeTable:
    """A table that is printed row by row, so that it needs no more memory than one row.

    With one metric, a row is a record; with several, the records are headings and the rows are metrics.
    """

    def __init__(
        self, console: Console, *, metrics: Sequence[Metric], id_title: str = "id", id_width: int = 26
    ) -> None:
        self._console = console
        self._has_several = len(metrics) > 1
        self._id_title = id_title
        wanted = 2 + max(map(len, map(_name, metrics)), default=0) if self._has_several else id_width
        room = max(_NARROWEST_ID, console.width - _OTHERS_WIDTH)
        self._first_width = min(wanted, _WIDEST, room)
        self._has_header = False

    def print_evaluation(self, record: RagRecord, evaluation: Evaluation) -> None:
        """Print what each metric found about the record; above the first, the names of the columns."""
        if not self._has_header:
            self._print_header()
        shown_id = one_line(record.target.trace_id if record.target else record.id)
        if self._has_several:
            self._console.print(shown_id, style="bold")
        already: set[object] = set()
        for outcome in evaluation.outcomes:
            self._console.print(self._outcome(shown_id, outcome))
            if isinstance(outcome, MetricResult):
                print_failures(self._console, outcome, record, already)
                print_reason(self._console, outcome)
        print_blame(self._console, evaluation.blame)

    def _print_header(self) -> None:
        first = f"{self._id_title}, metric" if self._has_several else self._id_title
        self._console.print(self._row(first, "score", "label", "", "explanation"), style="bold")
        self._has_header = True

    def _outcome(self, record_id: str, outcome: MetricOutcome) -> Table:
        return self._row(
            f"  {_name(outcome)}" if self._has_several else record_id,
            _score(outcome),
            str(outcome.label),
            _LABEL_STYLE[outcome.label],
            one_line(_explanation(outcome) + _what_the_peer_says(outcome)),
        )

    def _row(self, first: str, score: str, label: str, style: str, explanation: str) -> Table:
        widths = (self._first_width, _SCORE_WIDTH, _LABEL_WIDTH)
        return _grid(widths, (first, ""), (score.rjust(_SCORE_WIDTH), ""), (label, style), (explanation, ""))


def _grid(widths: Sequence[int], *cells: tuple[str, str]) -> Table:
    """Return a row of texts with their styles, which wrap in their columns; the last takes what is left."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), expand=True)
    for width in widths:
        grid.add_column(width=width, overflow="fold")
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(*(Text(text, style=style) for text, style in cells))
    return grid


def tally_lines(tally: MetricTally) -> Iterator[str]:
    """Say it in words, every number with what it is a part of."""
    yield f"{tally.metric}: {many(tally.records, 'record')}"
    better = ", lower is better" if tally.direction is Direction.LOWER_IS_BETTER else ""
    yield (
        f"  scored   {tally.scored} (pass {tally.labels[Label.PASS]}, fail {tally.labels[Label.FAIL]})"
        + (f", mean score {tally.mean:.2f} over these {tally.scored}" if tally.mean is not None else "")
        + better
    )
    if tally.pass_when:
        yield from wrap(f"  pass is  {tally.pass_when}", 79, subsequent_indent=" " * 11)
    yield f"  skipped  {by_kind(tally.skipped)}"
    yield f"  errors   {by_kind(tally.errors)}"
    for title, verdicts in (("claims", tally.claims), ("chunks", tally.chunks)):
        if verdicts:
            yield f"  {title}   {by_kind({_word(label): number for label, number in verdicts.items()})}"
    yield f"  calls    {tally.calls} to the judge"


def _word(label: VerdictLabel) -> str:
    return label.replace("_", " ")


def _name(measured: Metric | MetricOutcome) -> str:
    name = measured.name if not isinstance(measured, MetricResult | MetricFailure) else measured.metric
    return name if measured.profile == _OWN_PROFILE else f"{name}.{measured.profile}"


def _score(outcome: MetricOutcome) -> str:
    if isinstance(outcome, MetricResult) and outcome.score is not None:
        return f"{outcome.score:.2f}"
    return "-"


def _explanation(outcome: MetricOutcome) -> str:
    if isinstance(outcome, MetricFailure):
        return f"{outcome.error_type}: {outcome.message}"
    if outcome.skip_reason is not None:
        return f"{outcome.skip_reason}: {outcome.explanation}"
    return outcome.explanation


def _what_the_peer_says(outcome: MetricOutcome) -> str:
    """Say what the other tool itself reports, if that differs from the score."""
    if outcome.compat is None:
        return ""
    status, number = outcome.compat.status, outcome.compat.score
    if status is CompatStatus.OK and number == getattr(outcome, "score", None):
        return ""
    said = status.value if number is None else f"{number:.3g}"
    return f" ({outcome.profile} itself: {said})"


VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)

_FAILING: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.NOT_MET,
)
_OF_REFERENCE: Final = "reference"
_INDENT: Final = 2
_CHUNK_CHARS: Final = 120
_MOST_CHUNKS: Final = 10


def print_failures(console: Console, result: MetricResult, record: RagRecord, already: set[object]) -> None:
    """Print the failing verdicts of a result, without those that an earlier metric showed.

    ``already`` holds what was shown of this record; it grows.
    """
    for verdict in _new(result.verdicts, already):
        of_answer = "by the reference: " if verdict.claim.start is not None else "reference: "
        about = of_answer if verdict.claim.kind == _OF_REFERENCE else ""
        about += "incidental: " if verdict.is_incidental else ""
        _print_lines(console, _word(verdict.label), about + one_line(verdict.claim.text), _evidence(verdict))
    chunks = list(_new(result.chunk_verdicts, already))
    for chunk in islice(chunks, _MOST_CHUNKS):
        _print_lines(console, chunk.label, _shown_chunk(chunk, record), _reason(chunk.reason))
    if (more := len(chunks) - _MOST_CHUNKS) > 0:
        _print_lines(console, VerdictLabel.IRRELEVANT, f"… and {more} more chunks", ())


def print_reason(console: Console, result: MetricResult) -> None:
    """Print why the judge says that it scored so, where it was asked."""
    if result.reason:
        _print_lines(console, "reason", one_line(result.reason), (), style="dim")


def print_blame(console: Console, blame: Blame) -> None:
    """Print which hops failed, with their evidence."""
    for fault in blame.faults:
        where = f"claim {fault.claim + 1}: " if fault.claim is not None else ""
        chunks = ", ".join(one_line(each) for each in fault.chunk_ids)
        quote = f"{chunks}: “{one_line(fault.quote)}”" if fault.quote else chunks
        line = f"{fault.blame.value.replace('_', ' ')}: {where}{fault.why}"
        _print_lines(console, "cause", line, _reason(quote))


def _new(verdicts: Iterable[VerdictT], already: set[object]) -> Iterator[VerdictT]:
    """Yield the failing verdicts that were not shown, worst first, and note them."""
    for label in _FAILING:
        for verdict in verdicts:
            if verdict.label is label and already.isdisjoint(_marks(verdict)):
                already.update(_marks(verdict))
                yield verdict


def _marks(verdict: Verdict | ChunkVerdict) -> set[Hashable]:
    """Return what a verdict is known by: the same label on the same part of the answer is no news."""
    if isinstance(verdict, ChunkVerdict) or verdict.claim.start is None:
        return {verdict}
    return {verdict, (verdict.label, verdict.claim.start, verdict.claim.end)}


def _print_lines(
    console: Console, label: str, text: str, details: Iterable[str], *, style: str = "red"
) -> None:
    widths = (_INDENT, len(VerdictLabel.CONTRADICTED))
    console.print(_grid(widths, ("", ""), (label, style), (text, "")))
    for line in details:
        console.print(_grid(widths, ("", ""), ("", ""), (line, "dim")))


def _evidence(verdict: Verdict) -> Iterator[str]:
    chunks = ", ".join(one_line(each) for each in verdict.chunk_ids)
    if verdict.quote is not None:
        yield f"{chunks or 'answer'}: “{one_line(verdict.quote)}”"
    elif chunks:
        yield f"{chunks} (without a quote that could be found there)"
    yield from _reason(verdict.reason)


def _shown_chunk(verdict: ChunkVerdict, record: RagRecord) -> str:
    text = next((chunk.text for chunk in record.chunks if chunk.id == verdict.chunk_id), None)
    line = one_line(text or "")
    shown = shortened(line, _CHUNK_CHARS)
    return f"chunk {verdict.rank + 1}, {one_line(verdict.chunk_id)}: {shown}"


def _reason(reason: str | None) -> Iterator[str]:
    if reason:
        yield one_line(reason)
