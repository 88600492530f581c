"""What the demo shows: about ten lines for people, a table for those who ask, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragtrace.cli.demo.results import AnswerResult, DemoResult, WrongClaim
from ragtrace.cli.demo.verdicts import ReadClaim, TraceVerdict
from ragtrace.cli.render import many, open_console, print_line
from ragtrace.escaping import escaped_json

_FINDINGS_SHOWN = 2


class TerminalShow:
    """For people."""

    def __init__(self, *, table: bool) -> None:
        self._console = open_console()
        self._live = Live(console=self._console, transient=True, refresh_per_second=8)
        self._with_table = table

    def introduction(self, *, answers: int, judges: Sequence[str], backend: str | None) -> None:
        """Say what is about to happen."""
        also = f" They also go to {backend}." if backend else ""
        self._console.print(
            f"{many(answers, 'answer')} of RAGTruth {'flows' if answers == 1 else 'flow'} through an"
            f" instrumented application and a collector.{also}"
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep a progress line while the traffic flows."""
        with self._live:
            yield

    def progress(self, *, sent: int, judged: int, total: int) -> None:
        """Say how far the run is, where there is a terminal to update."""
        self._live.update(Text(f"  {sent} of {many(total, 'answer')} sent, {judged} judged ...", style="dim"))

    def result(self, result: DemoResult) -> None:
        """Show the agreement of the judges with people, and a wrong claim."""
        if self._with_table:
            self._table(result)
        people, *others = result.judges
        flawed = sum(bool(answer.people.findings) for answer in result.answers)
        passed = len(result.answers) - flawed
        self._console.print(
            f"Verdicts: {people}, the annotators' own labels replayed: {passed} pass, {flawed} fail."
        )
        for judge in others:
            self._console.print(_compared(result, judge))
        if result.missing:
            self._console.print(f"{many(result.missing, 'answer')} without a verdict.", style="yellow")
        if wrong := result.wrong_claim():
            self._wrong(wrong, others)

    def _wrong(self, wrong: WrongClaim, others: Sequence[str]) -> None:
        self._console.print(Text.assemble(("A wrong claim: ", "bold red"), f"“{_flat(wrong.claim.claim)}”"))
        said = ", ".join(f"{judge}: {wrong.word_of(judge)}" for judge in others)
        self._console.print(Text.assemble(f"  {_why(wrong.claim)} ", (f"({said})", "dim")))
        if wrong.answer.link:
            self._console.print(f"Its trace: {wrong.answer.link}", soft_wrap=True)

    def page(self, url: str, *, stays: bool) -> None:
        """Say where the page is; of one that ends now, no address."""
        if stays:
            self._console.print("The claim in the answer, beside the passage (Ctrl-C ends the demo):")
            self._console.print(url, soft_wrap=True, style="bold")
        else:
            self._console.print("In a terminal, or with --stay, the demo shows this claim on its page.")

    def _table(self, result: DemoResult) -> None:
        self._console.print(_header(result.judges).table(), style="bold")
        for answer in result.answers:
            style = "red" if answer.parts() else "yellow" if _is_open(answer) else ""
            self._console.print(_line(answer).table(), style=style)
            for judge, verdict in answer.verdicts.items():
                self._findings(judge, verdict)
        self._console.print(
            "red: a judge and people part; yellow: a judge left too many claims open for a score\n",
            style="dim",
        )

    def _findings(self, judge: str, verdict: TraceVerdict) -> None:
        for finding in verdict.findings[:_FINDINGS_SHOWN]:
            text = Text(f"{judge}: “{_flat(finding.claim, 70)}” is {_why(finding)}", style="dim")
            for line in text.wrap(self._console, max(20, self._console.width - 4)):
                line.rstrip()
                line.pad_left(4)
                self._console.print(line)
        if len(verdict.findings) > _FINDINGS_SHOWN:
            more = len(verdict.findings) - _FINDINGS_SHOWN
            self._console.print(Text(f"    {judge}: {more} more in the trace", "dim"))


class JsonShow:
    """For machines: a JSON line an answer, then one with the summary."""

    def introduction(self, *, answers: int, judges: Sequence[str], backend: str | None) -> None:
        """Nothing: only results are for machines."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Nothing to prepare."""
        yield

    def progress(self, *, sent: int, judged: int, total: int) -> None:
        """Nothing: only results are for machines."""

    def page(self, url: str, *, stays: bool) -> None:
        """Nothing: it is in the summary."""

    def result(self, result: DemoResult) -> None:
        """Print the answers, then the summary. What is not under ``evaluations`` is of the last judge."""
        for answer in result.answers:
            _print_json(_answer(answer, result.judges[-1]))
        agreements = {judge: _agreement(result, judge) for judge in result.judges[1:]}
        wrong = result.wrong_claim()
        summary = {
            "judge": result.judges[-1],
            "missing": result.missing,
            **_agreement(result, result.judges[-1]),
        }
        shown = wrong and {
            "trace_id": wrong.answer.trace_id,
            **_claim(wrong.claim),
            **({"page": wrong.answer.page} if wrong.answer.page else {}),
        }
        _print_json({"summary": {**summary, "agreements": agreements, "wrong_claim": shown}})


def _answer(answer: AnswerResult, judge: str) -> Mapping[str, object]:
    return {
        "id": answer.labeled.id,
        "trace_id": answer.trace_id,
        "question": answer.labeled.question,
        **_verdict(answer.verdicts[judge]),
        "human": {
            "faithful": answer.labeled.is_faithful,
            "marked_sentences": answer.labeled.marked_sentences,
        },
        "evaluations": {name: _verdict(verdict) for name, verdict in answer.verdicts.items()},
        "link": answer.link,
    }


def _verdict(verdict: TraceVerdict) -> Mapping[str, object]:
    return {
        "score": verdict.score,
        "label": verdict.label,
        "claims": verdict.claims,
        "undecided": verdict.undecided,
        "failing_claims": [_claim(finding) for finding in verdict.findings],
    }


def _claim(claim: ReadClaim) -> Mapping[str, object]:
    return {
        "claim": claim.claim,
        "verdict": claim.verdict,
        "chunk_ids": claim.chunk_ids,
        "quote": claim.quote,
    }


def _agreement(result: DemoResult, judge: str) -> Mapping[str, object]:
    agreement = result.agreement(judge)
    return {
        "scored": agreement.total,
        "unscored": result.unscored(judge),
        "agreed": agreement.agreed,
        "flawed_to_both": agreement.both_flawed,
        "flawed_to_judge_only": agreement.judge_only,
        "flawed_to_people_only": agreement.people_only,
        "balanced_accuracy": agreement.balanced_accuracy,
    }


class _Line(NamedTuple):
    """One line of the table: the verdict of each judge, then the question, which gives way."""

    verdicts: Sequence[str]
    question: str

    def table(self) -> Table:
        """Lay the line out over the width there is."""
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for _ in self.verdicts:
            table.add_column(width=15, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_row(*self.verdicts, self.question)
        return table


def _header(judges: Sequence[str]) -> _Line:
    return _Line(verdicts=judges, question="question")


def _line(answer: AnswerResult) -> _Line:
    words = [
        verdict.word if verdict.score is None else f"{verdict.word} {verdict.score:.2f}"
        for verdict in answer.verdicts.values()
    ]
    return _Line(verdicts=words, question=answer.labeled.question)


def _is_open(answer: AnswerResult) -> bool:
    return any(verdict.score is None for verdict in answer.verdicts.values())


def _compared(result: DemoResult, judge: str) -> str:
    unscored = result.unscored(judge)
    why = ": too few claims were clear to it" if judge == "lexical" else ""
    left = f" {unscored} have no score{why}." if unscored else ""
    return f"{result.agreement(judge).sentence(_ABOUT.get(judge, judge))}{left}"


_ABOUT = {"lexical": "Beside it lexical, a heuristic without a key,"}


def _why(claim: ReadClaim) -> str:
    if claim.verdict == "unsupported":
        return "not in the passages"
    where = f" by {claim.chunk_ids[0]}" if claim.chunk_ids else ""
    quote = f": “{_flat(claim.quote)}”" if claim.quote else ""
    return f"contradicted{where}{quote}"


def _flat(text: str, longest: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _print_json(line: Mapping[str, object]) -> None:
    print_line(escaped_json(json.dumps(line, ensure_ascii=False)))


Show: TypeAlias = TerminalShow | JsonShow
"""Presents the run."""
