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

from ragtrace.capture._guard import active, guarded, hint
from ragtrace.capture._recording import Recording
from ragtrace.capture.values import Named, name, question_among, streamed_body

F = TypeVar("F", bound=Callable[..., Any])


class Arguments(NamedTuple):
    """The arguments of a call to a decorated function."""

    args: Sequence[object]
    kwargs: Mapping[str, object]


Begin = Callable[[Arguments], Recording]
Find = Callable[[Arguments], object]


class Parameters:
    """The parameters of a decorated function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # built-ins have none
            self._signature = None
        parameters = self._signature.parameters if self._signature else {}
        self.names = frozenset(parameters)
        self._takes_any_name = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def value(self, wanted: str, given: Arguments) -> Any:
        """Return the argument of a name that the application gave; print a hint if there is none."""
        named = dict(self.named(given))
        if wanted not in self.names and wanted not in named and not self._takes_any_name:
            function = called(self._function)
            hint(
                f"{function}({wanted})", f"{function} has no parameter {wanted!r}, which its decorator names"
            )
        return named.get(wanted)

    def named(self, given: Arguments) -> list[Named]:
        """Return the arguments of a call with their names, and the defaults of those left out."""
        if self._signature is None:
            return [*((None, each) for each in given.args), *given.kwargs.items()]
        try:
            bound = self._signature.bind(*given.args, **given.kwargs)
        except TypeError:  # the call will raise
            return [*given.kwargs.items()]
        bound.apply_defaults()
        found: list[Named] = []
        for place, (called_so, value) in enumerate(bound.arguments.items()):
            kind = self._signature.parameters[called_so].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                found += ((None, each) for each in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                found += value.items()
            elif place or called_so not in {"self", "cls"}:
                found.append((called_so, value))
        return found


def finder(function: Callable[..., Any], wanted: object, first: Sequence[str] = ()) -> Find:
    """Return a function that finds the question in a call: by the application's hook, or by its argument.

    That is the argument of the name ``wanted``, else of the names in ``first``, else the one that looks most
    like a question.
    """
    if callable(wanted):

        @guarded
        def ask(given: Arguments) -> object:
            return wanted(*given.args, **given.kwargs)

        return ask
    parameters = Parameters(function)
    wanted_name = name(wanted, "name of a parameter")

    @guarded
    def find(given: Arguments) -> object:
        if wanted_name is not None and (value := parameters.value(wanted_name, given)) is not None:
            return value
        arguments = parameters.named(given)
        named = dict(arguments)
        for each in first:
            if named.get(each) is not None:
                return named[each]
        asked = question_among(arguments)
        return None if asked is None else asked.value

    return find


def traced(function: F, begin: Begin) -> F:
    """Return the function with a span around each call, and of the same kind: sync, async or generator."""
    return functools.wraps(function)(_wrapper(function, begin))  # type: ignore[return-value]


def _wrapper(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def opened(*args: Any, **kwargs: Any) -> tuple[Recording, Any]:
        inner = function(*args, **kwargs)
        return _begun(begin, args, kwargs), inner

    if inspect.isasyncgenfunction(function):
        return _async_streaming(opened)
    if inspect.isgeneratorfunction(function):
        return _streaming(opened)
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
        recording.is_stream = True
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
        recording.is_stream = True
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


def called(function: object) -> str:
    """Return a function's name."""
    kind = type.__getattribute__(type(function), "__name__")
    return guarded(lambda: str(getattr(function, "__qualname__", kind)))() or kind
