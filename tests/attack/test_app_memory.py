"""An application whose collector is away for good: what its spans take of memory is bounded in bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.backends.process import free_ports
from tests.patience import PATIENCE_S

MOST_BYTES: Final = 64 << 20
RECORDED_BYTES: Final = 3 << 26

APP: Final = """
import os, sys
import ragtrace

def resident_bytes():
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmRSS"))

ragtrace.instrument(endpoint=sys.argv[1], service_name="app")
with ragtrace.rag(question="What?") as call:
    call.answer = "That."
before = resident_bytes()
recorded = 0
while recorded < int(sys.argv[2]):
    chunk = 'das Rückgaberecht gilt 30 Tage. 🙂' * 1_000 + os.urandom(8).hex()
    with ragtrace.rag(question="What?") as call:
        with ragtrace.retrieval(query="What?") as search:
            search.set_chunks([{"id": "c", "text": chunk}])
        call.answer = "That."
    recorded += len(chunk.encode())
counts = ragtrace.statistics()
print(resident_bytes() - before, counts.spans_ended, counts.spans_dropped, counts.spans_waiting,
      counts.spans_exported + counts.spans_failed)
ragtrace.uninstrument(timeout_s=0)
"""


@pytest.mark.slow
def test_an_application_whose_collector_is_away_does_not_grow(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    app = tmp_path / "app.py"
    app.write_text(APP)
    ran = subprocess.run(
        [sys.executable, str(app), f"http://127.0.0.1:{port}", str(RECORDED_BYTES)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    grown, ended, dropped, waiting, gone = map(int, ran.stdout.split())
    # what is serialized for a request that cannot be sent, and what the allocator keeps, come on top
    assert grown < 2 * MOST_BYTES
    assert ended == dropped + waiting + gone
    assert dropped > 0
    told = re.findall(r"64 MiB or 16,384 spans wait, and the oldest are dropped", ran.stderr)
    assert len(told) == 1, ran.stderr
