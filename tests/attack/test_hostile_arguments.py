"""Every argument of every capture helper, given what it was not made for: the application goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace import semconv
from ragtrace.capture.calls import CallFacts

SECRET = "a secret of the application"


def fail(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(SECRET)


class Untouchable:
    """Raises wherever it is touched: a lazy proxy whose object cannot be made."""

    __str__ = __repr__ = __len__ = __iter__ = __bool__ = __eq__ = __hash__ = __lt__ = fail
    __float__ = __int__ = __index__ = __contains__ = __getitem__ = __getattr__ = __format__ = __abs__ = fail
    __class__ = property(fail)  # type: ignore[assignment]


def refusing(method: str) -> object:
    """Make a value that is well but for one method."""
    return type("Refusing", (), {method: fail})()


VALUES: dict[str, Callable[[], object]] = {
    "mock": MagicMock,
    "untouchable": Untouchable,
    **{name: lambda name=name: refusing(name) for name in ("__str__", "__eq__", "__bool__")},
    "long number": lambda: 10**30,
    "not a number": lambda: float("nan"),
    "half a character": lambda: "\ud800",
    "mapping": lambda: {SECRET: Untouchable()},
}


class Told(NamedTuple):
    """A helper, how a block tells it something, and the attribute in which that must stand."""

    helper: Callable[..., Any]
    tell: Callable[[Any], None]
    attribute: str


def _answer(call: Any) -> None:
    call.set_answer("Ada")


def _chunks(call: Any) -> None:
    call.set_chunks(["Ada"])


RAG = Told(ragtrace.rag, _answer, semconv.OUTPUT_MESSAGES)
RETRIEVAL = Told(ragtrace.retrieval, _chunks, semconv.RAG_DOCUMENTS)
GENERATION = Told(ragtrace.generation, _answer, semconv.OUTPUT_MESSAGES)
HELPERS = {told.helper.__name__: told for told in (RAG, RETRIEVAL, GENERATION)}


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of its arguments, with those of `**facts: Unpack[CallFacts]`."""
    parameters = inspect.signature(function).parameters
    named = [name for name in parameters if name not in ("self", "facts")]
    return named + list(CallFacts.__annotations__) * ("facts" in parameters)


ARGUMENTS = [(told, argument) for told in HELPERS.values() for argument in parameters_of(told.helper)]
METHODS = [
    (told, method, argument)
    for told in HELPERS.values()
    for method, function in inspect.getmembers(type(told.helper()), inspect.isfunction)
    if method.startswith(("set_", "add_"))
    for argument in parameters_of(function)
]


class Recorded:
    """What was recorded, once it could be sent: an exporter refuses a whole batch for one bad value."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def spans(self) -> list[ReadableSpan]:
        spans = list(self._exporter.get_finished_spans())
        encode_spans(spans).SerializeToString()
        return spans

    def forget(self) -> None:
        self._exporter.clear()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ragtrace.uninstrument()
    assert ragtrace.instrument(tracer_provider=provider)
    yield Recorded(exporter)
    ragtrace.uninstrument()


def call_with(told: Told, argument: str, value: object) -> Any:
    """Hand the value over by name where that can be done, as applications do."""
    return told.helper(value) if is_positional(told.helper, argument) else told.helper(**{argument: value})


def is_positional(helper: Callable[..., Any], argument: str) -> bool:
    parameter = inspect.signature(helper).parameters.get(argument)
    return parameter is not None and parameter.kind is inspect.Parameter.POSITIONAL_ONLY


def test_a_block_runs_and_what_else_it_tells_is_recorded(recorded: Recorded) -> None:
    for kind, (told, argument) in product(VALUES, ARGUMENTS):
        recorded.forget()
        with call_with(told, argument, VALUES[kind]()) as call:
            told.tell(call)
            assert call.trace_id is not None, (kind, argument)
        (span,) = recorded.spans()
        assert "Ada" in str((span.attributes or {})[told.attribute]), (kind, span.name, argument)


def test_a_method_takes_anything_and_what_else_is_told_is_recorded(recorded: Recorded) -> None:
    for kind, (told, method, argument) in product(VALUES, METHODS):
        recorded.forget()
        with told.helper() as call:
            told.tell(call)
            getattr(call, method)(**{argument: VALUES[kind]()})
            getattr(call, "answer", None)
        (span,) = recorded.spans()
        is_replaced = method in {"set_answer", "set_chunks", "add_answer"}
        assert is_replaced or "Ada" in str((span.attributes or {})[told.attribute]), (kind, method, argument)


def test_capture_is_switched_on_or_not_and_nothing_raises() -> None:
    for kind, argument in product(VALUES, parameters_of(ragtrace.instrument)):
        ragtrace.uninstrument()
        settings = {"tracer_provider": TracerProvider(shutdown_on_exit=False), "only": []}
        try:
            is_on = ragtrace.instrument(**{**settings, argument: VALUES[kind]()})
            with ragtrace.rag("Who?") as call:
                assert is_on is (call.trace_id is not None) or argument == "tracer_provider", argument
        finally:
            assert ragtrace.uninstrument() in {True, False}
