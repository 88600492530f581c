"""Several collectors on one machine: started, watched and stopped together by the first process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Final

from ragtrace.cli.render import talk
from ragtrace.errors import RagtraceError
from ragtrace_collector.operations.signals import (
    notify_ready,
    notify_stopping,
    notify_watchdog,
    watchdog_pause_s,
)
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

Serve = Callable[[int, Callable[[], None]], None]
"""Serves as one of the workers, counted from 0, and calls when it is ready."""
_RESTART_PAUSE_S: Final = 1.0


class Workers:
    """Processes that serve."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._ready: set[int] = set()
        """Workers that have been ready: these are started again."""
        self._stops = False
        self._exit_code = 0

    def run(self, number: int) -> int:
        """Serve in so many processes until a signal stops them; return the exit code.

        SIGINT, SIGTERM and SIGHUP are passed on. A worker that ends is started again; if one ends before it
        was ever ready, all stop, and its exit code is returned.
        """
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, self._pass_on)
        for worker in range(number):
            self._start(worker)
        while self._running:
            waiting = [each for each in self._running if each not in self._ready]
            sentinels = [process.sentinel for process, _ in self._running.values()]
            wait([*sentinels, *(self._running[each][1] for each in waiting)], timeout=watchdog_pause_s())
            notify_watchdog()
            news = [each for each in waiting if self._becomes_ready(each)]
            if news and len(self._ready) == number:
                notify_ready(f"{number} workers")
            for worker, (process, _) in [*self._running.items()]:
                if process.exitcode is not None:
                    self._ended(worker, process.exitcode)
        return self._exit_code

    def _becomes_ready(self, worker: int) -> bool:
        _, ready = self._running[worker]
        try:
            is_ready = ready.poll() and ready.recv()
        except EOFError:  # it ended
            return False
        if is_ready:
            self._ready.add(worker)
        return is_ready

    def _start(self, worker: int) -> None:
        ready, says_ready = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work, args=(self._serve, worker, says_ready), name=f"ragtrace-{worker}"
        )
        process.start()
        says_ready.close()
        self._running[worker] = process, ready

    def _ended(self, worker: int, code: int) -> None:
        self._running.pop(worker)[1].close()
        if self._stops:
            self._exit_code = self._exit_code or abs(code)
        elif worker in self._ready:
            log.error(
                "worker %d ended with %d and is started again",
                worker,
                code,
                extra=event("worker_ended", worker=worker, code=code),
            )
            time.sleep(_RESTART_PAUSE_S)
            if not self._stops:  # a signal may have come meanwhile
                self._start(worker)
        else:
            self._exit_code = abs(code) or 1
            self._stop_all()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            for worker, (process, _) in self._running.items():
                if process.pid and worker in self._ready:  # before, it would end by it
                    os.kill(process.pid, number)
        else:
            self._stop_all()

    def _stop_all(self) -> None:
        self._stops = True
        notify_stopping()
        for process, _ in self._running.values():
            process.terminate()


def _work(serve: Serve, worker: int, says_ready: Connection) -> None:
    """Be a worker: in a session of its own, so that Ctrl-C reaches it through the first process alone."""
    os.setsid()
    os.environ.pop("NOTIFY_SOCKET", None)  # its own word would be that of the service
    threading.Thread(target=_stop_if_alone, daemon=True).start()
    try:
        serve(worker, lambda: says_ready.send(True))
    except RagtraceError as exc:
        talk(f"Error: {exc}")
        sys.exit(2)  # as the program does where a setting is wrong
    except KeyboardInterrupt:
        sys.exit(1)


def _stop_if_alone() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
