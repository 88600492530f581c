"""Write what ``instrument()`` did to the journal file of ``ragtrace doctor --app``, as JSON lines.

Without that file, nothing is written. No line contains captured content.
"""

from __future__ import annotations

import json
import os
from typing import Final

from ragtrace.capture._guard import guarded

JOURNAL: Final = "RAGTRACE_DOCTOR_JOURNAL"


@guarded
def note(event: str, **facts: str | bool | None) -> None:
    """Write an event, if there is a journal file."""
    path = os.environ.get(JOURNAL)
    if not path:
        return
    line = json.dumps({"event": event, "pid": os.getpid(), **facts})
    file = os.open(path, os.O_WRONLY | os.O_APPEND)  # no O_CREAT: the doctor made it
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
