"""What the demo shows: a line an answer as its verdict arrives, and what it adds up to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ragtrace.cli.demo.agreement import Agreement
from ragtrace.cli.demo.traffic import DemoAnswer
from ragtrace.cli.demo.verdicts import FailedClaim, TraceVerdict
from ragtrace.cli.render import print_line
from ragtrace.escaping import escaped_json

_FINDINGS_SHOWN = 2


class Show(Protocol):
    """Presents the run."""

    def introduction(self, *, answers: int, judge: str, backend: str | None) -> None:
        """Say what is about to happen."""
        ...

    def running(self) -> AbstractContextManager[None]:
        """Be on stage while the traffic flows."""
        ...

    def progress(self, *, sent: int, judged: int, total: int) -> None:
        """Say how far the run is."""
        ...

    def verdict(self, labeled: DemoAnswer, verdict: TraceVerdict, link: str | None) -> None:
        """Show one answer."""
        ...

    def summary(
        self, agreement: Agreement, *, judge: str, unscored: int, missing: int, worst: str | None
    ) -> None:
        """Show what it adds up to."""
        ...


class TerminalShow:
    """For people."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=False)
        self._live = Live(console=self._console, transient=True, refresh_per_second=8)

    def introduction(self, *, answers: int, judge: str, backend: str | None) -> None:
        """Say what is about to happen."""
        also = f" Traces and verdicts also go to {backend}." if backend else ""
        self._console.print(
            f"{answers} human-labeled answers flow through an instrumented application and a collector. "
            f"Judge: {judge}.{also}\n"
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep a progress line below the answers while the traffic flows."""
        header = _Line("verdict", "score", "wrong", "open", "people marked", "question")
        self._console.print(header.table(), style="bold")
        with self._live:
            yield

    def progress(self, *, sent: int, judged: int, total: int) -> None:
        """Say how far the run is, where there is a terminal to update."""
        self._live.update(Text(f"  {sent} of {total} answers sent, {judged} judged ...", style="dim"))

    def verdict(self, labeled: DemoAnswer, verdict: TraceVerdict, link: str | None) -> None:
        """Show one answer, and the claims of it that failed."""
        failed = len(verdict.findings)
        decided = verdict.claims - verdict.undecided
        marked = len(labeled.marked_sentences)
        line = _Line(
            verdict=verdict.word,
            score="-" if verdict.score is None else f"{verdict.score:.2f}",
            wrong=f"{failed} of {decided}" if decided else "",
            open=str(verdict.undecided or ""),
            people=f"{marked} sentence{'s' * (marked != 1)}" if marked else "nothing",
            question=labeled.question,
        )
        style = "red" if failed else "" if verdict.score is not None else "yellow"
        self._console.print(line.table(), style=style)
        for finding in verdict.findings[:_FINDINGS_SHOWN]:
            self._console.print(_described(finding))
        if failed > _FINDINGS_SHOWN:
            self._console.print(Text(f"        … and {failed - _FINDINGS_SHOWN} more in the trace", "dim"))

    def summary(
        self, agreement: Agreement, *, judge: str, unscored: int, missing: int, worst: str | None
    ) -> None:
        """Show the agreement with people, and where to look next."""
        self._console.print()
        self._console.print(
            "wrong: of the claims the judge decided; open: claims it left undecided", style="dim"
        )
        self._console.print(f"Judge: {judge}")
        self._console.print(agreement.sentence())
        if unscored:
            self._console.print(
                f"{unscored} answers have no score: too few of their claims were decided, or none was made."
            )
        if missing:
            self._console.print(f"{missing} answers have no verdict.", style="yellow")
        if worst:
            self._console.print("The lowest score in its trace:")
            self._console.print(worst, soft_wrap=True)


class JsonShow:
    """For machines: a JSON line an answer, then one with the summary."""

    def introduction(self, *, answers: int, judge: str, backend: str | None) -> None:
        """Nothing: only results are for machines."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Nothing to prepare."""
        yield

    def progress(self, *, sent: int, judged: int, total: int) -> None:
        """Nothing: only results are for machines."""

    def verdict(self, labeled: DemoAnswer, verdict: TraceVerdict, link: str | None) -> None:
        """Print one answer."""
        _print_json(
            {
                "id": labeled.id,
                "trace_id": verdict.trace_id,
                "question": labeled.question,
                "score": verdict.score,
                "label": verdict.label,
                "claims": verdict.claims,
                "undecided": verdict.undecided,
                "failing_claims": [
                    {
                        "claim": finding.claim,
                        "verdict": finding.verdict,
                        "chunk_ids": finding.chunk_ids,
                        "quote": finding.quote,
                    }
                    for finding in verdict.findings
                ],
                "human": {
                    "faithful": labeled.is_faithful,
                    "marked_sentences": labeled.marked_sentences,
                },
                "link": link,
            }
        )

    def summary(
        self, agreement: Agreement, *, judge: str, unscored: int, missing: int, worst: str | None
    ) -> None:
        """Print the summary."""
        _print_json(
            {
                "summary": {
                    "judge": judge,
                    "scored": agreement.total,
                    "unscored": unscored,
                    "missing": missing,
                    "agreed": agreement.agreed,
                    "flawed_to_both": agreement.both_flawed,
                    "flawed_to_judge_only": agreement.judge_only,
                    "flawed_to_people_only": agreement.people_only,
                    "balanced_accuracy": agreement.balanced_accuracy,
                }
            }
        )


class _Line(NamedTuple):
    """One line of the table: printed as soon as it is known, so every line sets its own, equal, columns."""

    verdict: str
    score: str
    wrong: str
    open: str
    people: str
    question: str

    def table(self) -> Table:
        """Lay the line out over the width there is; the question gives way."""
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(width=9, no_wrap=True)
        table.add_column(width=5, justify="right", no_wrap=True)
        table.add_column(width=7, no_wrap=True)
        table.add_column(width=4, justify="right", no_wrap=True)
        table.add_column(width=13, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_row(*self)
        return table


def _described(finding: FailedClaim) -> Padding:
    where = " and ".join(finding.chunk_ids)
    what = (
        f"contradicted by {where}" if finding.verdict == "contradicted" and where else _WORDS[finding.verdict]
    )
    text = Text.assemble((f"{what}: ", "bold"), f"“{_flat(finding.claim)}”")
    if finding.quote:
        text.append(f" — it says “{_flat(finding.quote)}”", "dim")
    elif finding.reason:
        text.append(f" — {_flat(finding.reason)}", "dim")
    return Padding(text, (0, 0, 0, 7))


_WORDS: Mapping[str, str] = {"unsupported": "not in the passages", "contradicted": "contradicted"}


def _flat(text: str, longest: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _print_json(line: Mapping[str, object] | Sequence[object]) -> None:
    print_line(escaped_json(json.dumps(line, ensure_ascii=False)))
