"""What taking in a span costs a server in processor time, beside one that parses it and forgets it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.benchmarks.ingest.__main__ import driven, started
from tests.benchmarks.ingest.load import Load
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.machine import versions_of
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 5
REQUESTS: Final = 40
AT_ONCE: Final = 8
SPANS_A_TRACE: Final = 10
NAMES: Final = ("100 % kept", "10 % kept", "tail_sampling 10 %", "Phoenix")
PHOENIX: Final = "arize-phoenix"
PACKAGES: Final = {"grpc": "grpcio", "http": "uvicorn"}


def measure(peers: Peers) -> list[Measurement]:
    """Measure the collector, and beside it an OpenTelemetry Collector if it was built, and Phoenix."""
    load = Load(spans_a_trace=SPANS_A_TRACE, at_once=AT_ONCE)
    with ExitStack() as stack:
        servers = started(stack, peers.python.get(PHOENIX), NAMES)
        found = driven(servers, load, ROUNDS, REQUESTS)
    bares = {server.protocol: found[n] for n, server in enumerate(servers) if server.name == "bare"}
    return [
        Measurement(
            what=f"{server.name}, {server.protocol}, CPU a span",
            alternative="a bare receiver in Python",
            ratios=tuple(
                one.cpu_us / other.cpu_us for one, other in zip(found[n], bares[server.protocol], strict=True)
            ),
            versions={
                **versions_of([PACKAGES[server.protocol]]),
                **({PHOENIX: peers.version[PHOENIX]} if server.name == "Phoenix" else {}),
            },
        )
        for n, server in enumerate(servers)
        if server.name != "bare"
    ]
