"""What recording one RAG call costs an application, beside the bare SDK that writes the same attributes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.benchmarks.capture_cost.__main__ import BARE, interleave, started
from tests.benchmarks.peers import Peers
from tests.benchmarks.recording.machine import versions_of
from tests.benchmarks.recording.measurement import Measurement

ROUNDS: Final = 40
CALLS: Final = 40
OURS: Final = ("ragtrace", "ragtrace, sampled out", "ragtrace, not instrumented")
PEERS: Final = {
    "Langfuse": "langfuse",
    "Logfire": "logfire",
    "MLflow": "mlflow-tracing",
    "OpenInference": "openinference-instrumentation",
    "OpenLLMetry (Traceloop SDK)": "traceloop-sdk",
}
QUANTITIES: Final = {"wall": "time of the caller", "process": "CPU"}


def measure(peers: Peers) -> list[Measurement]:
    """Measure ragtrace in this environment, and each peer in its own, beside the bare SDK there."""
    found = _beside_the_sdk(OURS, None, {})
    for name, package in PEERS.items():
        if package in peers.python:
            found += _beside_the_sdk((name,), peers.python[package], {package: peers.version[package]})
    return found


def _beside_the_sdk(
    names: tuple[str, ...], python: str | None, versions: dict[str, str]
) -> list[Measurement]:
    with ExitStack() as stack:
        _, (bare, *contenders) = started(stack, [BARE, *names], python)
        interleave([bare, *contenders], ROUNDS, CALLS)
    return [
        Measurement(
            what=f"{contender.name}, {shown}",
            alternative=BARE,
            ratios=tuple(
                one[quantity] / other[quantity]
                for one, other in zip(contender.rounds, bare.rounds, strict=True)
            ),
            versions={**versions_of(["opentelemetry-sdk"]), **versions},
        )
        for contender in contenders
        for quantity, shown in QUANTITIES.items()
    ]
