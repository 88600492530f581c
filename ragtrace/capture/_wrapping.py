"""Decorated functions: plain, async, and generators of both kinds.

A stream's span is current only while the function runs, not while its reader does. So spans that the reader
starts between two pieces are not our children, and an abandoned stream leaves nothing current.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NamedTuple, TypeVar

from ragtrace.capture._guard import guarded, log
from ragtrace.capture._recorder import active
from ragtrace.capture._recording import Recording
from ragtrace.capture.values.names import name
from ragtrace.capture.values.responses import streamed_body
from ragtrace.capture.values.text import ASKING_NAMES, first_field, question_in

F = TypeVar("F", bound=Callable[..., Any])


class Arguments(NamedTuple):
    """The arguments of a call to a decorated function."""

    args: Sequence[object]
    kwargs: Mapping[str, object]


Begin = Callable[[Arguments], Recording]
Find = Callable[[Arguments], object]


BODY_NAMES = ("body", "payload", "request", "req", "data", "event")
"""Usual names of a route's request parameter: web frameworks pass every argument by name."""


class Argument(NamedTuple):
    """Locates one argument of a function."""

    name: str | None = None
    position: int | None = None
    default: object = None
    is_method: bool = False

    @classmethod
    def of(cls, function: Callable[..., Any], wanted: object, usual: Sequence[str]) -> Argument:
        """Find the parameter named ``wanted``, else the first that has one of the usual names."""
        parameters = _parameters(function)
        chosen = name(wanted, "name of a parameter")
        if chosen is not None and chosen not in parameters:
            kind = type.__getattribute__(type(function), "__name__")
            log.warning("ragtrace: %s has no parameter %r", getattr(function, "__qualname__", kind), chosen)
        for known in ([chosen] if chosen is not None else []) + list(usual):
            if known in parameters:
                parameter = parameters[known]
                keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
                default = None if parameter.default is inspect.Parameter.empty else parameter.default
                return cls(known, None if keyword else list(parameters).index(known), default)
        return cls(is_method=next(iter(parameters), None) in {"self", "cls"})

    def value(self, given: Arguments) -> object:
        """Return the argument's value; without such a parameter, the first that looks like a question."""
        if self.name is None:
            bodies = [given.kwargs[name] for name in BODY_NAMES if name in given.kwargs]
            asking = next((body for body in bodies if question_in(body) is not None), None)
            return (
                asking
                if asking is not None
                else _asking((*given.args[self.is_method :], *given.kwargs.values()))
            )
        if self.name in given.kwargs:
            return given.kwargs[self.name]
        if self.position is not None and self.position < len(given.args):
            return given.args[self.position]
        return self.default


def finder(function: Callable[..., Any], wanted: object, usual: Sequence[str]) -> Find:
    """Return a function that finds one argument of a call: the application's hook, or by parameter name."""
    if not callable(wanted):
        return (guarded(Argument.of)(function, wanted, usual) or Argument()).value

    @guarded
    def ask_hook(given: Arguments) -> object:
        return wanted(*given.args, **given.kwargs)

    return ask_hook


class CallableObject:
    """A callable object with a span around each call; everything else delegates to the object.

    The object is either decorated or a value that a block records, such as a model. Its use decides: a
    ``with`` means the block.
    """

    def __init__(self, wrapped: object, wrapper: Callable[..., Any], block: Recording) -> None:
        self.__wrapped__ = wrapped
        self._self_wrapper = wrapper
        self._self_block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._self_wrapper(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # a copy that is still empty
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __enter__(self) -> Recording:
        return self._self_block.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._self_block.__exit__(*raised)

    async def __aenter__(self) -> Recording:
        return self._self_block.__enter__()

    async def __aexit__(self, *raised: Any) -> None:
        self._self_block.__exit__(*raised)


def traced(function: F, begin: Begin, block: Recording | None = None) -> F:
    """Return the function with a span around each call, and of the same kind: sync, async or generator.

    ``block`` is the recording to open if a callable object is used in a ``with`` statement.
    """
    if block is None or _is_function(function):
        return functools.wraps(function)(_wrapper(function, begin))  # type: ignore[return-value]
    return CallableObject(function, _function(function, begin), block)  # type: ignore[return-value]


@guarded
def _is_function(value: object) -> bool:
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def _wrapper(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(function):
        return _async_stream_function(function, begin)
    if inspect.isgeneratorfunction(function):
        return _stream_function(function, begin)
    if inspect.iscoroutinefunction(function):
        return _async_function(function, begin)
    return _function(function, begin)


def _function(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if active() is None:
            return function(*args, **kwargs)
        recording = _begun(begin, args, kwargs)
        recording.step_in()
        try:
            result = function(*args, **kwargs)
        except BaseException as exc:
            recording.step_out()
            recording.finish(exc)
            raise
        recording.step_out()
        return _concluded(recording, result)

    return call


def _async_function(function: Callable[..., Awaitable[Any]], begin: Begin) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        if active() is None:
            return await function(*args, **kwargs)
        recording = _begun(begin, args, kwargs)
        return _concluded(recording, await _awaited(recording, function(*args, **kwargs)))

    return call


def _stream_function(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def opened(*args: Any, **kwargs: Any) -> tuple[Recording, Generator[Any, Any, Any]]:
        inner = function(*args, **kwargs)
        return _begun(begin, args, kwargs), inner

    return _streaming(opened)


def _async_stream_function(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def opened(*args: Any, **kwargs: Any) -> tuple[Recording, AsyncGenerator[Any, Any]]:
        inner = function(*args, **kwargs)
        return _begun(begin, args, kwargs), inner

    return _async_streaming(opened)


def _begun(begin: Begin, args: Sequence[object], kwargs: Mapping[str, object]) -> Recording:
    recording = guarded(begin)(Arguments(args, kwargs)) or Recording()
    if type(recording) is not Recording:
        recording.start()
    return recording


async def _awaited(recording: Recording, awaitable: Awaitable[Any]) -> Any:
    recording.step_in()
    try:
        result = await awaitable
    except BaseException as exc:
        recording.step_out()
        recording.finish(exc)
        raise
    recording.step_out()
    return result


def _concluded(recording: Recording, result: Any) -> Any:
    """Return the result; the span ends now, or with the stream if the result is a generator."""
    kind = type(result)  # a value may lie about its class, or raise if asked
    if kind is GeneratorType:
        return _streaming(lambda: (recording, result))()
    if kind is AsyncGeneratorType:
        return _async_streaming(lambda: (recording, result))()
    if kind is CoroutineType:
        return _concluded_later(recording, result)
    if kind not in _WHOLE and (streaming := _streaming_response(recording, result)) is not None:
        return streaming
    recording.conclude(result)
    recording.finish()
    return result


async def _concluded_later(recording: Recording, awaitable: Awaitable[Any]) -> Any:
    return _concluded(recording, await _awaited(recording, awaitable))


_WHOLE = frozenset({str, dict, list, type(None)})


@guarded
def _streaming_response(recording: Recording, result: object) -> Any:
    """Return a web framework's response with its stream wrapped, ``None`` for anything else."""
    body = streamed_body(result)
    if body is None:
        return None
    recording.expect(body.media_type)
    pieces = body.pieces
    if isinstance(pieces, AsyncIterable):
        opened = pieces if inspect.isasyncgen(pieces) else _iterate_async(pieces)
        return body.replaced(_async_streaming(lambda: (recording, opened))())
    inner = pieces if inspect.isgenerator(pieces) else _iterate(pieces)
    return body.replaced(_streaming(lambda: (recording, inner))())


def _iterate(pieces: Iterable[Any]) -> Generator[Any, None, None]:
    try:
        yield from pieces
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


async def _iterate_async(pieces: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    async for piece in pieces:
        yield piece


def _streaming(opened: Callable[..., tuple[Recording, Generator[Any, Any, Any]]]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        recording, inner = opened(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(inner.send, None)
        ended: BaseException | None = None
        try:
            while True:
                try:
                    item = _step(recording, resume)
                except StopIteration as stop:
                    return stop.value
                recording.take(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    _step(recording, inner.close)
                    raise
                except BaseException as exc:  # noqa: BLE001 - the reader throws into the function, not into us
                    resume = functools.partial(inner.throw, exc)
                else:
                    resume = functools.partial(inner.send, sent)
        except BaseException as exc:
            ended = exc
            raise
        finally:
            recording.finish(ended)

    return call


def _step(recording: Recording, resume: Callable[[], Any]) -> Any:
    recording.step_in()
    try:
        return resume()
    finally:
        recording.pause()


def _async_streaming(
    opened: Callable[..., tuple[Recording, AsyncGenerator[Any, Any]]],
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        recording, inner = opened(*args, **kwargs)
        resume: Callable[[], Awaitable[Any]] = functools.partial(inner.asend, None)
        ended: BaseException | None = None
        try:
            while True:
                try:
                    item = await _async_step(recording, resume)
                except StopAsyncIteration:
                    return
                recording.take(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    await _async_step(recording, inner.aclose)
                    raise
                except BaseException as exc:  # noqa: BLE001 - the reader throws into the function, not into us
                    resume = functools.partial(inner.athrow, exc)
                else:
                    resume = functools.partial(inner.asend, sent)
        except BaseException as exc:
            ended = exc
            raise
        finally:
            recording.finish(ended)

    return call


async def _async_step(recording: Recording, resume: Callable[[], Awaitable[Any]]) -> Any:
    recording.step_in()
    try:
        return await resume()
    finally:
        recording.pause()


def _asking(values: Sequence[object]) -> object:
    """Return a request with a question, else the first string, else any value that holds a question."""
    for value in values:
        if not isinstance(value, str | bytes) and isinstance(first_field(value, ASKING_NAMES), str):
            return value
    found = next((value for value in values if isinstance(value, str)), None)
    return found if found is not None else next((v for v in values if question_in(v) is not None), None)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # built-ins have none
        return {}
