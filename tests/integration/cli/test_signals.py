"""Signals while the program waits for standard input: it ends, in order, and says no word of Python's."""

from __future__ import annotations

import fcntl
import json
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from ragtrace.traces.otlp import encode_json
from tests.backends.process import eventually
from tests.integration.cli.program import start
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

INT, TERM = signal.SIGINT, signal.SIGTERM
RECORD = json.dumps({"question": "Refunds?", "contexts": ["Refunds take 14 days."], "answer": "14 days."})
READERS = {
    "evaluate": ("evaluate", "-", "--judge", "lexical"),
    "backfill": ("backfill", "--from", "otlp-file:-", "--judge", "lexical", "--to"),
    "explain": ("explain", "--from", "otlp-file:-", trace_id_of(7)),
}


@pytest.mark.parametrize(
    "signals",
    [(INT,), *(pytest.param(each, marks=pytest.mark.night) for each in ((INT, INT), (TERM,), (TERM, TERM)))],
    ids=str,
)
@pytest.mark.parametrize("reader", READERS)
def test_a_signal_ends_what_waits_for_standard_input(
    reader: str, signals: Sequence[signal.Signals], tmp_path: Path
) -> None:
    to = (f"otlp-file:{tmp_path / 'out.jsonl'}",) if reader == "backfill" else ()
    process = start(*READERS[reader], *to, stdin=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        given = RECORD.encode() if reader == "evaluate" else encode_json(rag_trace(0)).encode()
        process.stdin.write(given + b"\n")
        process.stdin.flush()
        pipe = process.stdin.fileno()
        eventually(lambda: not unread(pipe) or process.poll() is not None, what="that it waits for more")
        for number in signals:
            process.send_signal(number)
        try:
            process.wait(PATIENCE_S)  # its input stays open
        finally:
            process.kill()
        assert process.stderr is not None
        err = process.stderr.read()
    assert process.returncode in {130, -TERM, 0, 1}
    assert b"Traceback" not in err, err.decode()
    assert b"Fatal" not in err, err.decode()


def unread(pipe: int) -> int:
    """Return how many bytes wait in a pipe."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(waiting)
