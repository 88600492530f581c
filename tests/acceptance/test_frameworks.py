"""Real applications on real frameworks, judged end to end: by one line, by none, and traced by others."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.model import RagRecord
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode_json
from ragtrace.traces.trace import Span, Trace
from tests.acceptance.collector_process import CollectorProcess, collector_process
from tests.backends.process import eventually
from tests.model_server import model_environment, running_model_server

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
PAGE = (EXAMPLES / "README.md").read_text("utf-8")
TRACED_BY_OTHERS = Path(__file__).with_name("traced_by_others.py")
QUESTION = "How long does the warranty last?"
ANSWER = "The warranty on every lamp lasts 24 months."
CHUNK_IDS = ("warranty-length", "warranty-cover", "shipping-cost")
POINT_IDS = ("5", "6", "3")
"""The same in Qdrant, which takes no words for ids."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came out of one question to one application."""

    carrier: Span
    record: RagRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One collector, which forwards, and one model, for all applications."""

    python: Path
    collector: CollectorProcess
    model_url: str
    file: Path

    def run(self, *command: str | Path, service: str, http: bool = False, **env: str) -> str:
        """Run an application of the second environment as a user does; return what it prints."""
        port = self.collector.http_port if http else self.collector.grpc_port
        ended = subprocess.run(
            [str(part) for part in command],
            env={
                "PATH": f"{self.python.parent}:{os.environ['PATH']}",
                "HOME": os.environ.get("HOME", ""),
                "PYTHONPATH": str(EXAMPLES),
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
                "OTEL_SERVICE_NAME": service,
                **model_environment(self.model_url),
                **env,
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4_000:]
        return ended.stdout.strip()

    def instrumentors(self) -> set[str]:
        """Return the names of all instrumentors that ``opentelemetry-instrument`` finds there."""
        (packages,) = self.python.parents[1].glob("lib/python3*/site-packages")
        found = entry_points_of(packages, "opentelemetry_instrumentor")
        return {entry.name for entry in found}

    def judged(self, service: str) -> Judged:
        """Wait for the one verdict on what this service was asked."""
        carrier = eventually(lambda: self._carrier(service), what=f"a verdict on {service}", deadline_s=30)
        traces = self._traces(service)
        (record,) = [record for trace in traces for record in extract_records(trace).records]
        return Judged(carrier=carrier, record=record)

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


def entry_points_of(packages: Path, group: str) -> list[EntryPoint]:
    installed = distributions(path=[str(packages)])
    return [entry for each in installed for entry in each.entry_points if entry.group == group]


@pytest.fixture(scope="module")
def place(frameworks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("frameworks")
    file = folder / "spans.jsonl"
    config = {
        "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "assemble": {"quiet_period": "500ms", "deadline": "2s"},
        "judge": {"use": "lexical"},
        "export": [{"endpoint": f"otlp-file:{file}", "forward": True}],
        "store": {"path": str(folder / "store.db")},
    }
    with running_model_server() as model_url, collector_process(folder, config) as collector:
        yield Place(python=frameworks, collector=collector, model_url=model_url, file=file)


def texts_in_the_handbook() -> tuple[str, ...]:
    corpus = runpy.run_path(str(EXAMPLES / "corpus.py"))["CHUNKS"]
    return tuple(corpus[name] for name in CHUNK_IDS)


APPLICATIONS = {
    "anthropic_app": "claude",
    "chroma_app": "gpt-4.1-mini",
    "haystack_app": "gpt-4.1-mini",
    "langchain_app": "gpt-4.1-mini",
    "llamaindex_app": "gpt-4.1-mini",
    "openai_async": "gpt-4.1-mini",
    "openai_chat": "gpt-4.1-mini",
    "openai_responses": "gpt-4.1-mini",
    "openai_streaming": "gpt-4.1-mini",
    "pydantic_ai_app": "gpt-4.1-mini",
    "qdrant_app": "gpt-4.1-mini",
}


def test_every_application_is_described_and_tested() -> None:
    described = re.findall(r"^\| `python examples/frameworks/(\w+)\.py`", PAGE, re.MULTILINE)
    parts = {"corpus", "handbook"}
    assert set(described) == {file.stem for file in EXAMPLES.glob("*.py")} - parts == set(APPLICATIONS)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_one_line_is_enough(place: Place, application: str) -> None:
    printed = place.run("python", EXAMPLES / f"{application}.py", QUESTION, service=application)
    judged = place.judged(application.replace("_", "-"))
    assert (judged.record.question, judged.record.answer, printed) == (QUESTION, ANSWER, ANSWER)
    expected = POINT_IDS if application == "qdrant_app" else CHUNK_IDS
    assert tuple(chunk.id for chunk in judged.record.chunks) == expected
    assert tuple(chunk.text for chunk in judged.record.chunks) == texts_in_the_handbook()
    assert str(judged.carrier.attributes[semconv.TARGET_MODEL]).startswith(APPLICATIONS[application])
    assert judged.carrier.attributes[f"{semconv.LABEL_PREFIX}faithfulness"] == "pass"
    assert judged.carrier.attributes[semconv.BRIEF] in re.sub(r"\s+", " ", PAGE)
    assert ANSWER in PAGE


@pytest.mark.parametrize("application", ["langchain", "llamaindex", "openai"])
@pytest.mark.parametrize("tracer", ["openinference", "openllmetry", "langfuse"])
def test_others_spans_give_the_same_record_without_ragtrace(
    place: Place, tracer: str, application: str
) -> None:
    service = f"{tracer}-{application}"
    printed = place.run("python", TRACED_BY_OTHERS, tracer, application, QUESTION, service=service, http=True)
    judged = place.judged(service)
    assert printed.splitlines()[-1] == ANSWER  # tracers greet on stdout
    assert (judged.record.question, judged.record.answer) == (QUESTION, ANSWER)
    assert tuple(chunk.text for chunk in judged.record.chunks) == texts_in_the_handbook()
    assert judged.carrier.attributes[f"{semconv.LABEL_PREFIX}faithfulness"] == "pass"


@pytest.mark.parametrize(
    ("application", "instrumented"), [("pydantic_ai_app", set()), ("openai_chat", {"openai"})]
)
def test_no_line_is_needed_under_opentelemetry_instrument(
    place: Place, tmp_path: Path, application: str, instrumented: set[str]
) -> None:
    (tmp_path / "app.py").write_text(f"import sys\nfrom {application} import ask\nprint(ask(sys.argv[1]))\n")
    service = f"zero-code-{application}"
    others = ",".join(place.instrumentors() - instrumented)  # of libraries that this application does not use
    printed = place.run(
        *("opentelemetry-instrument", "python", tmp_path / "app.py", QUESTION),
        service=service,
        OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=others,
    )
    judged = place.judged(service)
    assert (judged.record.question, judged.record.answer, printed) == (QUESTION, ANSWER, ANSWER)
    assert tuple(chunk.id for chunk in judged.record.chunks) == CHUNK_IDS
    assert judged.carrier.attributes[semconv.TARGET_MODEL] == "gpt-4.1-mini"
    assert judged.carrier.attributes[f"{semconv.LABEL_PREFIX}faithfulness"] == "pass"
