"""Two evaluators side by side on the terminal, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from ragtrace.budget import Prices
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.transcripts import Disagreement, EvaluatorComparison, MetricComparison

_OWN: Final = "ragtrace"
_SHOWN: Final = 10
"""Answers that differ most; JSON has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two."""

    name: str
    judge: JudgeIdentity
    is_rescored: bool = False
    """Its verdicts are those of the other, scored again."""


def print_comparison(comparison: EvaluatorComparison, first: Side, second: Side, prices: Prices) -> None:
    """Print what two evaluators make of the same answers, and where they are farthest apart."""
    console = open_console()
    for letter, side, usage in zip("AB", (first, second), comparison.usage, strict=True):
        console.print(f"{letter}  {one_line(side.name)}", soft_wrap=True)
        console.print(f"   {_effort(side, usage, prices)}", soft_wrap=True)
    console.print(f"\n{_answers(comparison)}")
    for metric in comparison.metrics:
        console.print()
        for line in _lines(metric):
            console.print(line)
    if comparison.disagreements:
        shown = comparison.disagreements[:_SHOWN]
        console.print(f"\ndifferent verdicts: {len(comparison.disagreements)}{_how_many(shown, comparison)}")
    for each in comparison.disagreements[:_SHOWN]:
        console.print(f"  {one_line(each.record_id)}", soft_wrap=True)
        console.print(f"    {each.metric}  {_both(each)}", soft_wrap=True)
        for claim in each.claims:
            print_indented(console, 6, f"{claim.first} | {claim.second}: {one_line(claim.text)}")


def print_comparison_as_json(
    comparison: EvaluatorComparison, first: Side, second: Side, prices: Prices, **more: object
) -> None:
    """Print the same as one JSON object."""
    told = asdict(comparison)
    told["disagreeing"] = len(comparison.disagreements)
    for name, side, usage in zip(("a", "b"), (first, second), comparison.usage, strict=True):
        told[name] = {"name": side.name, "cost_usd": _cost(side, usage, prices)}
    print_json({**told, **more})


def _answers(comparison: EvaluatorComparison) -> str:
    parts = [f"{many(comparison.both, 'answer')} of both"]
    if comparison.only_first:
        parts.append(f"{comparison.only_first} of A only")
    if comparison.only_second:
        parts.append(f"{comparison.only_second} of B only")
    if comparison.other_material:
        parts.append(f"{comparison.other_material} of which they were shown different texts")
    return ", ".join(parts)


def _lines(metric: MetricComparison) -> Iterator[str]:
    yield f"{_name(metric):<34}{'A':>7}{'B':>8}{'B - A':>9}   95 % interval"
    found = metric.difference
    if found is None:
        yield "  no answer has a score of both"
    else:
        means = f"{found.first:7.3f}{found.second:8.3f}{found.mean:+9.3f}"
        yield f"{f'  mean of {found.pairs}':<34}{means}   {found.low:+.3f} to {found.high:+.3f}"
        if found.left_out:
            yield f"  {found.left_out} more have no known probability and are in no mean"
    yield f"  passes with A only {metric.passes_first_only}, with B only {metric.passes_second_only}" + (
        f" (McNemar p = {metric.p_value:.2g})" if metric.passes_first_only + metric.passes_second_only else ""
    )
    kappa = "-" if metric.kappa is None else f"{metric.kappa:.2f}"
    yield f"  agreement of labels beyond chance (kappa) {kappa}"
    yield (
        f"  scored by A only {metric.scored_first_only}, by B only {metric.scored_second_only},"
        f" by neither {metric.scored_by_neither}"
    )


def _name(metric: MetricComparison) -> str:
    first, second = metric.profiles
    if first == second:
        return metric.metric if first == _OWN else f"{metric.metric}.{first}"
    return f"{metric.metric} ({first}, {second})"


def _both(each: Disagreement) -> str:
    first, second = ("-" if score is None else f"{score:.2f}" for score in (each.first, each.second))
    return f"{first} {each.labels[0]} | {second} {each.labels[1]}"


def _how_many(shown: tuple[Disagreement, ...], comparison: EvaluatorComparison) -> str:
    if len(shown) == len(comparison.disagreements):
        return ""
    return f"; the {len(shown)} that differ most:" if shown else ""


def _effort(side: Side, usage: Usage, prices: Prices) -> str:
    if side.is_rescored:
        return "no call was made"
    cost = _cost(side, usage, prices)
    dollars = "cost unknown" if cost is None else f"${cost:.4f}"
    tokens = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
    return f"{many(usage.calls, 'call')}, {tokens}, {dollars}"


def _cost(side: Side, usage: Usage, prices: Prices) -> float | None:
    return 0.0 if side.is_rescored else prices.cost_usd(usage, side.judge)
