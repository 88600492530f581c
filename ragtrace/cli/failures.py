"""The verdicts that cost a score, for people: claims, statements, sentences of the reference, and chunks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from ragtrace.cli.render import one_line, shortened
from ragtrace.model import Blame, ChunkVerdict, MetricResult, RagRecord, Verdict, VerdictLabel

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)

_FAILING: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED, VerdictLabel.IRRELEVANT)
_OF_REFERENCE: Final = "reference"
_INDENT: Final = 2
_CHUNK_CHARS: Final = 120
_MOST_CHUNKS: Final = 10


def print_failures(console: Console, result: MetricResult, record: RagRecord, already: set[object]) -> None:
    """Print the failing verdicts of a result, without those that an earlier metric showed.

    ``already`` holds what was shown of this record; it grows.
    """
    for verdict in _new(result.verdicts, already):
        about = "reference: " if verdict.claim.kind == _OF_REFERENCE else ""
        console.print(_lines(verdict.label, about + one_line(verdict.claim.text), _evidence(verdict)))
    chunks = list(_new(result.chunk_verdicts, already))
    for chunk in islice(chunks, _MOST_CHUNKS):
        console.print(_lines(chunk.label, _shown_chunk(chunk, record), _reason(chunk.reason)))
    if (more := len(chunks) - _MOST_CHUNKS) > 0:
        console.print(_lines(VerdictLabel.IRRELEVANT, f"… and {more} more chunks", ()))


def print_reason(console: Console, result: MetricResult) -> None:
    """Print why the judge says that it scored so, where it was asked."""
    if result.reason:
        console.print(_lines("reason", one_line(result.reason), (), style="dim"))


def print_blame(console: Console, blame: Blame) -> None:
    """Print which hops failed, with their evidence."""
    for fault in blame.faults:
        where = f"claim {fault.claim + 1}: " if fault.claim is not None else ""
        chunks = ", ".join(one_line(each) for each in fault.chunk_ids)
        quote = f"{chunks}: “{one_line(fault.quote)}”" if fault.quote else chunks
        line = f"{fault.blame.value.replace('_', ' ')}: {where}{fault.why}"
        console.print(_lines("cause", line, _reason(quote)))


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


def _lines(label: str, text: str, details: Iterable[str], *, style: str = "red") -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(width=_INDENT)
    grid.add_column(width=len(VerdictLabel.CONTRADICTED))
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("", Text(label, style=style), Text(text))
    for line in details:
        grid.add_row("", "", Text(line, style="dim"))
    return grid


def _evidence(verdict: Verdict) -> Iterator[str]:
    chunks = ", ".join(one_line(each) for each in verdict.chunk_ids)
    if verdict.quote is not None:
        yield f"{chunks}: “{one_line(verdict.quote)}”"
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
