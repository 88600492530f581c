"""How long a test waits for what must happen."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 300
"""Seconds. It promises no speed and only ends what hangs: a machine with ten other things to do keeps it too.
Less than pytest's own `timeout`, which cannot say what was waited for."""
