"""How the numbers of an evaluation were made: readings, judge steps and intermediate results, for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from ragtrace.model import (
    Evaluation,
    Intermediate,
    MetricOutcome,
    MetricResult,
    RagRecord,
    StepRun,
    VerdictLabel,
)

_MOST_ITEMS: Final = 40
_BEST_FIRST: Final = (VerdictLabel.RELEVANT, VerdictLabel.PARTLY_RELEVANT, VerdictLabel.IRRELEVANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingItem:
    """A truth, a generated question or a sentence, with what was found about it."""

    text: str | None
    """``None`` if it is not kept: content is off, or the chunk is gone."""
    finding: str = ""
    """Its similarity or grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingItems:
    """The items of one kind."""

    title: str
    """What they are, with the limit that was used."""
    items: tuple[WorkingItem, ...]
    more: int = 0
    """How many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """How the number of one metric was made."""

    metric: str
    """Its name, with the profile unless that is ragtrace's own."""
    took: str
    """How long it took; empty if nobody told."""
    readings: tuple[tuple[str, str], ...]
    """Other numbers from the same verdicts, by name."""
    steps: tuple[str, ...]
    """A line about each judge step: its time, calls and tokens."""
    made: tuple[WorkingItems, ...]


def workings_of(evaluation: Evaluation, record: RagRecord) -> tuple[Working, ...]:
    """Return how each metric's number was made, without metrics about which nothing is known."""
    texts = {chunk.id: chunk.text or "" for chunk in record.chunks}
    found = (_working(outcome, texts) for outcome in evaluation.outcomes)
    return tuple(working for working in found if working.steps or working.readings or working.made)


def _working(outcome: MetricOutcome, texts: Mapping[str, str]) -> Working:
    is_own = outcome.profile == "ragtrace"
    result = outcome if isinstance(outcome, MetricResult) else None
    made = result.intermediate if result else None
    return Working(
        metric=outcome.metric if is_own else f"{outcome.metric} ({outcome.profile})",
        took=f"{outcome.duration_ms:,} ms" if outcome.steps or outcome.duration_ms else "",
        readings=tuple((name, f"{value:.4g}") for name, value in (result.details if result else {}).items()),
        steps=tuple(_step(run) for run in outcome.steps),
        made=tuple(_made(made, texts)) if made else (),
    )


def _step(run: StepRun) -> str:
    used = run.usage
    calls = "1 call" if used.calls == 1 else f"{used.calls:,} calls"
    tokens = f", {used.input_tokens:,} tokens in, {used.output_tokens:,} out" if used.calls else ""
    unknown = f", {used.unmetered_calls:,} of unknown cost" if used.unmetered_calls else ""
    return f"{run.step}: {run.duration_ms:,} ms, {calls}{tokens}{unknown}"


def _made(made: Intermediate, texts: Mapping[str, str]) -> Iterator[WorkingItems]:
    if made.truths:
        limit = "" if made.truths_limit is None else f", at most {made.truths_limit}"
        truths = [WorkingItem(text=truth) for truth in made.truths]
        yield _bounded(f"Truths that the chunks state{limit}", truths)
    if made.questions or made.similarities:
        pairs = zip_longest(made.questions, made.similarities)
        asked = [WorkingItem(text=question, finding=_similarity(number)) for question, number in pairs]
        yield _bounded("Questions that the answer would answer, with their similarity", asked)
    if made.sentences:
        graded = [
            WorkingItem(
                text=texts.get(grade.chunk_id, "")[grade.start : grade.end] or None,
                finding=f"{grade.label.value}, {grade.chunk_id}",
            )
            for grade in sorted(made.sentences, key=lambda grade: _rank(grade.label))
        ]
        yield _bounded("Sentences of the chunks, the relevant ones first", graded)


def _bounded(title: str, items: list[WorkingItem]) -> WorkingItems:
    shown = tuple(islice(items, _MOST_ITEMS))
    return WorkingItems(title=title, items=shown, more=len(items) - len(shown))


def _similarity(number: float | None) -> str:
    return "undefined" if number is None else f"{number:.3f}"


def _rank(label: VerdictLabel) -> int:
    return _BEST_FIRST.index(label) if label in _BEST_FIRST else len(_BEST_FIRST)
