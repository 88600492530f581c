"""A collector in a process of its own, which a test strikes, kills and starts again."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from tests.faults.disk import Blow, fail_where_told
from tests.faults.wire import fail_on_the_wire
from tests.patience import PATIENCE_S

_START_TIMEOUT_S: Final = PATIENCE_S
_STOP_TIMEOUT_S: Final = PATIENCE_S

# A server that has imported everything and runs nothing forks each collector off: that takes milliseconds.
_processes: Final = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["ragtrace_collector.service.collector", "ragtrace.judge.scripted", "tests.faults.victim"]
)


class Died(Exception):
    """The process ended before it listened."""


class Refused(Exception):
    """It said why it cannot start, and ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A collector that runs."""

    process: ForkServerProcess
    port: int
    """Of OTLP/HTTP."""

    @classmethod
    def start(
        cls,
        folder: Path,
        config: Mapping[str, Any],
        *,
        blow: Blow | None = None,
        kill_after_s: float | None = None,
    ) -> Victim:
        """Start a collector and wait until it listens; a kill may come before that.

        Raises:
            Died: it did not come to that.
            Refused: nor did it, for a reason that it told.
        """
        ours, theirs = _processes.Pipe(duplex=False)
        process = _processes.Process(
            target=_run, args=(str(folder), json.dumps(config), blow or Blow(), theirs), daemon=True
        )
        process.start()
        theirs.close()
        try:
            if not ours.poll(_START_TIMEOUT_S if kill_after_s is None else kill_after_s):
                process.kill()
            told: int | str = ours.recv()
        except EOFError:
            process.join()
            raise Died((folder / "collector.log").read_text()[-2_000:]) from None
        finally:
            ours.close()
        if isinstance(told, str):
            process.join()
            raise Refused(told)
        return cls(process=process, port=told)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def stop(self) -> None:
        """Send SIGTERM and wait until it has shut down in order."""
        self.process.terminate()
        self.process.join(_STOP_TIMEOUT_S)
        if self.process.is_alive():
            self.kill()
            raise TimeoutError("the collector did not stop")

    def is_alive(self) -> bool:
        return self.process.is_alive()


def _run(folder: str, config: str, blow: Blow, ready: Connection) -> None:
    """Be the collector: in the process that was forked off."""
    sys.stdout = sys.stderr = Path(folder, "collector.log").open("a", buffering=1)  # noqa: SIM115
    logging.basicConfig(level="WARNING", stream=sys.stderr, force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who runs the suite
    threading.Thread(target=_end_with_the_suite, daemon=True).start()
    if "url" in json.loads(config)["store"]:
        fail_on_the_wire(Path(folder), blow)
    else:
        fail_where_told(Path(folder), blow)
    _follow(Path(folder) / "clock")
    os.environ["JUDGE_KEY"] = "test"
    from ragtrace.errors import RagtraceError
    from ragtrace_collector.config import parse_config
    from ragtrace_collector.service.collector import run_collector

    try:
        asyncio.run(
            run_collector(
                parse_config(config, where="fault suite", environ={}),
                on_ready=lambda collector: ready.send(collector.http_port),
            )
        )
    except RagtraceError as exc:
        ready.send(str(exc))


def _end_with_the_suite() -> None:
    suite = multiprocessing.parent_process()
    assert suite is not None
    suite.join()
    os._exit(1)


def _follow(offset_s: Path) -> None:
    """Let this process's clock be off by what stands in a file."""
    honest = time.time_ns

    def time_ns() -> int:
        return honest() + (int(offset_s.read_text()) * 10**9 if offset_s.exists() else 0)

    time.time_ns = time_ns
