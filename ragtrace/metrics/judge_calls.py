"""Judge calls: in batches, concurrently, with their usage summed up."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError, JudgeNonsense
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Embedder, Judge, JudgeReply, JudgeRequest

T = TypeVar("T")
S = TypeVar("S")
ReplyT = TypeVar("ReplyT", bound=BaseModel)

_TOKENS_A_REPLY = 256
_TOKENS_AN_ITEM = 160
_BYTES_A_TOKEN = 2


class MeteredJudge:
    """A judge that sums up its usage, failed requests included."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.spent = Usage()

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self._judge.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request, and count its usage."""
        try:
            reply = await self._judge.ask(request)
        except JudgeError as failed:
            self.spent += failed.usage
            raise
        self.spent += reply.usage
        return reply

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Turn texts into vectors, and count the usage."""
        try:
            embeddings = await embedder.embed(texts)
        except JudgeError as failed:
            self.spent += failed.usage
            raise
        self.spent += embeddings.usage
        if len(embeddings.vectors) != len(texts):
            raise JudgeNonsense(f"the embedder gave {len(embeddings.vectors)} vectors for {len(texts)} texts")
        return embeddings.vectors

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()


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
