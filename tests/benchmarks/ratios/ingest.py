"""What taking in a span costs a server in processor time.

Each server is compared with one that parses spans and forgets them, and the collector with an OpenTelemetry
Collector that does the same: sample, keep, or forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from tests.benchmarks.ingest.__main__ import driven, started
from tests.benchmarks.ingest.load import Load, Measured
from tests.benchmarks.ingest.servers import otelcol_version
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.machine import versions_of
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 5
REQUESTS: Final = 150
AT_ONCE: Final = 8
SPANS_A_TRACE: Final = 10
NAMES: Final = (" 0 % kept", "100 % kept", "10 % kept", "tail_sampling 10 %", "forwards", "Jaeger", "Phoenix")
TAIL: Final = "otelcol, tail_sampling 10 %"
RIVALS: Final = {
    "ragtrace, 0 % kept": (TAIL,),
    "ragtrace, 10 % kept": (TAIL, f"{TAIL}, stores and forwards"),
    "ragtrace, 100 % kept": ("Jaeger", "Phoenix"),
    "ragtrace, 0 % kept, forwards": ("otelcol, forwards", "otelcol, stores and forwards"),
}
PHOENIX: Final = "arize-phoenix"
PACKAGES: Final = {"grpc": "grpcio", "http": "uvicorn"}


def measure(peers: Peers) -> list[Measurement]:
    """Measure the collector, and beside it an OpenTelemetry Collector if it was built, and Phoenix."""
    load = Load(spans_a_trace=SPANS_A_TRACE, at_once=AT_ONCE)
    with ExitStack() as stack:
        servers = started(stack, peers.python.get(PHOENIX), NAMES)
        found = driven(servers, load, ROUNDS, REQUESTS)
    measured = {(server.name, server.protocol): found[n] for n, server in enumerate(servers)}
    beside_bare = [
        _ratio(measured, name, "bare", protocol, _versions_of(name, peers))
        for name, protocol in measured
        if name != "bare"
    ]
    beside_rivals = [
        _ratio(measured, name, rival, protocol, _versions_of(rival, peers))
        for name, protocol in measured
        for rival in RIVALS.get(name, ())
        if (rival, protocol) in measured
    ]
    return beside_bare + beside_rivals


def _versions_of(server: str, peers: Peers) -> Mapping[str, str]:
    if server == "Phoenix":
        return {PHOENIX: peers.version[PHOENIX]}
    return {"otelcol": otelcol_version()} if server.startswith("otelcol") else {}


def _ratio(
    measured: Mapping[tuple[str, str], Sequence[Measured]],
    name: str,
    other: str,
    protocol: str,
    versions: Mapping[str, str],
) -> Measurement:
    pairs = zip(measured[name, protocol], measured[other, protocol], strict=True)
    return Measurement(
        what=f"{name}, {protocol}, CPU a span",
        alternative="a bare receiver in Python" if other == "bare" else other,
        ratios=tuple(one.cpu_us / another.cpu_us for one, another in pairs),
        versions={**versions_of([PACKAGES[protocol]]), **versions},
    )
