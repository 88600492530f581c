"""Traces of any size in the shapes that a tree walk is slow in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ragtrace import semconv
from ragtrace.traces.trace import Span
from tests.rag_spans import rag_trace

__all__ = ["SHAPES", "Shape"]

Shape = Callable[[int], Sequence[Span]]
"""Makes a trace of about so many spans."""

_ROOT, _RETRIEVAL, _GENERATION = rag_trace(0)


def _id(number: int) -> str:
    return f"{number + 1:016x}"


def _step(number: int, parent: str | None) -> Span:
    """Return a span that says nothing: a step of some framework."""
    return replace(_ROOT, span_id=_id(number), parent_span_id=parent, name="step", attributes={})


def _call(number: int, parent: str | None) -> Span:
    """Return a span that is a whole RAG call by itself."""
    return replace(_ROOT, span_id=_id(number), parent_span_id=parent)


def _retrieval(number: int, parent: str | None) -> Span:
    return replace(_RETRIEVAL, span_id=_id(number), parent_span_id=parent)


def _generation(number: int, parent: str | None) -> Span:
    return replace(_GENERATION, span_id=_id(number), parent_span_id=parent)


def _reference(number: int, parent: str | None, linked: str) -> Span:
    del linked
    return replace(
        _step(number, parent), attributes={semconv.REFERENCE_ANSWER: "Refunds take 14 days."}, name="label"
    )


def _spine(size: int, *, of: Callable[[int, str | None], Span] = _step) -> list[Span]:
    """Return a root, and spans that each hang under the one before."""
    return [_root(), *(of(number, _above(number)) for number in range(1, size))]


def _root() -> Span:
    return _call(0, None)


def _above(number: int) -> str:
    return _id(number - 1)


def _chain(size: int) -> Sequence[Span]:
    end = _id(size - 3)
    return [*_spine(size - 2), _retrieval(size - 2, end), _generation(size - 1, end)]


def _chain_that_goes_on(size: int) -> Sequence[Span]:
    """A chain below a root that never comes: its calls are looked for again and again."""
    return [
        replace(span, parent_span_id="ee" * 8) if span.parent_span_id is None else span
        for span in _spine(size)
    ]


def _chain_of_calls(size: int) -> Sequence[Span]:
    return _spine(size, of=_call)


def _chain_of_references(size: int) -> Sequence[Span]:
    below = size // 2
    labels = [_reference(number, _above(number), _id(0)) for number in range(below, size)]
    return [*_spine(below), *labels]


def _star(size: int) -> Sequence[Span]:
    kinds = (_step, _retrieval, _generation)
    return [_root(), *(kinds[number % 3](number, _id(0)) for number in range(1, size))]


def _comb(size: int) -> Sequence[Span]:
    """A spine on each span of which an answer hangs."""
    spine = [_step(number, _above(number) if number else None) for number in range(size // 2)]
    return [*spine, *(_call(size + number, _id(number)) for number in range(size // 2))]


def _cycle_of_calls(size: int) -> Sequence[Span]:
    return [_call(number, _id((number - 1) % size)) for number in range(size)]


def _generations_alone(size: int) -> Sequence[Span]:
    """Many calls of a model side by side, and nothing above or beside them."""
    said = {"openinference.span.kind": "LLM", "input.value": "How long?", "output.value": "14 days."}
    return [replace(_step(number, None), name="chat", attributes=said) for number in range(size)]


SHAPES: Final[Mapping[str, Shape]] = {
    "chain": _chain,
    "chain that goes on": _chain_that_goes_on,
    "chain of calls": _chain_of_calls,
    "chain of references": _chain_of_references,
    "star": _star,
    "comb": _comb,
    "cycle of calls": _cycle_of_calls,
    "generations alone": _generations_alone,
}
