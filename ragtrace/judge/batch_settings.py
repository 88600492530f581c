"""How a judge's requests are sent in batches."""

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
    """How requests are sent in batches, within what OpenAI takes
    (https://platform.openai.com/docs/api-reference/batch/create)."""

    path: Path
    """Where it is kept which request is in which batch; each judge adds a part of its own to the name."""
    poll_s: float = 30.0
    """Between two looks at a batch. A batch is sent when nothing new was asked for as long, 5 s at most."""
    most_requests: int = MOST_REQUESTS
    """In a batch."""
    most_bytes: int = _MOST_BYTES
    """In its file."""
    tell: Callable[[str], None] = _say_nothing
    """Is told of batches that are sent, go on and end."""

    def path_of(self, judge: str) -> Path:
        """Return the path for one judge: replies of another are none of its."""
        part = hashlib.sha256(judge.encode()).hexdigest()[:8]
        return self.path.with_name(f"{self.path.stem}.{part}.batches")
