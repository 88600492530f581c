"""A comparison as JSON, as Markdown for a pull request, as a page; and its figures in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from ragtrace.quality.comparing import (
    AnswerChange,
    ClaimChange,
    GateVerdict,
    MetricComparison,
    VersionComparison,
)
from ragtrace.quality.wording import ABSENT, sentence, signed

SHOWN: Final = 10
"""Changed answers that people see; JSON has all."""


class Row(NamedTuple):
    """One difference in words."""

    what: str
    first: str
    second: str
    change: str
    interval: str
    verdict: str


def rows(metric: MetricComparison) -> Iterator[Row]:
    """Yield pass rate and mean score of a metric."""
    for what, found, scale, digits in (
        ("pass rate, %", metric.passing, 100, 1),
        ("mean score", metric.mean, 1, 3),
    ):
        verdict = metric.verdict(passes=found is metric.passing)
        if found is None:
            yield Row(what, ABSENT, ABSENT, ABSENT, ABSENT, verdict)
            continue
        first, second = (f"{scale * value:.{digits}f}" for value in (found.first, found.second))
        change, low, high = (signed(scale * value, digits) for value in (found.change, found.low, found.high))
        yield Row(what, first, second, change, f"{low} to {high}", verdict)


def counted(metric: MetricComparison) -> str:
    """Say how many answers the differences of a metric are of."""
    found = metric.mean
    if found is None:
        return "nothing to compare"
    first, second = found.records
    if metric.p_value is None:
        return f"{first:,} and {second:,} answers"
    turned = f"{metric.to_pass:,} to pass, {metric.to_fail:,} to fail"
    alike = "" if metric.kappa is None else f", agreement beyond chance (kappa) {metric.kappa:.2f}"
    return f"pairs that turn: {turned} (McNemar p = {metric.p_value:.2g}){alike}"


def matched(found: VersionComparison) -> str:
    """Say how answers were paired."""
    ways = [(found.by_id, "record id"), (found.by_question, "question")]
    named = " and ".join(f"{number:,} by {how}" for number, how in ways if number)
    number = found.by_id + found.by_question
    if not number:
        return "no pairs: two samples"
    same = f", {found.unchanged:,} of the same texts" if found.unchanged else ""
    compared = "" if found.is_paired else "; compared as two samples"
    return f"{number:,} pair{'' if number == 1 else 's'} ({named}{same}){compared}"


def title(change: AnswerChange) -> str:
    """Name a changed answer by its ids."""
    first, second = change.names
    return first if first == second else f"{first} | {second}"


def scores(change: AnswerChange) -> str:
    """Write the scores and labels of a changed answer: ``1.00 pass | 0.50 fail``."""
    return " | ".join(
        f"{ABSENT if score is None else f'{score:.2f}'} {label}"
        for score, label in zip(change.scores, change.labels, strict=True)
    )


def claim_labels(claim: ClaimChange) -> str:
    """Write what both say of a claim; a claim that an answer does not make has no label there."""
    return f"{claim.first or ABSENT} | {claim.second or ABSENT}"


def comparison_as_json(found: VersionComparison, gates: Sequence[GateVerdict] = ()) -> dict[str, Any]:
    """Return the comparison as plain values."""
    groups = [
        {"name": name, "metrics": [_metric(metric) for metric in metrics]}
        for name, metrics in found.groups.items()
        if name
    ]
    return {
        "version": 1,
        "a": {"name": found.names[0], "answers": found.answers[0], "judges": found.judges[0]},
        "b": {"name": found.names[1], "answers": found.answers[1], "judges": found.judges[1]},
        "is_paired": found.is_paired,
        "pairs": {"by_id": found.by_id, "by_question": found.by_question, "same_texts": found.unchanged},
        "metrics": [_metric(metric) for metric in found.metrics],
        "by": found.by,
        "groups": groups,
        "changes": [
            {**asdict(change), "keys": [key._asdict() for key in change.keys], "is_flip": change.is_flip}
            | {"claims": [claim._asdict() for claim in change.claims]}
            for change in found.changes
        ],
        "notices": list(found.notices),
        "gates": [gate._asdict() for gate in gates],
    }


def _metric(metric: MetricComparison) -> Mapping[str, Any]:
    told = asdict(metric)
    for name, found in (("passing", metric.passing), ("mean", metric.mean)):
        if found is not None:
            told[name] |= {"change": found.change, "is_chance": found.is_chance}
    told["pass_rate"] = told.pop("passing")
    return told


def comparison_as_markdown(found: VersionComparison, gates: Sequence[GateVerdict] = ()) -> str:
    """Write the comparison as a comment on a pull request."""
    first, second = map(_cell, found.names)
    lines = [f"### {second} compared with {first}", ""]
    lines += [f"- {gate.outcome}: {_cell(gate.said)}" for gate in gates]
    lines += [""] * bool(gates)
    lines += [f"| | A: {first} | B: {second} | B - A | 95 % interval | B is |"]
    lines += ["| --- | ---: | ---: | ---: | --- | --- |"]
    for group, metrics in found.groups.items():
        for metric in metrics:
            name = f"{metric.metric}, {_cell(group)}" if group else f"**{metric.metric}**"
            for what, *cells in rows(metric):
                lines.append(f"| {name} {what} | {' | '.join(cells)} |")
    lines += ["", f"{sentence(matched(found))} {' '.join(map(_turned, found.metrics))}".rstrip(), ""]
    if found.changes:
        shown = found.changes[:SHOWN]
        lines += [f"<details><summary>Changed answers: {len(shown)} of {len(found.changes):,}</summary>", ""]
        for change in shown:
            said = f" {_cell(change.question)}" if change.question else ""
            lines.append(f"- `{_cell(title(change))}` {change.metric} {_cell(scores(change))}:{said}")
            lines += [f"  - {claim_labels(claim)}: {_cell(claim.text)}" for claim in change.claims]
        lines += ["", "</details>", ""]
    lines += [f"- {_cell(sentence(notice))}" for notice in found.notices]
    return "\n".join(lines).rstrip() + "\n"


def _turned(metric: MetricComparison) -> str:
    return sentence(f"{metric.metric}: {counted(metric)}")


def _cell(text: str) -> str:
    """Make a text of others harmless in Markdown: no table, link, mention, HTML or line of its own."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("@", "@\u200b")
    return "".join(f"\\{char}" if char in "\\`*_[]|!#~" else char for char in plain)


def render_comparison(found: VersionComparison, gates: Sequence[GateVerdict] = ()) -> str:
    """Write the comparison as a page: one self-contained HTML file."""
    from ragtrace.quality import compared
    from ragtrace.reports.report import open_template

    page = open_template("quality/compared.html").render(
        found=found, gates=gates, say=compared, sentence=sentence
    )
    return f"{page}\n"
