"""An application whose collector is away for good: what its spans take of memory is bounded in bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.capture.pipeline import SpanQueue, WaitingSpan
from tests.backends.process import free_ports
from tests.patience import PATIENCE_S

MOST_BYTES: Final = 64 << 20
RECORDED_BYTES: Final = 1 << 28

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
    chunk = {chunk}
    with ragtrace.rag(question="What?") as call:
        with ragtrace.retrieval(query="What?") as search:
            search.set_chunks([{{"id": "c", "text": chunk}}])
        call.answer = "That."
    recorded += len(chunk.encode())
counts = ragtrace.statistics()
print(resident_bytes() - before, counts.spans_ended, counts.spans_dropped, counts.spans_waiting,
      counts.spans_exported + counts.spans_failed)
ragtrace.uninstrument(timeout_s=0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chunk", "recorded"),
    [
        pytest.param(
            "'das Rückgaberecht gilt 30 Tage. 🙂' * 1_000 + os.urandom(8).hex()",
            RECORDED_BYTES,
            id="words beyond ASCII",
        ),
        pytest.param(
            "os.urandom(400).hex()", RECORDED_BYTES // 5, id="next to nothing", marks=pytest.mark.night
        ),
    ],
)
def test_an_application_whose_collector_is_away_does_not_grow(
    tmp_path: Path, chunk: str, recorded: int
) -> None:
    (port,) = free_ports(1)
    app = tmp_path / "app.py"
    app.write_text(APP.format(chunk=chunk))
    ran = subprocess.run(
        [sys.executable, str(app), f"http://127.0.0.1:{port}", str(recorded)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    grown, ended, dropped, waiting, gone = map(int, ran.stdout.split())
    print(f"{grown / 2**20:.0f} MiB for {ended:,} spans, {dropped:,} of them dropped")
    # what is serialized for a request that cannot be sent, and what the allocator keeps, come on top
    assert grown < 2 * MOST_BYTES
    assert ended == dropped + waiting + gone
    assert dropped > 0
    told = re.findall(r"64 MiB or 16,384 spans wait, and the oldest are dropped", ran.stderr)
    assert len(told) == 1, ran.stderr


CONTEXT: Final = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
MOST_SPANS: Final = 8
MOST_QUEUE_BYTES: Final = 40_000
REQUEST_BYTES: Final = 8_000


def span_of(size: int) -> ReadableSpan:
    return ReadableSpan(name="s", context=CONTEXT, attributes={"text": "x" * size})


def size_of(span: ReadableSpan) -> int:
    return len(str((span.attributes or {})["text"]))


@given(steps=st.lists(st.one_of(st.integers(0, 60_000), st.sampled_from(["batch", "portion"])), max_size=60))
def test_the_queue_is_bounded_and_its_counts_add_up_whatever_comes(steps: list[int | str]) -> None:
    queue = SpanQueue(most_spans=MOST_SPANS, most_bytes=MOST_QUEUE_BYTES)
    places: list[WaitingSpan] = []
    ended: list[ReadableSpan] = []
    sent: list[ReadableSpan] = []
    for step in steps:
        if isinstance(step, int):
            ended.append(span_of(step))
            with queue.lock:
                places.append(queue.add(ended[-1], CONTEXT))
        else:
            portions = queue.portions(places, most_bytes=REQUEST_BYTES, size_of=size_of)
            for portion in portions:
                taken = [place.span for place in portion if place.span is not None]
                sent += taken
                assert len(taken) == len(portion)
                assert len(taken) == 1 or sum(map(size_of, taken)) <= REQUEST_BYTES
                queue.sent(portion)
                if step == "portion":
                    break
            places = [place for place in places if place.span is not None]
        waiting = [place.span for place in places if place.span is not None]
        assert queue.held_bytes <= MOST_QUEUE_BYTES
        assert len(waiting) <= MOST_SPANS
        assert (queue.held_bytes > 0) is bool(waiting)
        assert queue.ended == len(ended) == len(sent) + queue.dropped + len(waiting)
        # in order, the newest kept: what was dropped is older than what waits
        assert waiting == ended[len(ended) - len(waiting) :]
    order = [ended.index(span) for span in sent]
    assert order == sorted(set(order))
