"""The table of judge cards in docs/judge-cards.md is written from the cards of the package."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ragtrace.metrics.judge_card import CardSet, IntervalEstimate, shipped_cards
from tests.checkout import ROOT

PAGE = ROOT / "docs" / "judge-cards.md"
BEGIN, END = "<!-- cards: written by tests/docs/test_judge_cards.py -->\n", "<!-- end of cards -->\n"


def table() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for card in shipped_cards().values():
        yield f"`{card.provider}:{card.model}`, measured on {card.date}:"
        yield ""
        yield (
            "| data | claims (unsupported) | AUC | AUC of the floor | balanced accuracy |"
            " the floor's | decided | precision of *unsupported* |"
            " recall of all | of the decided | flawed among passed, failed, undecided | calibration error |"
        )
        yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        yield from (_row(measured) for measured in card.sets)
        yield ""
        yield (
            "| data | documents | AUC minus the floor's | balanced accuracy minus the floor's |"
            " AURC | AURC of the floor | decided at 5 % errors | at 10 % |"
        )
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
        yield from (_paired_row(measured) for measured in card.sets if measured.documents)
        yield ""
        for source in dict.fromkeys(of.source for of in card.sets):
            names = ", ".join(of.name for of in card.sets if of.source == source)
            yield f"- {names}: {source}."


def _row(of: CardSet) -> str:
    claims = "-" if of.claims is None else f"{of.claims:,} ({of.unsupported:,})"
    ranks = (of.auc, of.floor_auc, of.two_way, of.floor_two_way)
    figures = (*ranks, of.decided, of.precision, of.recall, of.recall_of_decided)
    answers = of.of_answers
    flawed = (
        "-"
        if answers is None
        else f"{answers.passed_flawed} of {answers.passed}, {answers.failed_flawed} of {answers.failed},"
        f" {answers.undecided_flawed} of {answers.undecided}"
    )
    error = "-" if of.calibration_error is None else f"{of.calibration_error:.2f}"
    return f"| {of.name} | {claims} | {' | '.join(map(_figure, figures))} | {flawed} | {error} |"


def _paired_row(of: CardSet) -> str:
    leads = [_figure(lead, signed=True) for lead in (of.auc_lead, of.two_way_lead)]
    areas = [_figure(area) for area in (of.risk_coverage_area, of.floor_risk_coverage_area)]
    limits = [_figure(limit.coverage) for limit in of.risk_limits]
    return f"| {of.name} | {of.documents} | {' | '.join((*leads, *areas, *limits))} |"


def _figure(found: IntervalEstimate | None, *, signed: bool = False) -> str:
    if found is None:
        return "-"
    form = "+.2f" if signed else ".2f"
    interval = "" if found.low is None else f" [{found.low:{form}}, {found.high:{form}}]"
    return f"{found.value:{form}}{interval}"


def test_the_page_shows_the_cards() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("REGENERATE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")
        return
    assert found.strip() == table().strip(), "run once with REGENERATE_GOLDEN=1 if this is meant"
