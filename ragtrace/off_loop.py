"""Work on foreign text takes linear time; what is large leaves the event loop to others meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_LARGE: Final = 1 << 16
"""Bytes or characters: some milliseconds of parsing."""


async def off_loop(size: int, work: Callable[..., T], *given: object) -> T:
    """Return ``work(*given)``, done in a thread if the text that it reads is larger than 64 KiB."""
    return await asyncio.to_thread(work, *given) if size > _LARGE else work(*given)
