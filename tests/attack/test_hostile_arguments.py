"""Every argument of every capture helper, given what it was not made for: the application goes on."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
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


class LanguageModel:
    """What applications hand over in place of its name."""

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        return SECRET


class Described:
    """Writes out all that it holds, as models of pydantic do."""

    def __str__(self) -> str:
        return f"model='m' key='{SECRET}'"


class Untouchable:
    """Raises wherever it is touched: a lazy proxy whose object cannot be made."""

    __str__ = __repr__ = __len__ = __iter__ = __bool__ = __eq__ = __hash__ = __lt__ = fail
    __float__ = __int__ = __index__ = __contains__ = __getitem__ = __getattr__ = __format__ = __abs__ = fail
    __class__ = property(fail)  # type: ignore[assignment]


class UntouchableFunction(Untouchable):
    __call__ = fail


def refusing(method: str) -> object:
    """Make a value that is well but for one method."""
    return type("Refusing", (), {method: fail})()


VALUES: dict[str, Callable[[], object]] = {
    "model": LanguageModel,
    "described": Described,
    "mock": MagicMock,
    "untouchable": Untouchable,
    "untouchable function": UntouchableFunction,
    **{name: lambda name=name: refusing(name) for name in ("__str__", "__repr__", "__eq__", "__bool__")},
    "class": lambda: LanguageModel,
    "object": object,
    "long number": lambda: 10**30,
    "not a number": lambda: float("nan"),
    "half a character": lambda: "\ud800",
    "mapping": lambda: {SECRET: Untouchable()},
    "list": lambda: [Untouchable()],
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
KINDS = pytest.mark.parametrize("kind", VALUES)


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

    def text(self) -> str:
        return str([(span.name, dict(span.attributes or {})) for span in self.spans()])


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


@KINDS
def test_a_block_runs_and_what_else_it_tells_is_recorded(recorded: Recorded, kind: str) -> None:
    for told, argument in ARGUMENTS:
        recorded.forget()
        with call_with(told, argument, VALUES[kind]()) as call:
            told.tell(call)
            assert call.trace_id is not None, argument
        (span,) = recorded.spans()
        assert "Ada" in str((span.attributes or {})[told.attribute]), (span.name, argument)


@KINDS
async def test_a_decorated_function_of_any_kind_returns_what_it_returned(
    recorded: Recorded, kind: str
) -> None:
    def plain(question: object) -> object:
        return question

    async def coroutine(question: object) -> object:
        return question

    def generator(question: object) -> Iterator[object]:
        yield question

    async def async_generator(question: object) -> AsyncIterator[object]:
        yield question

    for told, argument in ARGUMENTS:
        recorded.forget()
        value: object = VALUES[kind]()
        asked, helper = value, told.helper
        if not is_positional(helper, argument):
            asked, helper = "Who?", partial(decorated, told, argument, value)
        assert helper(plain)(asked) is asked, argument
        assert (await helper(coroutine)(asked)) is asked, argument
        (yielded,) = helper(generator)(asked)
        assert yielded is asked, argument
        (yielded,) = [piece async for piece in helper(async_generator)(asked)]
        assert yielded is asked, argument
        assert len(recorded.spans()) == 4, argument


def decorated(told: Told, argument: str, value: object, function: Callable[..., Any]) -> Any:
    return told.helper(**{argument: value})(function)


@KINDS
def test_a_method_takes_anything_and_what_else_is_told_is_recorded(recorded: Recorded, kind: str) -> None:
    for told, method, argument in METHODS:
        recorded.forget()
        with told.helper() as call:
            told.tell(call)
            getattr(call, method)(**{argument: VALUES[kind]()})
            getattr(call, "answer", None)
        (span,) = recorded.spans()
        is_replaced = method in {"set_answer", "set_chunks", "add_answer"}
        assert is_replaced or "Ada" in str((span.attributes or {})[told.attribute]), (method, argument)


@pytest.mark.parametrize("told", HELPERS.values(), ids=HELPERS)
async def test_a_decorated_object_that_can_be_called_stays_what_it_was(
    recorded: Recorded, told: Told
) -> None:
    class Model:
        temperature = 0.5

        async def __call__(self, question: str) -> str:
            return f"{question} Ada"

    class Application:
        ask = told.helper(Model())

    assert await Application().ask("Who?") == "Who? Ada"
    assert Application.ask.temperature == 0.5
    assert len(recorded.spans()) == 1


@KINDS
def test_feedback_takes_anything(recorded: Recorded, kind: str) -> None:
    for argument in parameters_of(ragtrace.feedback):
        recorded.forget()
        good = {"target": f"{1:032x}", "span_id": f"{1:016x}", "thumbs": "up"}
        said = ragtrace.feedback(**{**good, argument: VALUES[kind]()})
        assert said is (len(recorded.spans()) == 1), argument
        assert said is True or argument in {"target", "span_id", "thumbs", "score"}, argument


@KINDS
def test_capture_is_switched_on_or_not_and_nothing_raises(kind: str) -> None:
    for argument in parameters_of(ragtrace.instrument):
        ragtrace.uninstrument()
        settings = {"tracer_provider": TracerProvider(shutdown_on_exit=False), "only": []}
        try:
            is_on = ragtrace.instrument(**{**settings, argument: VALUES[kind]()})
            with ragtrace.rag("Who?") as call:
                assert is_on is (call.trace_id is not None) or argument == "tracer_provider", argument
        finally:
            assert ragtrace.uninstrument() in {True, False}


@KINDS
@pytest.mark.parametrize("function", [ragtrace.flush, ragtrace.uninstrument], ids=["flush", "uninstrument"])
def test_a_time_that_is_none_is_answered_with_no(
    recorded: Recorded, function: Callable[..., bool], kind: str
) -> None:
    assert function(VALUES[kind]()) in {True, False}


@pytest.mark.parametrize("make", [LanguageModel, Described, MagicMock, Untouchable])
def test_a_model_that_is_no_name_is_left_out_and_that_is_said_once(
    recorded: Recorded, make: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    counted = ragtrace.statistics().values_unread
    for _ in range(3):
        with ragtrace.generation(model=make(), provider="openai") as call:  # type: ignore[call-overload]
            call.set_answer("Ada")
    for span in recorded.spans():
        assert span.name == semconv.OP_CHAT
        assert semconv.REQUEST_MODEL not in (span.attributes or {})
    assert caplog.messages.count(f"ragtrace: no model was found in a value of type {make.__name__}") == 1
    assert len(caplog.messages) == len(set(caplog.messages))
    assert SECRET not in recorded.text() + caplog.text
    assert ragtrace.statistics().values_unread == counted + 3


def test_numbers_that_no_receiver_takes_are_left_out_and_the_others_stay(recorded: Recorded) -> None:
    with ragtrace.retrieval("Who?", top_k=10**30), ragtrace.generation() as call:
        call.set_usage(input_tokens=2**63, output_tokens=Untouchable(), cached_tokens=3)  # type: ignore[arg-type]
    generation, retrieval = (dict(span.attributes or {}) for span in recorded.spans())
    assert semconv.RETRIEVAL_TOP_K not in retrieval
    assert semconv.USAGE_INPUT_TOKENS not in generation
    assert generation[semconv.USAGE_CACHE_READ_TOKENS] == 3


def test_one_bad_entry_of_metadata_costs_no_other(recorded: Recorded) -> None:
    given = {"before": "a", "bad": Untouchable(), Untouchable: "x", "after": "b"}
    with ragtrace.rag("Who?", metadata=given):  # type: ignore[call-overload]
        pass
    (span,) = recorded.spans()
    kept = {key for key in span.attributes or {} if key.startswith(semconv.RAG_METADATA_PREFIX)}
    assert {f"{semconv.RAG_METADATA_PREFIX}{name}" for name in ("before", "after")} <= kept
