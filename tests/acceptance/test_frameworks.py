"""Real applications on real frameworks, judged end to end: by one line, by none, and traced by others."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.model import RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span, Trace
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.process import eventually
from tests.model_server import model_environment, running_model_server
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "frameworks"
PAGE = (EXAMPLES / "README.md").read_text("utf-8")
LABEL = f"{semconv.LABEL_PREFIX}faithfulness"

QUESTION = "How long does the warranty last?"
ANSWER = "The warranty on every lamp lasts 24 months."
CHUNK_IDS = ("warranty-length", "warranty-cover", "shipping-cost")
POINT_IDS = ("5", "6", "3")
"""The same in Qdrant, which takes no words for ids."""

pytestmark = pytest.mark.long


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One application, and how a user starts it to be asked the question."""

    service: str
    command: tuple[str | Path, ...]
    over_http: bool = False
    instrumented: frozenset[str] | None = None
    """What ``opentelemetry-instrument`` turns on beside ragtrace, where that starts the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came out of one question to one application."""

    printed: str
    carrier: Span
    record: RagRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One collector, which forwards, and one model, for all applications."""

    python: Path
    collector: CollectorProcess
    model_url: str
    file: Path
    started: dict[str, Future[str]] = field(default_factory=dict)
    """What each service prints."""

    def start(self, runs: Iterable[Run], pool: ThreadPoolExecutor) -> None:
        """Start these applications, as many at once as the pool says."""
        self.started.update({run.service: pool.submit(self._run, run) for run in runs})

    def judged(self, run: Run) -> Judged:
        """Wait for the one verdict on what this application was asked."""
        printed = self.started[run.service].result()
        service = run.service
        carrier = eventually(
            lambda: self._carrier(service), what=f"a verdict on {service}", deadline_s=PATIENCE_S
        )
        traces = self._traces(service)
        (record,) = [record for trace in traces for record in extract_records(trace).records]
        return Judged(printed=printed, carrier=carrier, record=record)

    def _run(self, run: Run) -> str:
        ended = subprocess.run(
            [str(part) for part in run.command],
            env=self._environment(run),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4_000:]
        return ended.stdout.strip()

    def _environment(self, run: Run) -> Mapping[str, str]:
        port = self.collector.http_port if run.over_http else self.collector.grpc_port
        environment = {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", ""),
            "PYTHONPATH": os.pathsep.join((str(HERE.parents[1]), str(EXAMPLES))),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_SERVICE_NAME": run.service,
            **model_environment(self.model_url),
        }
        if run.instrumented is not None:
            # Users have the instrumentors of what they use; here those of everything are installed.
            others = self._instrumentors() - run.instrumented
            environment["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"] = ",".join(others)
            environment |= {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
        return environment

    def _instrumentors(self) -> set[str]:
        (packages,) = self.python.parents[1].glob("lib/python3*/site-packages")
        entries = [entry for each in distributions(path=[str(packages)]) for entry in each.entry_points]
        return {entry.name for entry in entries if entry.group == "opentelemetry_instrumentor"}

    def _carrier(self, service: str) -> Span | None:
        spans = self._spans(service)
        return next((span for span in spans if span.scope.name == semconv.SCOPE_EVALUATION), None)

    def _traces(self, service: str) -> Sequence[Trace]:
        spans: Mapping[str, list[Span]] = defaultdict(list)
        for span in self._spans(service):
            spans[span.trace_id].append(span)
        return [Trace.of(trace_id, of_trace) for trace_id, of_trace in spans.items()]

    def _spans(self, service: str) -> Iterator[Span]:
        lines = self.file.read_text("utf-8").split("\n")[:-1] if self.file.exists() else []
        for span in (span for line in lines for span in decode_json(line)):
            if span.resource.attributes.get(semconv.SERVICE_NAME) == service:
                yield span


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, frameworks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Start every application that a chosen test asks for, two at a time: imports take most of it."""
    folder = tmp_path_factory.mktemp("frameworks")
    file = folder / "spans.jsonl"
    config = settings_of(
        folder,
        assemble={"quiet_period": "500ms", "deadline": "2s"},
        judge={"use": "lexical"},
        export=[{"endpoint": f"otlp-file:{file}", "forward": True}],
    )
    pool = ThreadPoolExecutor(2)
    with running_model_server() as model_url, collector_process(folder, config) as collector:
        place = Place(python=frameworks, collector=collector, model_url=model_url, file=file)
        place.start(runs_of(request.session.items), pool)
        yield place
        pool.shutdown(cancel_futures=True)


def runs_of(items: Sequence[pytest.Item]) -> Iterator[Run]:
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            run = item.callspec.params.get("run")
            if isinstance(run, Run):
                yield run


def texts_in_the_handbook() -> tuple[str, ...]:
    corpus = runpy.run_path(str(EXAMPLES / "corpus.py"))["CHUNKS"]
    return tuple(corpus[name] for name in CHUNK_IDS)


def service_of(run: Run) -> str:
    return run.service


APPLICATIONS = (
    "anthropic_app",
    "chroma_app",
    "haystack_app",
    "langchain_app",
    "llamaindex_app",
    "openai_async",
    "openai_chat",
    "openai_responses",
    "openai_streaming",
    "pydantic_ai_app",
    "qdrant_app",
)


BY_OTHERS = {
    "openinference": ("langchain", "llamaindex", "openai"),
    "openllmetry": ("langchain", "llamaindex", "openai"),
    "langfuse": ("langchain", "llamaindex", "openai"),
    "openinference+ragtrace": ("langchain", "openai"),
    "openllmetry+ragtrace": ("langchain", "openai"),
}
"""What traces each application; ragtrace beside it leaves the library alone."""


def with_one_line(application: str) -> Run:
    """Return how the example is started: it names its service itself."""
    command = ("python", EXAMPLES / f"{application}.py", QUESTION)
    return Run(service=application.replace("_", "-"), command=command)


def traced_by(tracer: str, application: str) -> Run:
    command = ("python", HERE / "traced_by_others.py", tracer, application, QUESTION)
    return Run(service=f"{tracer}-{application}", command=command, over_http=True)


def without_a_line(application: str, *instrumented: str) -> Run:
    command = ("opentelemetry-instrument", "python", HERE / "zero_code_app.py", application, QUESTION)
    return Run(service=f"zero-code-{application}", command=command, instrumented=frozenset(instrumented))


def test_every_application_is_described_and_tested() -> None:
    described = re.findall(r"^\| `python examples/frameworks/(\w+)\.py`", PAGE, re.MULTILINE)
    parts = {"corpus", "handbook"}
    assert set(described) == {file.stem for file in EXAMPLES.glob("*.py")} - parts == set(APPLICATIONS)


@pytest.mark.parametrize("run", [with_one_line(each) for each in APPLICATIONS], ids=service_of)
def test_one_line_is_enough(place: Place, run: Run) -> None:
    judged = place.judged(run)
    assert (judged.record.question, judged.record.answer, judged.printed) == (QUESTION, ANSWER, ANSWER)
    expected = POINT_IDS if run.service == "qdrant-app" else CHUNK_IDS
    assert tuple(chunk.id for chunk in judged.record.chunks) == expected
    assert tuple(chunk.text for chunk in judged.record.chunks) == texts_in_the_handbook()
    model = "claude" if run.service == "anthropic-app" else "gpt-4.1-mini"
    assert str(judged.carrier.attributes[semconv.TARGET_MODEL]).startswith(model)
    assert judged.carrier.attributes[LABEL] == "pass"
    assert str(judged.carrier.attributes[semconv.BRIEF]) in PAGE
    assert ANSWER in PAGE


@pytest.mark.parametrize(
    "run",
    [
        traced_by(tracer, application)
        for tracer, applications in BY_OTHERS.items()
        for application in applications
    ],
    ids=service_of,
)
def test_others_spans_give_the_same_record_without_and_beside_ragtrace(place: Place, run: Run) -> None:
    judged = place.judged(run)
    assert judged.printed.splitlines()[-1] == ANSWER  # tracers greet on stdout
    assert (judged.record.question, judged.record.answer) == (QUESTION, ANSWER)
    assert tuple(chunk.text for chunk in judged.record.chunks) == texts_in_the_handbook()
    assert judged.carrier.attributes[LABEL] == "pass"


@pytest.mark.parametrize(
    "run", [without_a_line("pydantic_ai_app"), without_a_line("openai_chat", "openai")], ids=service_of
)
def test_no_line_is_needed_under_opentelemetry_instrument(place: Place, run: Run) -> None:
    judged = place.judged(run)
    assert (judged.record.question, judged.record.answer, judged.printed) == (QUESTION, ANSWER, ANSWER)
    assert tuple(chunk.id for chunk in judged.record.chunks) == CHUNK_IDS
    assert judged.carrier.attributes[semconv.TARGET_MODEL] == "gpt-4.1-mini"
    assert judged.carrier.attributes[LABEL] == "pass"
