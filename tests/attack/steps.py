"""Work counted in instructions of the project's own code: a busy machine does not change their number."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Steps", "counted_steps"]


class Steps:
    """Counts instructions by function."""

    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return sum(self.by_function.values())

    def enter(self, frame: FrameType, _event: str, _arg: object) -> Any:
        """Trace a frame of ours instruction by instruction, and no other."""
        code = frame.f_code
        if not str(frame.f_globals.get("__name__")).startswith("ragtrace"):
            return None  # so that methods that dataclasses made are ours, too
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        name = f"{Path(code.co_filename).stem}.{code.co_qualname}"

        def step(_frame: FrameType, event: str, _arg: object) -> Any:
            if event == "opcode":
                self.by_function[name] += 1
            return step

        return step


@contextmanager
def counted_steps() -> Iterator[Steps]:
    """Count what this thread, and those that start meanwhile, do until the block ends."""
    steps, before = Steps(), sys.gettrace()
    threading.settrace(steps.enter)
    sys.settrace(steps.enter)
    try:
        yield steps
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]
