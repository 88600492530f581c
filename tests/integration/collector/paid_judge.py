"""A judge that costs money and fails as a test tells it: its address is ``PAID`` and a name."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ragtrace.errors import JudgeError, JudgeRefused
from ragtrace.judge import JudgeSettings, ScriptedJudge
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest, ReplyT

PAID: Final = f"{__name__}:open_paid:"


@dataclass
class Paid:
    """What a test and its judge know of each other."""

    failure: JudgeError | None = None
    """Raised on every request."""
    refused_text: str | None = None
    """Requests with it are refused, and no others."""
    calls: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared, it lets every request wait."""

    def __post_init__(self) -> None:
        self.open.set()


_KNOWN: Final[defaultdict[str, Paid]] = defaultdict(Paid)


def paid(name: str) -> Paid:
    """Return what the judge of this name does; a test gives a name of its own."""
    return _KNOWN[name]


def prices(folder: Path, *names: str) -> str:
    """Write a table in which a token of these judges costs a cent."""
    models = "\n".join(f"{name} = {{ input = 10000, output = 10000 }}" for name in names)
    file = folder / "prices.toml"
    file.write_text(f"[paid]\n{models}\n")
    return str(file)


def open_paid(settings: JudgeSettings) -> Judge:
    """Open a scripted judge that passes for a model of a provider."""
    return _PaidJudge(settings.argument)


class _PaidJudge:
    def __init__(self, name: str) -> None:
        self._name = name
        self._inner = ScriptedJudge()

    @property
    def identity(self) -> JudgeIdentity:
        return JudgeIdentity(provider="paid", model=self._name)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        known = paid(self._name)
        known.calls += 1
        await known.open.wait()
        if known.failure is not None:
            raise known.failure
        if known.refused_text is not None and known.refused_text in request.user:
            raise JudgeRefused("a gateway forbids it (HTTP 403)", usage=Usage())
        return await self._inner.ask(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
