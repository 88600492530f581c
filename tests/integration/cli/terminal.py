"""The program on a terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from dataclasses import dataclass, field

from tests.integration.cli.program import COMMAND
from tests.patience import PATIENCE_S

__all__ = ["OnTerminal"]


@dataclass
class OnTerminal:
    """A program whose stdout and stderr are a terminal of 80 columns."""

    args: tuple[str, ...]
    drawn: str = field(default="", init=False)
    """All that was written to the terminal."""

    def __post_init__(self) -> None:
        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *self.args],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        os.close(follower)

    def read_until(self, text: str) -> None:
        """Return once this stands on the terminal."""
        while text not in self.drawn:
            part = self._part()
            assert part, self.drawn
            self.drawn += part

    def finish(self) -> None:
        """Wait for the end of the program."""
        while part := self._part():
            self.drawn += part
        os.close(self._leader)
        self.process.wait(timeout=PATIENCE_S)

    def _part(self) -> str:
        try:
            return os.read(self._leader, 65_536).decode(errors="replace")
        except OSError:  # so a pseudo-terminal ends on Linux
            return ""
