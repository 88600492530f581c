"""Further processes of this machine that judge beside this one, for `ragtrace collector --workers`."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_AGAIN_S: Final = 2.0
"""A worker that ended is started again after this long."""


def check_workers(config: CollectorConfig, number: int) -> None:
    """See that several processes can work on what a configuration names.

    Raises:
        ConfigError: the store belongs to one process.
    """
    if number > 1 and config.store.kafka is None:
        raise ConfigError(
            f"`--workers {number}` needs a store that several processes share: set `store.kafka`. A file has"
            " one owner, and one process goes far: see docs/scale.md"
        )
    if number > 1 and not config.judges:
        raise ConfigError("`--workers` are processes that judge, and `role: ingest` judges nothing")


def config_of_worker(config: CollectorConfig, number: int) -> CollectorConfig:
    """Return the configuration of a further process: it only judges, and its pages are some ports higher."""
    kafka = config.store.kafka
    assert kafka is not None
    name = kafka.group_instance_id
    kafka = kafka.model_copy(update={"group_instance_id": name and f"{name}-{number}"})
    return config.model_copy(
        update={
            "role": "evaluate",
            "store": config.store.model_copy(update={"kafka": kafka}),
            "telemetry": config.telemetry.model_copy(
                update={"listen": _higher(config.telemetry.listen, number)}
            ),
            "ui": config.ui.model_copy(update={"listen": None}),
        }
    )


def _higher(address: str | None, number: int) -> str | None:
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number if int(port) else 0}"


@dataclass(slots=True)
class Workers:
    """Processes that run until they are stopped; one that ends is started again."""

    commands: Sequence[Sequence[str]]
    longest_stop_s: float
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start them, and stop them in the end."""
        watching = [
            threading.Thread(target=self._watch, args=(number,), daemon=True)
            for number in range(len(self.commands))
        ]
        for thread in watching:
            thread.start()
        try:
            yield
        finally:
            self._stop()

    def reload(self) -> None:
        """Let all of them read the configuration again."""
        self._signal(signal.SIGHUP)

    def _watch(self, number: int) -> None:
        while not self._stopping.is_set():
            # a group of its own: Ctrl-C in a terminal is passed on once, by this process
            # and a pipe that tells it when this process is gone
            process = subprocess.Popen(self.commands[number], process_group=0, stdin=subprocess.PIPE)
            self._running[number] = process
            code = process.wait()
            if not self._stopping.wait(_AGAIN_S):
                log.error(
                    "worker %d ended with exit code %d, and is started again",
                    number + 1,
                    code,
                    extra=event("worker_ended", worker=str(number + 1), exit_code=str(code)),
                )

    def _stop(self) -> None:
        self._stopping.set()
        self._signal(signal.SIGTERM)
        for process in list(self._running.values()):
            try:
                process.wait(self.longest_stop_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in list(self._running.values()):
            if process.poll() is None:
                process.send_signal(number)
