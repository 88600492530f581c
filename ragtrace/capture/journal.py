"""What ``instrument()`` did, in the file that ``ragtrace doctor --app`` names: a line of JSON each.

Without that file, nothing is written. No line holds content.
"""

from __future__ import annotations

import json
import os
from typing import Final

from ragtrace.capture._guard import guarded

JOURNAL: Final = "RAGTRACE_DOCTOR_JOURNAL"


@guarded
def note(event: str, **facts: str | bool | None) -> None:
    """Write down what happened, if somebody asked for it."""
    path = os.environ.get(JOURNAL)
    if not path:
        return
    line = json.dumps({"event": event, "pid": os.getpid(), **facts})
    file = os.open(path, os.O_WRONLY | os.O_APPEND)  # the doctor made it: nobody else's folder gets a file
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
