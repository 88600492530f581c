"""Decorated functions: plain, async, and generators of both kinds.

A stream's span is current only while the function itself runs, never while its reader does: spans that the
reader starts between two pieces are no children of ours, and nothing stays behind when a stream is dropped.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ragtrace.capture.guard import guarded, log
from ragtrace.capture.recorder import active
from ragtrace.capture.recording import Recording

__all__ = ["Argument", "Arguments", "Begin", "traced"]

F = TypeVar("F", bound=Callable[..., Any])


class Arguments(NamedTuple):
    """What a decorated function was called with."""

    args: Sequence[object]
    kwargs: Mapping[str, object]


Begin = Callable[[Arguments], Recording]


class Argument(NamedTuple):
    """Where to find one argument of a function."""

    name: str | None
    position: int | None
    default: object = None

    @classmethod
    def of(cls, function: Callable[..., Any], wanted: str | None, usual: Sequence[str]) -> Argument:
        """Find the parameter named ``wanted``, else the first that has one of the usual names."""
        parameters = _parameters(function)
        if wanted is not None and wanted not in parameters:
            log.warning(
                "ragtrace: %s has no parameter %r", getattr(function, "__qualname__", function), wanted
            )
        for name in ([wanted] if wanted is not None else []) + list(usual):
            if name in parameters:
                parameter = parameters[name]
                keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
                default = None if parameter.default is inspect.Parameter.empty else parameter.default
                return cls(name, None if keyword else list(parameters).index(name), default)
        return cls(None, None)

    def value(self, given: Arguments) -> object:
        """Return the argument's value, or the first string given if the function has no such parameter."""
        if self.name is None:
            everything = (*given.args, *given.kwargs.values())
            return next((value for value in everything if isinstance(value, str)), None)
        if self.name in given.kwargs:
            return given.kwargs[self.name]
        if self.position is not None and self.position < len(given.args):
            return given.args[self.position]
        return self.default


def traced(function: F, begin: Begin) -> F:
    """Return the function with a span around each call, of the same kind as the function."""
    if inspect.isasyncgenfunction(function):
        wrapper: Callable[..., Any] = _async_stream_function(function, begin)
    elif inspect.isgeneratorfunction(function):
        wrapper = _stream_function(function, begin)
    elif inspect.iscoroutinefunction(function):
        wrapper = _async_function(function, begin)
    else:
        wrapper = _function(function, begin)
    return functools.wraps(function)(wrapper)  # type: ignore[return-value]


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
    """Return the result; the span ends with it, and with what it streams if it is a generator."""
    if inspect.isgenerator(result):
        return _watched(recording, _streaming(lambda: (recording, result))())
    if inspect.isasyncgen(result):
        return _watched(recording, _async_streaming(lambda: (recording, result))())
    if inspect.iscoroutine(result):
        return _concluded_later(recording, result)
    recording.conclude(result)
    recording.finish()
    return result


async def _concluded_later(recording: Recording, awaitable: Awaitable[Any]) -> Any:
    return _concluded(recording, await _awaited(recording, awaitable))


def _watched(recording: Recording, stream: Any) -> Any:
    # A generator that nobody ever starts runs no `finally`: its span ends when it is collected.
    weakref.finalize(stream, recording.finish, GeneratorExit()).atexit = False
    return stream


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


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # built-ins have none
        return {}
