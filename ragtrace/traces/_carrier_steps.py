"""What a number was made of, on the carrier: judge steps and intermediate results, short."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, Final

from ragtrace import semconv
from ragtrace.model import AttributeValue, Intermediate, MetricOutcome, MetricResult, StepRun
from ragtrace.traces.text import cut_utf8

_MAX_STEPS: Final = 16
_MAX_ITEMS: Final = 16
_MAX_TEXT_BYTES: Final = 600


def step_attributes(outcome: MetricOutcome, *, content: bool) -> dict[str, AttributeValue]:
    """Return the attributes of a metric's event that show its steps.

    Arrays hold one JSON object per step or item: Tempo cuts strings, not array elements.
    """
    made = outcome.intermediate if isinstance(outcome, MetricResult) else None
    is_timed = bool(outcome.steps or outcome.duration_ms)
    return {
        semconv.EVAL_DURATION_MS: outcome.duration_ms if is_timed else None,
        semconv.STEPS: tuple(_json(_step(run)) for run in outcome.steps[:_MAX_STEPS]) or None,
        **(_made(made, content=content) if made else {}),
    }


def _made(made: Intermediate, *, content: bool) -> dict[str, AttributeValue]:
    items = [item for item in _items(made, content=content) if item]
    return {
        semconv.INTERMEDIATE: tuple(_json(item) for item in islice(items, _MAX_ITEMS)) or None,
        semconv.INTERMEDIATE_TOTAL: max(len(made.truths), len(made.questions), len(made.similarities))
        + len(made.sentences),
        semconv.TRUTHS_LIMIT: made.truths_limit,
    }


def _items(made: Intermediate, *, content: bool) -> Iterator[dict[str, Any]]:
    for truth in made.truths:
        yield {"truth": _short(truth)} if content else {}
    for question, similarity in zip_longest(made.questions, made.similarities):
        yield {
            **({"question": _short(question)} if content and question is not None else {}),
            **({} if similarity is None or not math.isfinite(similarity) else {"similarity": similarity}),
        }
    for sentence in sorted(made.sentences, key=lambda grade: _BEST_FIRST.get(grade.label.value, 3)):
        yield {
            "chunk_id": _short(sentence.chunk_id),
            "start": sentence.start,
            "end": sentence.end,
            "label": sentence.label.value,
        }


def _step(run: StepRun) -> dict[str, Any]:
    unmetered = run.usage.unmetered_calls
    return {
        "step": run.step,
        "duration_ms": run.duration_ms,
        "calls": run.usage.calls,
        "input_tokens": run.usage.input_tokens,
        "output_tokens": run.usage.output_tokens,
        **({"unmetered_calls": unmetered} if unmetered else {}),
    }


def _short(text: str) -> str:
    return cut_utf8(text, _MAX_TEXT_BYTES)


def _json(item: dict[str, Any]) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


_BEST_FIRST: Final = {"relevant": 0, "partly_relevant": 1, "irrelevant": 2}
