"""Settings of batched judge requests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOST_REQUESTS: Final = 50_000
_MOST_BYTES: Final = 200_000_000


def _say_nothing(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """Settings of batched requests, within OpenAI's limits
    (https://platform.openai.com/docs/api-reference/batch/create)."""

    path: Path
    """The file that maps requests to batches; each judge adds its own suffix to the name."""
    poll_s: float = 30.0
    """Seconds between polls. A batch is sent after this long without a new request (5 s at most)."""
    most_requests: int = MOST_REQUESTS
    """Requests in a batch."""
    most_bytes: int = _MOST_BYTES
    """Size of its file."""
    tell: Callable[[str], None] = _say_nothing
    """Receives progress messages: batches that are sent, continue or end."""

    def path_of(self, judge: str) -> Path:
        """Return the path for one judge, so that judges never share replies."""
        part = hashlib.sha256(judge.encode()).hexdigest()[:8]
        return self.path.with_name(f"{self.path.stem}.{part}.batches")
