"""Put recorded traces into a real Grafana Tempo and record what it gives back: it cuts long strings.

    python -m tests.recordings.through_tempo

Needs `make backends`. Tempo's default of 2,048 bytes for the value of an attribute is left as it is.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import evaluate_sync
from ragtrace.model import Sample
from ragtrace.process import SystemClock
from ragtrace.traces import otlp
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Trace
from tests.backends.binary import BACKENDS
from tests.backends.tempo_server import Tempo, running_tempo
from tests.recordings.__main__ import FOLDER, write

__all__ = ["FOLDER", "NAMES", "SOURCES", "stored"]

SOURCES = (
    *("haystack.haystack-hybrid", "langsmith.langchain-agent", "openinference.langchain-forty"),
    *("openinference.llamaindex-reranker", "openllmetry.langchain-agent", "openllmetry.llamaindex"),
    *("openllmetry.llamaindex-reranker", "ragtrace.langchain-agent", "ragtrace.llamaindex-many"),
)
"""Recordings that hold longer strings than Tempo keeps."""
JUDGED = "ragtrace.openai-chat"
"""Stored together with the carrier of its verdicts."""
NAMES = {f"tempo.{source}" for source in SOURCES} | {f"tempo.{JUDGED}.judged"}


def main() -> None:
    where = [BACKENDS / "build.sh", "--where", "tempo"]
    binary = subprocess.run(where, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with TemporaryDirectory() as folder, running_tempo(Path(binary), Path(folder)) as tempo:
        for source in SOURCES:
            _record(tempo, source, f"tempo.{source}", shows="cut at 2,048 bytes by Tempo")
        recording = json.loads((FOLDER / f"{JUDGED}.json").read_text("utf-8"))
        _send(tempo, _carrier(recording["trace"]))
        _record(tempo, JUDGED, f"tempo.{JUDGED}.judged", shows="judged before", carriers=1)


def _record(tempo: Tempo, source: str, name: str, *, shows: str, carriers: int = 0) -> None:
    recording = json.loads((FOLDER / f"{source}.json").read_text("utf-8"))
    about = recording["about"] | {"through": "Tempo", "shows": shows}
    trace = stored(tempo, recording["trace"], carriers)
    write(name, recording | {"about": about, "trace": trace})


def _carrier(trace: dict[str, Any]) -> dict[str, Any]:
    """Judge the answer in a trace, and return the verdicts as a request of their own."""
    spans = otlp.decode_json(json.dumps(trace))
    (record,) = extract_records(Trace.of(spans[0].trace_id, spans)).records
    span = carrier(
        evaluate_sync(record),
        record,
        sample=Sample(rule="ratio", rate=1.0, probability=1.0),
        options=AttachOptions(carrier_time="target"),
        now_ns=SystemClock().now_ns(),
    )
    found: dict[str, Any] = json.loads(otlp.encode_json([span]))
    return found


def _send(tempo: Tempo, trace: dict[str, Any]) -> None:
    httpx.post(f"{tempo.otlp_http}/v1/traces", json=trace).raise_for_status()


def stored(tempo: Tempo, trace: dict[str, Any], carriers: int = 0) -> dict[str, Any]:
    """Return the trace as Tempo keeps it, in OTLP's own JSON instead of protobuf's."""
    _send(tempo, trace)
    spans = [
        span for group in trace["resourceSpans"] for scope in group["scopeSpans"] for span in scope["spans"]
    ]
    kept = tempo.wait_for_trace(spans[0]["traceId"], spans=len(spans) + carriers)
    message = json_format.ParseDict(kept, ExportTraceServiceRequest())
    found: dict[str, Any] = json.loads(otlp.request_to_json(message))
    return found


if __name__ == "__main__":
    main()
