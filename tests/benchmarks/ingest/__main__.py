"""Measure what taking in spans costs, beside a bare receiver, an OpenTelemetry Collector, Jaeger and Phoenix.

    python -m tests.benchmarks.ingest [--phoenix-python PATH] [--rounds 3] [--requests 100]

Every server is a process of its own. They take turns, round by round in changing order, and each figure is
the median over the rounds, so that the ratios hold on a noisy machine. Requests are batches of 100 spans of
about 2 kB, of ten traces that were never sent before. *CPU* is the server's processor time a span, read when
it has come to rest. *taken* is what was acknowledged, on the cores that the senders use, too; *done* counts
until it has come to rest: Phoenix stores, and a collector forwards, after it has acknowledged.

*kept* is durable: a request is answered after its spans are committed. *forwards* hands on to a bare receiver
what came in; otelcol's forwards from memory, and *stores and forwards* answers when its queue is on disk, as
ours does; *held and judged* writes scores onto the answer spans before that, by the heuristic that needs
no model; in the other rows nothing is judged. ``PATH`` is the interpreter of an environment with
`arize-phoenix`. The OpenTelemetry Collector and Jaeger, with its memory store, are those of `make backends`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

from tests.benchmarks.ingest.load import SPANS, Load, Measured
from tests.benchmarks.ingest.servers import (
    bare,
    binary_of,
    jaeger,
    otelcol,
    otelcol_modes,
    phoenix,
    ragtrace,
    ragtrace_modes,
)
from tests.benchmarks.measured import Server, table

PHOENIX_SHARE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phoenix-python", default=None, metavar="PATH")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100, help="a round and server, of 100 spans each")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--spans-a-trace", type=int, default=10)
    parser.add_argument("--only", default="", help="servers whose name holds this, besides the bare ones")
    options = parser.parse_args()
    load = Load(spans_a_trace=options.spans_a_trace, at_once=options.at_once)
    print(
        f"{options.rounds} rounds of {options.requests * SPANS} spans, {load.bytes_a_span:.0f} bytes each\n"
    )
    with ExitStack() as stack:
        servers = started(stack, options.phoenix_python, [options.only])
        print(_result(servers, driven(servers, load, options.rounds, options.requests)))


def driven(
    servers: Sequence[Server], load: Load, rounds: int, most_requests: int
) -> dict[int, list[Measured]]:
    """Send every server its share, in turns; return what each made of it, by its place, round by round."""
    found: dict[int, list[Measured]] = defaultdict(list)
    for number in range(rounds + 1):
        # the first round warms up, by a tenth of the load
        most = most_requests if number else most_requests // 10
        for position in random.sample(range(len(servers)), len(servers)):
            requests = load.requests(max(1, int(most * servers[position].share)))
            measured = asyncio.run(load.drive(servers[position], requests))
            if number:
                found[position].append(measured)
    return found


def started(stack: ExitStack, phoenix_python: str | None, only: Sequence[str]) -> list[Server]:
    """Start the bare receivers, and the servers whose name holds one of ``only``."""
    bares = [stack.enter_context(bare(protocol)) for protocol in ("grpc", "http")]
    sink = stack.enter_context(bare("grpc"))
    servers = list(bares)
    for name, mode in ragtrace_modes(f"grpc://127.0.0.1:{sink.port}").items():
        if _is_wanted(name, only):
            servers += stack.enter_context(ragtrace(name, *mode))
    binary = binary_of("otelcol")
    for name, otelcol_mode in otelcol_modes(f"127.0.0.1:{sink.port}").items():
        if _is_wanted(name, only) and binary.exists():
            servers += stack.enter_context(otelcol(binary, name, *otelcol_mode))
    if _is_wanted("Jaeger", only) and (binary := binary_of("jaeger")).exists():
        servers += stack.enter_context(jaeger(binary))
    if phoenix_python and _is_wanted("Phoenix", only):
        servers.append(stack.enter_context(phoenix(phoenix_python, share=PHOENIX_SHARE)))
    return servers


def _is_wanted(name: str, only: Sequence[str]) -> bool:
    return any(each in name for each in only)


def _result(servers: Sequence[Server], found: dict[int, list[Measured]]) -> str:
    bares = {server.protocol: found[n] for n, server in enumerate(servers) if server.name == "bare"}
    return table([_row(server, found[n], bares[server.protocol]) for n, server in enumerate(servers)])


def _row(server: Server, mine: list[Measured], bares: list[Measured]) -> dict[str, object]:
    return {
        "server": server.name,
        "protocol": server.protocol,
        "spans/s taken": statistics.median(each.spans_per_s for each in mine),
        "spans/s done": statistics.median(each.done_per_s for each in mine),
        "CPU µs a span": statistics.median(each.cpu_us for each in mine),
        "CPU, of bare": statistics.median(a.cpu_us / b.cpu_us for a, b in zip(mine, bares, strict=True)),
        "RSS MB": server.rss_mb(),
    }


if __name__ == "__main__":
    main()
