"""Who is measured: bare receivers, this collector in its modes, a stock OpenTelemetry Collector, Jaeger."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.acceptance.collector_process import collector_process
from tests.backends.binary import BACKENDS
from tests.backends.jaeger_server import running_jaeger
from tests.backends.process import free_ports, is_listening, running
from tests.benchmarks.measured import Server

_FOREVER: Final = {"quiet_period": "1h", "deadline": "1h"}
_NOTHING_READY: Final = {"assemble": _FOREVER}
"""Taking in alone is measured: nothing gets ready to be judged."""


@contextmanager
def bare(protocol: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.benchmarks.ingest.bare", protocol]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Server(name="bare", pid=process.pid, protocol=protocol, port=port)
    finally:
        process.terminate()
        process.wait()


Exporter: TypeAlias = Mapping[str, Mapping[str, Any]]
_TO_NOBODY: Final[Exporter] = {"debug": {"verbosity": "basic"}}
BOTH: Final = ("grpc", "http")
BY_GRPC: Final = ("grpc",)


def ragtrace_modes(sink: str) -> Mapping[str, tuple[Sequence[str], Mapping[str, Any]]]:
    """Return the collector's modes: by which protocols they are measured, and what differs between them.

    ``sink`` takes what is forwarded.
    """
    forward = {"export": [{"endpoint": sink, "forward": True}]}
    judged = {"assemble": {"quiet_period": "500ms"}, "sample": {"ratio": 0.1}, **forward}
    kept = {
        f"ragtrace, {ratio:g} % kept": (BOTH, {**_NOTHING_READY, "sample": {"ratio": ratio / 100}})
        for ratio in (100, 10, 0)
    }
    forwarded = {
        f"ragtrace, {ratio:g} % kept, forwards": (
            BY_GRPC,
            {**_NOTHING_READY, "sample": {"ratio": ratio / 100}, **forward},
        )
        for ratio in (0, 10)
    }
    return {**kept, **forwarded, "ragtrace, 10 % judged, forwards": (BY_GRPC, judged)}


@contextmanager
def ragtrace(name: str, protocols: Sequence[str], changes: Mapping[str, Any]) -> Iterator[list[Server]]:
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
            "export": [{"endpoint": f"otlp-file:{folder}/out.jsonl"}],
            "store": {"path": f"{folder}/store.db", "max_bytes": "100GiB"},
            "telemetry": {"listen": None},
            "drain_timeout": "0s",
            **changes,
        }
        with collector_process(Path(folder), config) as process:
            ports = {"grpc": process.grpc_port, "http": process.http_port}
            yield [
                Server(name=name, pid=process.process.pid, protocol=protocol, port=port)
                for protocol, port in ports.items()
                if protocol in protocols
            ]
            process.kill()  # what it kept is of no interest: no need to wait until it is settled


@contextmanager
def jaeger(binary: Path) -> Iterator[list[Server]]:
    with tempfile.TemporaryDirectory() as folder, running_jaeger(binary, Path(folder)) as running:
        ports = {"grpc": running.otlp_grpc, "http": running.otlp_http}
        yield [
            Server(name="Jaeger", pid=running.pid, protocol=protocol, port=int(place.rpartition(":")[2]))
            for protocol, place in ports.items()
        ]


def binary_of(name: str) -> Path:
    """Return where a program of `make backends` is, whether it was built or not."""
    where = [BACKENDS / "build.sh", "--where", name]
    return Path(subprocess.run(where, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


def otelcol_version() -> str:
    said = subprocess.run([binary_of("otelcol"), "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return said.stdout.split()[-1]


def otelcol_modes(sink: str) -> Mapping[str, tuple[Sequence[str], Mapping[str, Any], Exporter]]:
    """Return the modes of an OpenTelemetry Collector: protocols, processors and exporter.

    Spans wait in memory to be forwarded, or in ``file_storage``, and are answered once they are there. What
    is sent is not compressed, as ours is not.
    """
    to_sink: Exporter = {"otlp_grpc": {"endpoint": sink, "tls": {"insecure": True}, "compression": "none"}}
    queue = {"storage": "file_storage", "block_on_overflow": True, "wait_for_result": False}
    to_sink_stored: Exporter = {"otlp_grpc": {**to_sink["otlp_grpc"], "sending_queue": queue}}
    tail = {
        "decision_wait": "1s",
        "num_traces": 200_000,
        "policies": [
            {"name": "ratio", "type": "probabilistic", "probabilistic": {"sampling_percentage": 10}}
        ],
    }
    return {
        "otelcol, tail_sampling 10 %": (BOTH, {"tail_sampling": tail}, _TO_NOBODY),
        "otelcol, tail_sampling 10 %, stores and forwards": (BOTH, {"tail_sampling": tail}, to_sink_stored),
        "otelcol, forwards": (BY_GRPC, {"batch": {}}, to_sink),
        "otelcol, stores and forwards": (BY_GRPC, {}, to_sink_stored),
    }


@contextmanager
def otelcol(
    binary: Path, name: str, protocols: Sequence[str], processors: Mapping[str, Any], exporters: Exporter
) -> Iterator[list[Server]]:
    with tempfile.TemporaryDirectory() as folder:
        ports = dict(zip(BOTH, free_ports(2), strict=True))
        file = Path(folder) / "otelcol.json"
        file.write_text(json.dumps(_otelcol_config(folder, ports, processors, exporters)))
        with running(
            [binary, "--config", file],
            env={},
            ready=lambda: all(map(is_listening, ports.values())),
            log=Path(folder) / "log",
        ) as process:
            yield [
                Server(name=name, pid=process.pid, protocol=protocol, port=ports[protocol])
                for protocol in protocols
            ]


def _otelcol_config(
    folder: str, ports: Mapping[str, int], processors: Mapping[str, Any], exporters: Exporter
) -> Mapping[str, Any]:
    protocols = {
        "grpc": {"endpoint": f"127.0.0.1:{ports['grpc']}", "max_recv_msg_size_mib": 16},
        "http": {"endpoint": f"127.0.0.1:{ports['http']}"},
    }
    pipeline = {"receivers": ["otlp"], "processors": list(processors), "exporters": list(exporters)}
    return {
        "receivers": {"otlp": {"protocols": protocols}},
        "processors": processors,
        "exporters": exporters,
        "extensions": {"file_storage": {"directory": folder}},
        "service": {
            "extensions": ["file_storage"],
            "telemetry": {"logs": {"level": "error"}, "metrics": {"level": "none"}},
            "pipelines": {"traces": pipeline},
        },
    }
