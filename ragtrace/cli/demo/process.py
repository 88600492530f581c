"""The demo's collectors: a process for each judge, configured as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragtrace.cli.demo.page import DemoPage
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
    """The file of carriers; the first judge's has the traffic, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCollectors:
    """The collectors, while they run."""

    address: str
    """The first one's OTLP/gRPC receiver."""
    programs: Sequence[StartedProgram]

    def check(self) -> None:
        """Check that all run.

        Raises:
            RagtraceError: one ended.
        """
        for program in self.programs:
            program.check()


@contextmanager
def running_collectors(
    folder: Path, judges: Sequence[DemoJudge], backend: Backend | None, page: DemoPage
) -> Iterator[RunningCollectors]:
    """Run a collector for each judge. The first has the page, and passes on every span to the others.

    Raises:
        RagtraceError: one did not start; its own message says why.
    """
    first, *others = judges
    with ExitStack() as stack:
        # All at once: starting takes a second of CPU.
        programs = [stack.enter_context(_collector(folder, judge, _sent(judge, backend))) for judge in others]
        ports = [program.ready()["grpc_port"] for program in programs]
        further = [{"endpoint": f"grpc://127.0.0.1:{port}", "forward": True} for port in ports]
        exports = [*_sent(first, backend, forward=True), *further]
        program = stack.enter_context(_collector(folder, first, exports, page))
        address = f"http://127.0.0.1:{program.ready()['grpc_port']}"
        yield RunningCollectors(address=address, programs=[program, *programs])


def _sent(
    judge: DemoJudge, backend: Backend | None, *, forward: bool = False
) -> Iterator[Mapping[str, object]]:
    yield {"endpoint": f"otlp-file:{judge.verdicts}", "forward": forward}
    if backend is not None:
        yield {"endpoint": backend.endpoint, "forward": forward}


def _config(judge: DemoJudge, exports: Sequence[Mapping[str, object]], store: Path) -> dict[str, object]:
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
class StartedProgram:
    """A command of ragtrace that runs in a process of its own."""

    what: str
    """For messages: ``the collector``."""
    process: subprocess.Popen[bytes]
    log: Path

    def ready(self) -> Mapping[str, Any]:
        """Wait until it says that it is ready, and return what it says.

        Raises:
            RagtraceError: it ended instead; its own message says why.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise RagtraceError(f"{self.what} did not start:\n{_tail(self.log)}")
        said: dict[str, Any] = json.loads(line)
        return said

    def check(self) -> None:
        """Check that it still runs.

        Raises:
            RagtraceError: it ended.
        """
        if self.process.poll() is not None:
            raise RagtraceError(f"{self.what} ended:\n{_tail(self.log)}")


@contextmanager
def started(what: str, arguments: Sequence[str], *, log: Path) -> Iterator[StartedProgram]:
    """Start a command of ragtrace, and end it at last."""
    command = [sys.executable, "-m", "ragtrace.cli", *arguments]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            yield StartedProgram(what=what, process=process, log=log)
        finally:
            _stop(process)


@contextmanager
def _collector(
    folder: Path,
    judge: DemoJudge,
    exports: Iterable[Mapping[str, object]],
    page: DemoPage | None = None,
) -> Iterator[StartedProgram]:
    place = folder / f"collector-{judge.verdicts.stem}"
    place.mkdir()
    config, wanted = place / "collector.yaml", _config(judge, [*exports], place / "ragtrace.db")
    if page is not None:
        listen = f"127.0.0.1:{page.port}"
        # The store keeps spans for ten minutes; a person may look longer.
        traces = f"otlp-file:{judge.verdicts.parent}"
        wanted["ui"] = {
            "listen": listen,
            "public_url": page.url,
            "links": page.links,
            "traces": traces,
        }
    # JSON is YAML: no library is needed to write it.
    config.write_text(json.dumps(wanted, indent=2), "utf-8")
    arguments = ["collector", "--config", str(config), "--json"]
    with started("the collector", arguments, log=place / "collector.log") as program:
        yield program


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    except BaseException:  # a second Ctrl-C: at once, but not without it
        process.kill()
        raise


def _tail(log: Path) -> str:
    return os.linesep.join(log.read_text("utf-8", "replace").splitlines()[-5:])
