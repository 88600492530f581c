"""The demo's collectors: a process for each judge, configured as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragtrace.errors import RagtraceError

_STOP_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A trace back end that gets the traffic and the verdicts."""

    endpoint: str
    ui: str | None
    """Where Jaeger's page is, if it is Jaeger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJudge:
    """Who judges, and where its verdicts are."""

    name: str
    """Provider and model, for people: ``human:ragtruth``, ``lexical``."""
    use: str
    """What the configuration calls it."""
    verdicts: Path
    """The file of carriers."""


@contextmanager
def running_collectors(folder: Path, judges: Sequence[DemoJudge], backend: Backend | None) -> Iterator[str]:
    """Run a collector for each judge and yield the address of the first one's OTLP/gRPC receiver.

    The first passes on every span to the others, and to the back end.

    Raises:
        RagtraceError: one did not start; its own message says why.
    """
    first, *others = judges
    with ExitStack() as stack:
        # All at once: starting takes a second of CPU.
        started = [stack.enter_context(_process(folder, judge, _sent(judge, backend))) for judge in others]
        addresses = [process.address() for process in started]
        exports = [*_sent(first, backend, forward=True)]
        exports += [{"endpoint": f"grpc://{address}", "forward": True} for address in addresses]
        yield f"http://{stack.enter_context(_process(folder, first, exports)).address()}"


def _sent(
    judge: DemoJudge, backend: Backend | None, *, forward: bool = False
) -> Iterator[Mapping[str, object]]:
    yield {"endpoint": f"otlp-file:{judge.verdicts}"}
    if backend is not None:
        yield {"endpoint": backend.endpoint, "forward": forward}


def _config(judge: DemoJudge, exports: Sequence[Mapping[str, object]], store: Path) -> Mapping[str, object]:
    return {
        "receive": {"grpc": "127.0.0.1:0", "http": None},
        "telemetry": {"listen": None},
        # The demo's application sends its spans at once: no need to wait as long as for a real one.
        "assemble": {"quiet_period": "300ms", "deadline": "10s"},
        "judge": {"use": judge.use},
        "evaluate": {"retry_delays": ["1s"]},
        "export": [*exports],
        "store": {"path": str(store)},
        "drain_timeout": "5s",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collector:
    process: subprocess.Popen[bytes]
    log: Path

    def address(self) -> str:
        """Wait until it listens."""
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready:
            self.process.wait()
            raise RagtraceError(f"the collector did not start:\n{_tail(self.log)}")
        said: dict[str, Any] = json.loads(ready)
        return f"127.0.0.1:{said['grpc_port']}"


@contextmanager
def _process(
    folder: Path, judge: DemoJudge, exports: Iterator[Mapping[str, object]] | Sequence[Mapping[str, object]]
) -> Iterator[_Collector]:
    place = folder / judge.verdicts.stem
    place.mkdir()
    config, log = place / "collector.yaml", place / "collector.log"
    # JSON is YAML: no library is needed to write it.
    config.write_text(json.dumps(_config(judge, [*exports], place / "ragtrace.db"), indent=2), "utf-8")
    command = [sys.executable, "-m", "ragtrace.cli", "collector", "--config", str(config), "--json"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            yield _Collector(process=process, log=log)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _tail(log: Path) -> str:
    return os.linesep.join(log.read_text("utf-8", "replace").splitlines()[-5:])
