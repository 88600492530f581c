"""Judge calls: in batches, concurrently, with their usage summed up."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeNonsense
from ragtrace.model import JudgeIdentity, StepRun, Usage
from ragtrace.ports import Clock, Embedder, Judge, JudgeReply, JudgeRequest

T = TypeVar("T")
S = TypeVar("S")
ReplyT = TypeVar("ReplyT", bound=BaseModel)

_NS_A_MS = 1_000_000
_TOKENS_A_REPLY = 256
_TOKENS_AN_ITEM = 160
_BYTES_A_TOKEN = 2


class MeteredJudge:
    """A judge that sums up its usage and time by step, failed requests included."""

    def __init__(self, judge: Judge, clock: Clock) -> None:
        self._judge = judge
        self._clock = clock
        self._metered: dict[str, _Metered] = {}

    @property
    def spent(self) -> Usage:
        """Its usage so far."""
        return sum((metered.spent for metered in self._metered.values()), Usage())

    @property
    def runs(self) -> tuple[StepRun, ...]:
        """Its usage and time by step, from the first request of a step to the end of the last."""
        return tuple(
            StepRun(step=step, duration_ms=metered.duration_ms, usage=metered.spent)
            for step, metered in self._metered.items()
        )

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request, and count its usage."""
        with self._step(request.step) as metered:
            reply = await self._judge.ask(request)
            metered.spent += reply.usage
        return reply

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Turn texts into vectors, and count the usage."""
        with self._step("embed") as metered:
            embeddings = await embedder.embed(texts)
            metered.spent += embeddings.usage
        if len(embeddings.vectors) != len(texts):
            raise JudgeNonsense(f"the embedder gave {len(embeddings.vectors)} vectors for {len(texts)} texts")
        return embeddings.vectors

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()

    @contextmanager
    def _step(self, step: str) -> Iterator[_Metered]:
        now_ns = self._clock.now_ns()
        metered = self._metered.setdefault(step, _Metered(started_ns=now_ns, ended_ns=now_ns))
        try:
            yield metered
        except JudgeError as failed:
            metered.spent += failed.usage
            raise
        finally:
            metered.ended_ns = self._clock.now_ns()


@dataclass(slots=True, kw_only=True)
class _Metered:
    """The requests of one step."""

    started_ns: int
    ended_ns: int
    spent: Usage = field(default_factory=Usage)

    @property
    def duration_ms(self) -> int:
        return max(0, self.ended_ns - self.started_ns) // _NS_A_MS


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run the calls concurrently and return their values in order.

    Raises:
        Exception: the first failure, bare; the other calls are cancelled.
    """
    calls = [*calls]
    if len(calls) == 1:
        return [await calls[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, S]) -> tuple[T, S]:
    """Run two calls concurrently.

    Raises:
        Exception: the first failure, bare; the other call is cancelled.
    """
    calls: list[Coroutine[Any, Any, Any]] = [first, second]
    one, other = await together(calls)
    return one, other


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Split the items into batches of at most ``size``, in order."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Split the items into two halves."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


def output_tokens(texts: Collection[str]) -> int:
    """Return the number of output tokens that a reply about these texts needs.

    Repeating long texts, or scripts with several bytes per character, takes more tokens.
    """
    size = len("".join(texts).encode("utf-8", "replace"))
    return _TOKENS_A_REPLY + _TOKENS_AN_ITEM * len(texts) + size // _BYTES_A_TOKEN
