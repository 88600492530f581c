"""Traces that real libraries wrote, and how far their records agree with what the application did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import groupby
from pathlib import Path

from ragtrace.model import Chunk, RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.extract._documents import is_unnamed
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span, Trace

__all__ = ["PARTS", "Agreement", "Recording", "agreement", "all_recordings", "records_of"]

FOLDER = Path(__file__).parents[2] / "data" / "recordings"
PARTS = ("question", "chunks", "ids", "scores", "answer", "session", "model")


class Agreement(StrEnum):
    """How a part of the extracted record compares to the truth."""

    SAME = "same"
    MISSING = "missing"
    """Nothing was extracted."""
    PARTIAL = "partial"
    """Some of the chunks, ids or scores."""
    DIFFERENT = "different"
    """Something else was extracted: the worst, for it will be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One question put to one application, as one instrumentation recorded it."""

    name: str
    about: Mapping[str, object]
    question: str
    answer: str
    chunks: Sequence[Mapping[str, object]]
    session: str | None
    model: str | None
    spans: tuple[Span, ...]


@cache
def all_recordings() -> tuple[Recording, ...]:
    """Read every recording, by name."""
    return tuple(_recording(path) for path in sorted(FOLDER.glob("*.json")))


def records_of(recording: Recording) -> tuple[RagRecord, ...]:
    """Extract the records of all traces of a recording."""
    by_trace = sorted(recording.spans, key=lambda span: span.trace_id)
    traces = [Trace.of(key, spans) for key, spans in groupby(by_trace, key=lambda span: span.trace_id)]
    return tuple(record for trace in traces for record in extract_records(trace).records)


def agreement(recording: Recording) -> Mapping[str, Agreement]:
    """Compare each part of the record with what the application was asked, retrieved and answered.

    A part that the application has none of is not in the result. Of several records, the one with most chunks
    counts.
    """
    record = max(records_of(recording), key=lambda each: len(each.chunks), default=None)
    if record is None:
        return dict.fromkeys(PARTS, Agreement.MISSING)
    compared = {
        "question": _text(record.question, recording.question),
        "answer": _text(record.answer, recording.answer),
        "session": _text(record.session_id or record.conversation_id, recording.session),
        "model": _text(record.model, recording.model),
        "chunks": _list([chunk.text for chunk in record.chunks], _of(recording, "text")),
        "ids": _list([chunk.id for chunk in record.chunks if _is_named(chunk)], _of(recording, "id")),
        "scores": _list([_score(chunk) for chunk in record.chunks], _scores(recording)),
    }
    return {part: compared[part] for part in PARTS if compared[part] is not None}  # type: ignore[misc]


def _recording(path: Path) -> Recording:
    found = json.loads(path.read_text(encoding="utf-8"))
    truth = found["truth"]
    return Recording(
        name=path.stem,
        about=found["about"],
        question=truth["question"],
        answer=truth["answer"],
        chunks=truth["chunks"],
        session=truth["session_id"],
        model=truth["model"],
        spans=decode_json(json.dumps(found["trace"])),
    )


def _text(found: str | None, truth: str | None) -> Agreement | None:
    if truth is None:
        return None
    if found is None:
        return Agreement.MISSING
    return Agreement.SAME if found == truth else Agreement.DIFFERENT


def _list(found: Sequence[object], truth: Sequence[object]) -> Agreement | None:
    if not truth:
        return None
    if found == truth:
        return Agreement.SAME
    known = [each for each in found if each is not None]
    if not known:
        return Agreement.MISSING
    return Agreement.PARTIAL if set(known) <= set(truth) else Agreement.DIFFERENT


def _of(recording: Recording, key: str) -> list[object]:
    return [chunk.get(key) for chunk in recording.chunks]


def _is_named(chunk: Chunk) -> bool:
    """Tell an id that was recorded from one that ragtrace made of the text."""
    return not is_unnamed(chunk)


def _score(chunk: Chunk) -> object:
    return None if chunk.score is None else (chunk.score_kind, round(chunk.score, 6))


def _scores(recording: Recording) -> list[object]:
    kinds = {"score": "similarity", "distance": "distance"}
    found = [
        next(
            (
                (kind, round(float(str(each[key])), 6))
                for key, kind in kinds.items()
                if each.get(key) is not None
            ),
            None,
        )
        for each in recording.chunks
    ]
    return found if any(found) else []
