"""The report of a measurement: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ragtrace.calibration.measurement import JudgeCandidate, MeasuredAnswer, judged_supported
from ragtrace.calibration.plot import draw_plots
from ragtrace.calibration.results import Results
from ragtrace.calibration.wording import (
    basis,
    counted,
    floor_leads,
    interval,
    money,
    percent,
    recommendations,
)
from ragtrace.labeled_data import HumanLabel
from ragtrace.reports.report import open_template


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A claim on which people and a judge disagree. It contains judged text."""

    file: str
    answer_id: str
    claim: str
    human: str
    judge: str
    said: str
    reason: str


def disagreements(
    measured: Sequence[MeasuredAnswer], candidates: Sequence[JudgeCandidate], *, at_most: int
) -> Iterator[Example]:
    """Yield claims that a judge (not the floor) decided differently than people, in the sample's order."""
    left = at_most
    for each in sorted(measured, key=lambda answer: answer.position):
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


def render_page(results: Results, examples: Iterable[Example] = ()) -> str:
    """Write the report. Only ``examples`` contain judged text."""
    template = open_template(
        "calibration/page.html",
        count="{:,}".format,
        counted=counted,
        interval=interval,
        money=money,
        percent=percent,
    )
    return template.render(
        basis=basis(results),
        recommendations=recommendations(results),
        plots=draw_plots(results),
        groups=results.groups,
        leads={group.name: list(floor_leads(group)) for group in results.groups},
        examples=list(examples),
    )
