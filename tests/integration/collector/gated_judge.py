"""A judge that answers when the test lets it: name it as ``judge.use``, with ``GATED`` and a gate's name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from ragtrace.judge import JudgeSettings, ScriptedJudge
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, ReplyT

__all__ = ["GATED", "gate_of", "open_gated"]

GATED: Final = f"{__name__}:open_gated:"

_GATES: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def gate_of(name: str) -> asyncio.Event:
    """Return the event that the judge of this name waits for; a test gives a name of its own."""
    return _GATES[name]


def open_gated(settings: JudgeSettings) -> Judge:
    """Open a scripted judge behind a gate."""
    return _GatedJudge(ScriptedJudge(), gate_of(settings.argument))


class _GatedJudge:
    def __init__(self, inner: Judge, gate: asyncio.Event) -> None:
        self._inner, self._gate = inner, gate

    @property
    def identity(self) -> JudgeIdentity:
        return self._inner.identity

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        await self._gate.wait()
        return await self._inner.ask(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
