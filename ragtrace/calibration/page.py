"""The report of a measurement: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from ragtrace.calibration.labelled import HumanLabel
from ragtrace.calibration.measuring import Candidate, Measured, judged_supported
from ragtrace.calibration.results import CandidateResult, Cut, GroupResult, Level, Results
from ragtrace.calibration.wording import basis, counted, interval, money, percent, recommendations

__all__ = ["Example", "disagreements", "render_page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A claim that people and a judge see differently. It holds text under judgment."""

    file: str
    answer_id: str
    claim: str
    human: str
    judge: str
    said: str
    reason: str


def disagreements(
    measured: Sequence[Measured], candidates: Sequence[Candidate], *, at_most: int
) -> Iterator[Example]:
    """Yield claims that a judge (not the floor) decided otherwise than people did, in the sample's order."""
    left = at_most
    for each in sorted(measured, key=lambda each: each.position):
        for candidate, runs in zip(candidates, each.runs, strict=True):
            if candidate.is_floor or not runs[0].verdicts:
                continue
            for label, verdict in zip(each.answer.labels, runs[0].verdicts, strict=True):
                said = judged_supported(verdict)
                if said is None or said == (label is HumanLabel.SUPPORTED) or not left:
                    continue
                left -= 1
                yield Example(
                    file=each.answer.file,
                    answer_id=each.answer.record.id,
                    claim=verdict.claim.text,
                    human=str(label),
                    judge=candidate.name,
                    said=str(verdict.label),
                    reason=verdict.reason or "",
                )


def render_page(results: Results, plot: str, examples: Iterable[Example] = ()) -> str:
    """Write the report. Only ``examples`` bring text under judgment into it."""
    template = Template(files("ragtrace.calibration").joinpath("page.html").read_text("utf-8"))
    return template.substitute(
        recommendations="".join(f"<li>{escape(line)}</li>" for line in recommendations(results)),
        plot=plot,
        sampling=escape(" ".join(basis(results))),
        groups="".join(_group(group) for group in results.groups),
        examples=_examples(list(examples)),
    )


def _group(group: GroupResult) -> str:
    rows = [
        row
        for candidate in group.candidates
        for row in (
            _figures(candidate, "claims", candidate.claims),
            _figures(candidate, "answers", candidate.answers),
            *([_figures(candidate, "end to end", candidate.end_to_end)] if candidate.end_to_end else []),
        )
    ]
    return (
        f"<h2>{escape(group.name)}</h2><p>{group.answers} of {counted(group.of_answers, 'answer')}</p>"
        + _table(_FIGURES, rows)
        + "<h3>What it took</h3>"
        + _table(_EFFORT, [_effort(candidate) for candidate in group.candidates])
        + _thresholds(group)
        + "<h3>Who said what</h3><p>Rows: people; columns: the judge. Plain counts.</p><div class=confusions>"
        + "".join(_confusion(candidate, "claims", candidate.claims) for candidate in group.candidates)
        + "".join(_confusion(candidate, "answers", candidate.answers) for candidate in group.candidates)
        + "</div>"
    )


_FIGURES = (
    "judge",
    "of",
    "number",
    "unsupported",
    "decided",
    "balanced accuracy, two-way",
    "of the decided",
    "precision of unsupported",
    "recall of unsupported",
    "κ",
    "AUC",
)


def _figures(candidate: CandidateResult, what: str, level: Level) -> list[str]:
    return [
        candidate.name,
        what,
        str(level.things),
        str(level.unsupported),
        percent(level.decided),
        interval(level.two_way),
        interval(level.balanced_accuracy),
        interval(level.precision),
        interval(level.recall),
        interval(level.kappa),
        interval(level.auc),
    ]


_EFFORT = ("judge", "calls", "tokens in", "tokens out", "cost", "s an answer", "failed", "skipped", "flips")


def _effort(candidate: CandidateResult) -> list[str]:
    return [
        candidate.name,
        f"{candidate.usage.calls:,}",
        f"{candidate.usage.input_tokens:,}",
        f"{candidate.usage.output_tokens:,}",
        money(candidate.cost),
        f"{candidate.seconds_an_answer:.2f}",
        _kinds(candidate.failures.items()),
        _kinds(candidate.skipped.items()),
        f"{percent(candidate.flips)} in {candidate.runs} runs" if candidate.runs > 1 else "1 run",
    ]


def _thresholds(group: GroupResult) -> str:
    cuts = [
        (candidate.name, what, cut)
        for candidate in group.candidates
        for what, cut in (
            ("claims: P(Yes)", candidate.claim_cut),
            ("answers: faithfulness", candidate.answer_cut),
        )
        if cut is not None
    ]
    if not cuts:
        return ""
    return "<h3>Thresholds</h3>" + _table(_CUTS, [[name, what, *_cut(cut)] for name, what, cut in cuts])


_CUTS = (
    "judge",
    "of",
    "recommended",
    "best in sample",
    "its accuracy there",
    "on held-out answers",
    "at 0.5",
)


def _cut(cut: Cut) -> list[str]:
    return [
        f"{cut.recommended:.2f}",
        interval(cut.best),
        f"{cut.at_best:.2f}",
        interval(cut.held_out),
        interval(cut.at_default),
    ]


def _confusion(candidate: CandidateResult, what: str, level: Level) -> str:
    said = sorted({judge for row in level.confusion.values() for judge in row})
    rows = [[human, *(str(row.get(judge, 0)) for judge in said)] for human, row in level.confusion.items()]
    return f"<div><h4>{escape(candidate.name)}: {what}</h4>{_table(('', *said), rows)}</div>"


def _examples(examples: Sequence[Example]) -> str:
    if not examples:
        return ""
    rows = [[e.file, e.answer_id, e.claim, e.human, e.judge, e.said, e.reason] for e in examples]
    head = ("file", "answer", "claim", "people", "judge", "says", "its reason")
    return f"<h2>Where people and judge differ</h2><div class=examples>{_table(head, rows)}</div>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"


def _kinds(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts) or "0"
