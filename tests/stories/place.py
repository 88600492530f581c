"""Where stories happen: a collector from the wheel, a model that is careless with numbers, and a receiver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from ragtrace import semconv
from ragtrace.model import RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import spans_in
from ragtrace.traces.trace import Span, Trace
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.backends.process import eventually, free_ports, is_listening, running
from tests.model_server import model_environment, running_model_server
from tests.patience import PATIENCE_S
from tests.stories.table import EXAMPLES, Start

__all__ = ["Place", "Ran", "Seen", "open_place"]

_INSTANCE = "service.instance.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a program printed, or a server answered, and what it said on stderr."""

    answer: str
    errors: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a reader sees who looks at the trace."""

    spans: Sequence[Span]
    carrier: Span

    @property
    def record(self) -> RagRecord:
        """The question, the chunks and the answer that were judged."""
        (record,) = extract_records(Trace.of(self.carrier.trace_id, list(self.spans))).records
        return record

    @property
    def is_from_prompt(self) -> bool:
        """Whether the carrier says that the chunks were parted in the prompt."""
        return self.carrier.attributes.get(semconv.CONTEXT_SOURCE) == semconv.CONTEXT_SOURCE_PROMPT

    @property
    def claims(self) -> tuple[str, ...]:
        """The verdict on each claim."""
        verdicts = (event.attributes.get(semconv.CLAIM_VERDICT) for event in self.carrier.events)
        return tuple(str(verdict) for verdict in verdicts if verdict is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A collector that judges and forwards to a receiver, and the model that applications ask."""

    program: Sequence[str | Path]
    """``ragtrace``, as it is installed beside the collector."""
    folder: Path
    collector: CollectorProcess
    receiver: OtlpReceiver
    model_url: str

    def run(self, start: Start, *, listening: bool = True, careless: bool = True) -> Ran:
        """Run a program to its end, as its reader would."""
        port = self.collector.grpc_port if listening else free_ports(1)[0]
        environ = self._environment(start, f"http://127.0.0.1:{port}", careless=careless)
        if start.route is not None:
            return self._ask_server(start, start.route, environ)
        agent = ("opentelemetry-instrument",) if start.with_agent else ()
        ended = subprocess.run(
            [*agent, "python", start.program, start.question],
            env=environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4_000:]
        return Ran(answer=ended.stdout.strip(), errors=ended.stderr)

    def see(self, start: Start) -> Seen:
        """Wait for the verdict on what this program answered; without one, say what the collector says."""
        what = f"a verdict on {start.name}"
        try:
            return eventually(lambda: self._seen(start.name), what=what)
        except TimeoutError as exc:
            said = [self.why(trace_id) for trace_id in self._traces(start.name)]
            raise AssertionError(f"{exc}\n{''.join(said) or 'no span came'}") from exc

    def why(self, trace_id: str) -> str:
        """Ask the collector why the answers of a trace have scores, or have none."""
        command = (*self.program, "why", trace_id, "--from", f"store:{self.folder}/store.db")
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout

    def reason(self, start: Start) -> str:
        """Wait until the collector has looked at what this program sent, and return what it says of it."""

        def said() -> str | None:
            answers = " ".join(self.why(trace_id) for trace_id in self._traces(start.name))
            return " ".join(answers.split()) if "were processed" in answers else None

        return eventually(said, what=f"the end of {start.name}")

    def _ask_server(self, start: Start, route: str, environ: Mapping[str, str]) -> Ran:
        (port,) = free_ports(1)
        app, log = f"{start.program.stem}:app", self.folder / f"{port}.log"
        folder = ("--app-dir", start.program.parent)
        command = (start.environment.bin / "uvicorn", *folder, "--port", str(port), app)
        with (
            running(command, env=environ, ready=lambda: is_listening(port), log=log),
            httpx.stream(
                "POST",
                f"http://127.0.0.1:{port}{route}",
                json={"question": start.question},
                timeout=PATIENCE_S,
            ) as response,
        ):
            response.raise_for_status()
            answer = "".join(response.iter_text())
            self.see(start)  # before the server is stopped: a reader's goes on, and sends what it has
        return Ran(answer=answer, errors=log.read_text())

    def _environment(self, start: Start, endpoint: str, *, careless: bool) -> Mapping[str, str]:
        return {
            "PATH": f"{start.environment.bin}:{os.defpath}",
            "HOME": str(self.folder),
            "PYTHONPATH": str(EXAMPLES),  # for programs that use the handbook of the examples
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_RESOURCE_ATTRIBUTES": f"{_INSTANCE}={start.name}",
            **model_environment(self.model_url, careless=careless),
        }

    def _spans(self) -> Sequence[Span]:
        return [span for request in list(self.receiver.requests) for span in spans_in(request)]

    def _traces(self, name: str) -> set[str]:
        spans = self._spans()
        return {span.trace_id for span in spans if span.resource.attributes.get(_INSTANCE) == name}

    def _seen(self, name: str) -> Seen | None:
        traces = self._traces(name)
        of_story = [span for span in self._spans() if span.trace_id in traces]
        carriers = [span for span in of_story if span.scope.name == semconv.SCOPE_EVALUATION]
        return Seen(spans=of_story, carrier=carriers[0]) if carriers else None


@contextmanager
def open_place(
    folder: Path, program: Sequence[str | Path], *, back_ends: Sequence[str] = ()
) -> Iterator[Place]:
    """Start the collector of that program, and what stands around it, until the block ends.

    Spans and verdicts go to a receiver, and to the back ends.
    """
    with running_receiver() as receiver, running_model_server() as model_url:
        config = settings_of(
            folder,
            assemble={"quiet_period": "500ms", "deadline": "2s"},
            judge={"use": "scripted"},
            export=[{"endpoint": each, "forward": True} for each in (receiver.endpoint, *back_ends)],
        )
        with collector_process(folder, config, program=program) as collector:
            yield Place(
                program=program, folder=folder, collector=collector, receiver=receiver, model_url=model_url
            )
