"""What one judged answer executes: ``python -m tests.path_of_an_answer``.

One stored trace is back-filled twice in this process, with faithfulness, the scripted judge and a file as the
sink. Of the second run, whose imports are done, functions entered and lines executed are counted.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ragtrace.cli.app import cli
from ragtrace.traces.otlp import encode_json
from tests.rag_spans import rag_trace

_ROOT = Path(__file__).parent.parent
_OURS = (f"{_ROOT / 'ragtrace'}/", f"{_ROOT / 'collector'}/")


def main() -> int:
    functions: set[tuple[str, str, int]] = set()
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            return None
        if event == "call":
            functions.add((file, frame.f_code.co_qualname, frame.f_code.co_firstlineno))
        else:
            lines.add((file, frame.f_lineno))
        return trace

    with tempfile.TemporaryDirectory() as folder:
        _backfill(Path(folder), 1)
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            _backfill(Path(folder), 2)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]  # it takes None, as `sys.settrace` does
    files = {file for file, _ in lines}
    print(f"{len(functions)} functions, {len(lines)} lines, {len(files)} files")
    return 0


def _backfill(folder: Path, number: int) -> None:
    stored, out = folder / f"{number}.jsonl", folder / f"out-{number}.jsonl"
    stored.write_text(encode_json(rag_trace(number)) + "\n", "utf-8")
    places = ("--from", f"otlp-file:{stored}", "--to", f"otlp-file:{out}")
    cli.main(["backfill", *places, "--judge", "scripted"], standalone_mode=False)
    assert out.read_bytes(), "nothing was judged"


if __name__ == "__main__":
    sys.exit(main())
