"""The real Tempo takes what others send and gives it back as we have it recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span
from tests.backends.tempo_server import Tempo
from tests.recordings.through_tempo import FOLDER, SOURCES, stored


@pytest.mark.parametrize("source", SOURCES)
def test_tempo_cuts_what_it_stores_as_it_is_recorded(tempo: Tempo, source: str) -> None:
    given_back = stored(tempo, trace_of(source))
    assert spans_of(given_back) == spans_of(trace_of(f"tempo.{source}"))


def trace_of(recording: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{recording}.json").read_text("utf-8"))["trace"]
    return found


def spans_of(trace: dict[str, Any]) -> dict[str, Span]:
    # flags are there until the trace is written into a block, which has no column for them
    return {span.span_id: replace(span, flags=0) for span in decode_json(json.dumps(trace))}
