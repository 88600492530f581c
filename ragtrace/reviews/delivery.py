"""Deliver the spans of reviews to the back ends: kept until they are there, and no page waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace.errors import ReadError, SendError, SendRefused, SendRejected, SendUnconfirmed, WriteError
from ragtrace.ports import SpanSink
from ragtrace.reviews.file import ReviewFile

log = logging.getLogger("ragtrace.reviews")

_PAUSE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDelivery:
    """Sends what waits, at once and again after a pause if a sink is down."""

    reviews: ReviewFile
    sinks: Mapping[str, SpanSink]
    """By the names under which spans wait."""
    pause_s: float = _PAUSE_S

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self.reviews.added.clear()
            for name in self.sinks:
                try:
                    await self.deliver(name)
                except (ReadError, WriteError) as exc:  # it is sent again, and is the same span
                    log.warning("%s", exc)
            try:
                async with asyncio.timeout(self.pause_s):
                    await self.reviews.added.wait()
            except TimeoutError:
                pass

    async def deliver(self, name: str) -> None:
        """Send what waits for one sink, until nothing is left or it fails.

        Raises:
            ReadError: the file cannot be read.
            WriteError: it cannot be written: what was delivered still waits.
        """
        sink = self.sinks[name]
        while waiting := await self.reviews.waiting(name):
            for span in waiting:
                try:
                    await sink.send(span.payload)
                except SendRefused as exc:
                    log.warning("reviews wait for %s: %s", sink.name, exc)
                    return
                except SendRejected as exc:
                    log.warning("a review was refused by %s: %s", sink.name, exc)
                    await self.reviews.refused([span], str(exc))
                    continue
                except SendUnconfirmed:
                    pass  # it reported success: a second copy would be the same span
                except SendError as exc:
                    log.warning("reviews wait for %s: %s", sink.name, exc)
                    return
                await self.reviews.delivered([span])
