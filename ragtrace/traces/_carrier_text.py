"""The carrier's text: one line about an evaluation, and one about each outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ragtrace.model import (
    ChunkVerdict,
    Evaluation,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.traces.carrier_outcomes import keyed, worst_first

_BRIEF_CHARS: Final = 200
_BRIEF_CHUNK_IDS: Final = 3
_WORDS: Final = {VerdictLabel.PARTLY_RELEVANT: "partly relevant"}
_VERDICTS_WORST_FIRST: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
    VerdictLabel.PARTLY_RELEVANT,
)
_RELEVANCE: Final = (VerdictLabel.RELEVANT, VerdictLabel.PARTLY_RELEVANT, VerdictLabel.IRRELEVANT)
_UNITS: Final = {"sentence": "sentence", "reference": "reference sentence"}


def brief(evaluation: Evaluation) -> str:
    """Return a one-line summary: ``faithfulness 0.50 fail: 1 of 2 claims contradicted (faq-12)``.

    Failed metrics come first, and passed ones are short.
    """
    outcomes = worst_first(keyed(evaluation))
    if not outcomes:
        return "nothing was measured"
    is_short = len(outcomes) > 1
    return _fitting([_line(key, outcome, is_short=is_short) for key, outcome in outcomes])


def explain(outcome: MetricOutcome, *, content: bool) -> str:
    """Explain an outcome in one sentence; without content, only by its counts."""
    if isinstance(outcome, MetricFailure):
        return outcome.message or outcome.error_type
    said = [outcome.explanation, outcome.reason] if content else []
    return ": ".join(sentence for sentence in said if sentence) or _summary(outcome)


def _fitting(lines: Sequence[str]) -> str:
    """Join as many lines as fit, and append the number of omitted lines."""
    for shown in range(len(lines), 0, -1):
        left = len(lines) - shown
        text = "; ".join([*lines[:shown], *([f"{left} more"] if left else [])])
        if len(text) <= _BRIEF_CHARS:
            return text
    return lines[0][: _BRIEF_CHARS - 1] + "…"


def _line(key: str, outcome: MetricOutcome, *, is_short: bool) -> str:
    if isinstance(outcome, MetricFailure):
        return f"{key} error: {outcome.error_type}"
    if outcome.score is None:
        return f"{key} skipped: {_summary(outcome)}"
    said = f"{key} {outcome.score:.2f} {outcome.label.value}"
    if is_short and outcome.label is Label.PASS:
        return said
    chunk_ids = _contradicting_chunks(outcome)
    where = f" ({', '.join(chunk_ids)})" if chunk_ids else ""
    return f"{said}: {_summary(outcome)}{where}"


def _summary(result: MetricResult) -> str:
    if result.skip_reason:
        return result.skip_reason.value
    if result.diagnosis:
        return result.diagnosis.value.replace("_", " ")
    said = [_tally(group) for group in (result.verdicts, result.chunk_verdicts) if group]
    passes = result.pass_when or f"threshold {result.threshold:.2f}"
    return ", ".join(said) or f"score {result.score:.2f}, {passes}"


def _tally(verdicts: Sequence[Verdict | ChunkVerdict]) -> str:
    """Count the verdicts that are not good: ``1 of 4 claims contradicted, 2 unsupported``."""
    counts, unit = VerdictCounts.of(verdicts), _unit(verdicts)
    # a background statement serves the question, but a background chunk only takes up room
    labels = _VERDICTS_WORST_FIRST if unit == "chunk" else _VERDICTS_WORST_FIRST[:-1]
    found = [(getattr(counts, label.value), label) for label in labels]
    wrong = [f"{number} {_WORDS.get(label, label.value)}" for number, label in found if number]
    if not wrong:
        good = "supported" if counts.supported else "relevant"
        return f"all {counts.total} {unit}s {good}" if counts.total > 1 else f"its one {unit} is {good}"
    (number, first), rest = wrong[0].split(" ", 1), wrong[1:]
    units = f"1 {unit}" if counts.total == 1 else f"{counts.total} {unit}s"
    return ", ".join([f"{number} of {units} {first}", *rest])


def _unit(verdicts: Sequence[Verdict | ChunkVerdict]) -> str:
    if isinstance(verdicts[0], ChunkVerdict):
        return "chunk"
    if any(verdict.label in _RELEVANCE for verdict in verdicts):
        return "statement"
    return _UNITS.get(verdicts[0].claim.kind, "claim")


def _contradicting_chunks(result: MetricResult) -> list[str]:
    """Return the first chunks that contradict a claim."""
    ids = dict.fromkeys(_ids_against(result.verdicts))
    return list(ids)[:_BRIEF_CHUNK_IDS]


def _ids_against(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.label is VerdictLabel.CONTRADICTED:
            yield from verdict.chunk_ids
