"""The cache layer, the outermost one.

The key of a request is all of its content: judge, step, instructions, material, form of the reply and
sampling. A verdict belongs to the claims that were judged beside it: an instruction in one of them may have
decided it. Errors are not cached, nor replies that failed a canary claim or a check of their numbers.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeError
from ragtrace.judge._cache_file import CacheFile
from ragtrace.judge.content import asked, digest, read_reply, write_reply
from ragtrace.judge.layers import JudgeLayer
from ragtrace.ports import FreeText, Judge, JudgeReply, JudgeRequest, YesProbability

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_VERSION: Final = 2
"""Part of every key: changes with the format of the entries."""
_WANTS_A_DRAW: Final = 0.1
"""Requests above this temperature are not cached: they need a new random draw each time."""


def cached(judge: Judge, file: CacheFile, *, place: str = "") -> Judge:
    """Answer repeated requests from the file; such an answer has ``Usage(calls=0)``.

    Args:
        judge: Answers what is not in the cache.
        file: The cache; closed together with the judge.
        place: The judge's endpoint: elsewhere the same name may be another model.
    """
    return _Cached(judge, file, place)


def uncached(judge: Judge) -> Judge:
    """Return a judge without its cache, for example to test whether the endpoint answers."""
    return judge.inner if isinstance(judge, _Cached) else judge


class _Cached(JudgeLayer):
    def __init__(self, judge: Judge, file: CacheFile, place: str) -> None:
        super().__init__(judge)
        self._file = file
        self._who = [_VERSION, *judge.identity.named, place]

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        if request.sampling and (request.sampling.temperature or 0.0) > _WANTS_A_DRAW:
            return await self.inner.ask(request)
        key = digest([*asked(request, self._who), _material(request), request.max_output_tokens])
        found = await self._file.get([key])
        if key in found and (known := read_reply(found[key], request.reply_type)):
            return known
        reply = await self.inner.ask(request)
        if not (isinstance(reply.value, FreeText) and reply.value.cut_off) and _is_believed(reply, request):
            await self._file.put({key: write_reply(reply)})
        return reply

    async def aclose(self) -> None:
        await self.inner.aclose()
        await self._file.aclose()


def _is_believed(reply: JudgeReply[ReplyT], request: JudgeRequest[ReplyT]) -> bool:
    """Return whether the request's canary claims were judged correctly, and each number once."""
    try:
        if request.check:
            request.check(reply.value)
    except JudgeError:
        return False
    return True


def _material(request: JudgeRequest[Any]) -> Any:
    # a claim's questions differ between records only in their fences
    inputs = request.inputs
    if issubclass(request.reply_type, YesProbability) and type(inputs).model_fields:
        return [type(inputs).__qualname__, inputs.model_dump()]
    return request.user
