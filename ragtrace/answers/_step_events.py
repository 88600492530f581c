"""What a number was made of, from the event of a metric on a carrier back to values."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from ragtrace import semconv
from ragtrace.answers._values import Attributes, integer_of, texts_of
from ragtrace.model import Intermediate, SentenceGrade, StepRun, Usage, VerdictLabel

ModelT = TypeVar("ModelT", bound=BaseModel)
_Count = Annotated[int, Field(ge=0)]


class _Step(BaseModel):
    step: str
    duration_ms: _Count = 0
    calls: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    unmetered_calls: _Count = 0


class _Made(BaseModel):
    truth: str | None = None
    question: str | None = None
    similarity: float | None = None
    chunk_id: str | None = None
    start: _Count = 0
    end: _Count = 0
    label: VerdictLabel = VerdictLabel.UNJUDGED


def read_steps(event: Attributes) -> tuple[StepRun, ...]:
    """Read the judge steps; what is unreadable is left out."""
    return tuple(
        StepRun(
            step=told.step,
            duration_ms=told.duration_ms,
            usage=Usage(**told.model_dump(exclude={"step", "duration_ms"})),
        )
        for told in _read(event, semconv.STEPS, _Step)
    )


def read_intermediate(event: Attributes) -> Intermediate | None:
    """Read the intermediate results that the carrier has; without content it has numbers only."""
    items = _read(event, semconv.INTERMEDIATE, _Made)
    if not items:
        return None
    asked = [item for item in items if item.question is not None or item.similarity is not None]
    return Intermediate(
        truths=tuple(item.truth for item in items if item.truth is not None),
        truths_limit=integer_of(event, semconv.TRUTHS_LIMIT),
        questions=tuple(item.question for item in asked if item.question is not None),
        similarities=tuple(item.similarity for item in asked),
        sentences=tuple(
            SentenceGrade(chunk_id=item.chunk_id, start=item.start, end=item.end, label=item.label)
            for item in items
            if item.chunk_id is not None
        ),
    )


def _read(event: Attributes, key: str, form: type[ModelT]) -> list[ModelT]:
    found = []
    for text in texts_of(event, key):
        try:
            found.append(form.model_validate_json(text))
        except ValidationError:
            continue
    return found
