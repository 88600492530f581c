"""A real Jaeger with its own page, for the picture of a verdict in a trace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragtrace.cli.demo_run import Backend
from tests.backends.process import free_ports, is_listening, running

_BACKENDS = Path(__file__).parents[1] / "backends"


@contextmanager
def running_jaeger_page(assets: Path, folder: Path) -> Iterator[Backend]:
    """Run a Jaeger that serves the built page in a folder; its module has none."""
    where = [_BACKENDS / "build.sh", "--where", "jaeger"]
    binary = subprocess.run(where, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    grpc, http, query, query_grpc = free_ports(4)
    env = {
        "JAEGER_OTLP_GRPC": f"127.0.0.1:{grpc}",
        "JAEGER_OTLP_HTTP": f"127.0.0.1:{http}",
        "JAEGER_QUERY_HTTP": f"127.0.0.1:{query}",
        "JAEGER_QUERY_GRPC": f"127.0.0.1:{query_grpc}",
    }
    command: list[str | Path] = [
        binary,
        *("--config", _BACKENDS / "jaeger" / "jaeger.yaml"),
        *("--set", f"extensions.jaeger_query.ui.assets_path={assets.resolve()}"),
    ]
    ready = lambda: all(map(is_listening, (grpc, query)))  # noqa: E731 -- one expression
    with running(command, env=env, ready=ready, log=folder / "jaeger.log"):
        yield Backend(endpoint=f"grpc://127.0.0.1:{grpc}", ui=f"http://127.0.0.1:{query}")
