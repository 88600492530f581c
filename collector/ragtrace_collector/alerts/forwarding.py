"""Judged answers go from the other shards of a cluster to the one that watches objectives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from ragtrace_collector.deliver.mail import encode_answers
from ragtrace_collector.store.port import MAIL, Notice, WatchStore

_AT_ONCE: Final = 200
_FIRST_SHARD: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForwarding:
    """Puts watched answers into the outbox as mail, each once."""

    store: WatchStore
    shard: int
    """The number of this one."""
    done: asyncio.Event
    """Set when there are new items to deliver."""

    async def step(self) -> bool:
        """Forward some answers; say whether more may be waiting."""
        answers = await self.store.watched(_AT_ONCE)
        if not answers:
            return False
        payload = encode_answers(answers, sender=self.shard, to=_FIRST_SHARD)
        notices = [Notice(sink=MAIL, payload=payload)]
        await self.store.note_watch(states={}, up_to=answers[-1].id, notices=notices)
        self.done.set()
        return len(answers) == _AT_ONCE
