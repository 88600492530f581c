"""What taking in a span costs a server in processor time.

Each server is compared with one that parses spans and forgets them, and the collector with an OpenTelemetry
Collector that does the same: sample, keep, or forward. Every server is a process of its own. They take turns,
round by round in changing order. Requests are batches of 100 spans of about 2 kB, of ten traces that were
never sent before; the processor time is read when the server has come to rest. *kept* is durable: a request
is answered after its spans are committed. *forwards* hands on to a bare receiver what came in; otelcol's
forwards from memory, and *stores and forwards* answers when its queue is on disk, as ours does. But for
*judged*, by the heuristic that needs no model, nothing is judged.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from tests.benchmarks.ingest.load import Load
from tests.benchmarks.ingest.servers import (
    bare,
    binary_of,
    jaeger,
    otelcol,
    otelcol_modes,
    otelcol_version,
    phoenix,
    ragtrace,
    ragtrace_modes,
)
from tests.benchmarks.measured import Server
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording import Measurement, versions_of

ROUNDS: Final = 5
REQUESTS: Final = 150
AT_ONCE: Final = 8
SPANS_A_TRACE: Final = 10
PHOENIX_SHARE: Final = 0.1
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
        servers = _started(stack, peers.python.get(PHOENIX))
        found = _driven(servers, load)
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


def _started(stack: ExitStack, phoenix_python: str | None) -> list[Server]:
    bares = [stack.enter_context(bare(protocol)) for protocol in ("grpc", "http")]
    sink = stack.enter_context(bare("grpc"))
    servers = list(bares)
    for name, mode in ragtrace_modes(f"grpc://127.0.0.1:{sink.port}").items():
        servers += stack.enter_context(ragtrace(name, *mode))
    if (binary := binary_of("otelcol")).exists():
        for name, otelcol_mode in otelcol_modes(f"127.0.0.1:{sink.port}").items():
            servers += stack.enter_context(otelcol(binary, name, *otelcol_mode))
    if (binary := binary_of("jaeger")).exists():
        servers += stack.enter_context(jaeger(binary))
    if phoenix_python:
        servers.append(stack.enter_context(phoenix(phoenix_python, share=PHOENIX_SHARE)))
    return servers


def _driven(servers: Sequence[Server], load: Load) -> dict[int, list[float]]:
    """Send every server its share, in turns; return what each made of it, by its place, round by round."""
    found: dict[int, list[float]] = defaultdict(list)
    for number in range(ROUNDS + 1):
        # the first round warms up, by a tenth of the load
        most = REQUESTS if number else REQUESTS // 10
        for position in random.sample(range(len(servers)), len(servers)):
            requests = load.requests(max(1, int(most * servers[position].share)))
            measured = asyncio.run(load.drive(servers[position], requests))
            if number:
                found[position].append(measured)
    return found


def _versions_of(server: str, peers: Peers) -> Mapping[str, str]:
    if server == "Phoenix":
        return {PHOENIX: peers.version[PHOENIX]}
    return {"otelcol": otelcol_version()} if server.startswith("otelcol") else {}


def _ratio(
    measured: Mapping[tuple[str, str], Sequence[float]],
    name: str,
    other: str,
    protocol: str,
    versions: Mapping[str, str],
) -> Measurement:
    pairs = zip(measured[name, protocol], measured[other, protocol], strict=True)
    return Measurement(
        what=f"{name}, {protocol}, CPU a span",
        alternative="a bare receiver in Python" if other == "bare" else other,
        ratios=tuple(one / another for one, another in pairs),
        versions={**versions_of([PACKAGES[protocol]]), **versions},
    )
