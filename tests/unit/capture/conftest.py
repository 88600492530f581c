"""A real SDK provider that keeps its spans in memory, joined by ragtrace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace import semconv


class Recorded:
    """What an application recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def span(self, kind: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.attributes.get(semconv.RAG_KIND) == kind]
        return found

    @property
    def question(self) -> str | None:
        return self._text("rag", semconv.INPUT_MESSAGES)

    @property
    def answer(self) -> str | None:
        return self._text("rag", semconv.OUTPUT_MESSAGES)

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.span("retrieval").attributes[semconv.RAG_DOCUMENTS]]

    def _text(self, kind: str, key: str) -> str | None:
        messages = self.span(kind).attributes.get(key)
        return None if messages is None else json.loads(messages)[0]["parts"][0]["content"]


@contextmanager
def recording_with(**settings: Any) -> Iterator[Recorded]:
    """Switch capture on with these settings, into memory, and off again."""
    ragtrace.uninstrument()
    recorded = Recorded()
    assert ragtrace.instrument(tracer_provider=recorded.provider, only=[], **settings)
    try:
        yield recorded
    finally:
        ragtrace.uninstrument()


@pytest.fixture
def recording() -> Iterator[Callable[..., Recorded]]:
    """Switch capture on with these settings, into memory."""

    def switch_on(**settings: Any) -> Recorded:
        ragtrace.uninstrument()
        recorded = Recorded()
        assert ragtrace.instrument(tracer_provider=recorded.provider, **settings)
        return recorded

    yield switch_on
    ragtrace.uninstrument()


@pytest.fixture
def recorded(recording: Callable[..., Recorded]) -> Recorded:
    """Switch capture on with the defaults."""
    return recording()
