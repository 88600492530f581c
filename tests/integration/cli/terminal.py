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
    """A program whose stderr, and stdout unless it is piped, is a terminal of 80 columns."""

    args: tuple[str, ...]
    is_piped: bool = False
    drawn: str = field(default="", init=False)
    """All that was written to the terminal."""

    def __post_init__(self) -> None:
        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *self.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.is_piped else follower,
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

    def finish(self) -> str:
        """Wait for the end of the program, and return what it wrote into the pipe."""
        while part := self._part():
            self.drawn += part
        os.close(self._leader)
        return (self.process.communicate(timeout=PATIENCE_S)[0] or b"").decode()

    def _part(self) -> str:
        try:
            return os.read(self._leader, 65_536).decode(errors="replace")
        except OSError:  # so a pseudo-terminal ends on Linux
            return ""
