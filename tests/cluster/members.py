"""The processes of a cluster: collectors with roles, each in a folder of its own."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.patience import PATIENCE_S

__all__ = ["Member", "cluster_config", "create_topics"]


def cluster_config(broker: str, *, prefix: str = "ragtrace", **sections: Any) -> dict[str, Any]:
    """Return the configuration that all processes of a cluster share."""
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "200ms", "deadline": "5s"},
        "judge": {"use": "lexical"},
        "store": {"kafka": {"brokers": broker, "prefix": prefix, "session_timeout": "6s"}},
        "telemetry": {"listen": "127.0.0.1:0"},
        **sections,
    }


def create_topics(kafka: Any, *, prefix: str = "ragtrace", partitions: int = 6) -> None:
    """Create the topics of a cluster as ``ragtrace kafka topics --apply`` does."""
    kafka.create(f"{prefix}.spans", partitions=partitions, **{"max.message.bytes": str(64 << 20)})
    kafka.create(
        f"{prefix}.state",
        partitions=partitions,
        **{"cleanup.policy": "compact", "max.message.bytes": str(64 << 20)},
    )
    kafka.create(f"{prefix}.budget", **{"retention.ms": "-1"})


@dataclass(slots=True, kw_only=True)
class Member:
    """One process, which may be started again after it ended."""

    name: str
    role: str
    folder: Path
    config: Mapping[str, Any]
    options: Sequence[str] = ()
    """Of the command."""
    running: CollectorProcess | None = None
    starts: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> CollectorProcess:
        """Start it, and return when it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        store = {**self.config["store"], "path": str(self.folder / "shards")}
        kafka = {**store["kafka"], "group_instance_id": self.name}
        config = {**self.config, "role": self.role, "store": {**store, "kafka": kafka}}
        self._stack = ExitStack()
        self.running = self._stack.enter_context(collector_process(self.folder, config, options=self.options))
        self.starts += 1
        return self.running

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.running is not None:
            self.running.kill()
            self._ended()

    def stop(self) -> None:
        """Send SIGTERM, and wait."""
        if self.running is not None:
            self._stack.close()
            self.running = None

    def pause(self) -> None:
        """Send SIGSTOP: it does nothing, and knows nothing of it."""
        if self.running is not None:
            self.running.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Send SIGCONT."""
        if self.running is not None:
            self.running.process.send_signal(signal.SIGCONT)

    def page(self, path: str) -> Any:
        """Return what one of its pages says."""
        assert self.running is not None
        return httpx.get(f"http://127.0.0.1:{self.running.pages_port}{path}", timeout=PATIENCE_S).json()

    def last_lines(self, number: int = 30) -> str:
        """Return the end of its log."""
        log = self.folder / "collector.log"
        return "\n".join(log.read_text("utf-8").splitlines()[-number:]) if log.exists() else ""

    def send(self, body: bytes) -> bool:
        """Send a request of OTLP; say whether it was acknowledged."""
        running = self.running
        if running is None:
            return False
        try:
            answer = httpx.post(
                f"http://127.0.0.1:{running.http_port}/v1/traces",
                content=body,
                headers={"content-type": "application/x-protobuf"},
                timeout=15,
            )
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK

    def _ended(self) -> None:
        self._stack.close()
        self.running = None
