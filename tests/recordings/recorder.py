"""Record scenarios, one JSON line each; runs in the environment of the frameworks.

python -m tests.recordings.recorder openinference.langchain ...
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import distributions
from typing import Any

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ragtrace.traces._otlp_values import to_json
from tests.recordings.applications.application import Application, Json
from tests.recordings.applications.table import APPLICATIONS
from tests.recordings.applications.two_services import ENDPOINT
from tests.recordings.instrumentations import INSTRUMENTATIONS
from tests.recordings.otlp_stub import running_otlp_stub
from tests.recordings.scenarios import SCENARIOS, Scenario

__all__ = ["record"]

_OF_THE_MACHINE = ("host.", "os.", "process.", "service.instance.", "service.version")
_VERSIONED = (
    *("anthropic", "boto3", "chromadb", "dspy", "haystack-ai", "langchain", "langchain-core", "langfuse"),
    *("langsmith", "llama-index-core", "llama-index-observability-otel", "logfire", "mlflow-tracing"),
    *("openai", "openai-agents", "openinference-", "opentelemetry-haystack"),
    *("opentelemetry-instrumentation-", "opentelemetry-sdk", "opentelemetry-util-genai"),
    *("pydantic-ai-slim", "qdrant-client", "traceloop-sdk"),
)


def record(scenario: Scenario) -> Json:
    """Run the application under the instrumentation and return what was sent, with the truth about it."""
    os.environ.update(scenario.environment)
    with running_otlp_stub() as stub:
        os.environ[ENDPOINT] = stub.url
        with INSTRUMENTATIONS[scenario.instrumentation](stub.url, scenario.libraries):
            application = APPLICATIONS[scenario.application]()
            application.prepare()
            asked_at = time.time_ns()
            with _root(scenario, application):
                answer = application.ask(application.question)
        sent = stub.spans_since(asked_at)
        logs = stub.logs_of(sent)
    for group in (*sent.resource_spans, *(group for each in logs for group in each.resource_logs)):
        _drop_facts_of_the_machine(group.resource)
    _drop_frames_of_the_stack(sent)
    return {
        "about": _about(scenario),
        "truth": _truth(application, answer),
        "trace": json.loads(to_json(sent)),
        "logs": [json.loads(to_json(each)) for each in logs],
    }


def _root(scenario: Scenario, application: Application) -> Any:
    is_complete = application.is_rooted or scenario.instrumentation == "ragtrace"
    if is_complete and not scenario.is_served:
        return nullcontext()
    return trace.get_tracer("handbook").start_as_current_span("POST /ask", kind=trace.SpanKind.SERVER)


def _drop_facts_of_the_machine(resource: Resource) -> None:
    """Leave out what a resource tells of where it was made."""
    kept = [pair for pair in resource.attributes if not pair.key.startswith(_OF_THE_MACHINE)]
    del resource.attributes[:]
    resource.attributes.extend(kept)


def _drop_frames_of_the_stack(sent: ExportTraceServiceRequest) -> None:
    """Leave of stack traces what the first and last lines tell: the others name files of the machine."""
    spans = [span for group in sent.resource_spans for scope in group.scope_spans for span in scope.spans]
    for span in spans:
        span.status.message = _without_frames(span.status.message)
        for event in span.events:
            for pair in event.attributes:
                if "Traceback" in pair.value.string_value:
                    pair.value.string_value = _without_frames(pair.value.string_value)


def _without_frames(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("  "))


def _about(scenario: Scenario) -> Json:
    return {
        "instrumentation": scenario.instrumentation,
        "libraries": list(scenario.libraries),
        "application": scenario.application,
        "environment": dict(scenario.environment),
        "shows": scenario.shows,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that were loaded and that shape spans."""
    loaded = {name.partition(".")[0] for name in sys.modules} | set(sys.modules)
    found = {}
    for distribution in distributions():
        name = distribution.name.lower()
        if name.startswith(_VERSIONED) and _modules(distribution) & loaded:
            found[name] = distribution.version
    return dict(sorted(found.items()))


def _modules(distribution: Any) -> set[str]:
    files = distribution.files or ()
    return {
        ".".join(file.parts[:-1]) for file in files if file.name == "__init__.py" and len(file.parts) <= 4
    }


def _truth(application: Application, answer: str) -> Json:
    return {
        "question": application.question,
        "chunks": application.chunks(application.question),
        "answer": answer,
        "session_id": application.session_id,
        "model": application.model,
    }


def main(names: Sequence[str]) -> None:
    """Record each in a process of its own, forked when all is imported, which takes longest."""
    for name in names:
        APPLICATIONS[SCENARIOS[name].application]()
    for name in names:
        if (pid := os.fork()) == 0:
            print(json.dumps({name: record(SCENARIOS[name])}), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
