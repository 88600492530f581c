"""Write docs/performance.md and its plots again: ``python -m tests.benchmarks.page``."""

from __future__ import annotations

import sys
from pathlib import Path

from ragtrace.errors import InputError
from tests.benchmarks.page.writing import IMAGES, PAGE, plots, written
from tests.benchmarks.recording import history


def main(folder: Path = history.HISTORY) -> int:
    """Write the files; return the exit code: 2 if the history is broken."""
    try:
        entries = history.read(folder)
    except InputError as exc:
        print(f"Error: {exc}", file=sys.stderr)
        return 2
    PAGE.write_text(written(PAGE.read_text("utf-8"), entries), "utf-8")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for old in IMAGES.glob("*.svg"):
        old.unlink()
    for name, svg in plots(entries).items():
        (IMAGES / name).write_text(svg, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
