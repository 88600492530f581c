"""What keeps verdicts from coming is said on stderr: once, in one line, in programs of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.backends.process import free_ports
from tests.integration.capture.test_process import run

pytestmark = pytest.mark.slow

ON = "import ragtrace; ragtrace.instrument()\n"
CALL = 'with ragtrace.rag(question="Who?"): pass\n'
OTHER_SPANS = """
from opentelemetry import trace
for number in range({count}):
    trace.get_tracer("web").start_span("GET /").end()
"""
PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
MISSING = (
    "ragtrace: openai is imported, but its calls are not traced: pip install "
    "openinference-instrumentation-openai (or skip it: exclude=['openai'])"
)


def said(code: str, receiver: Any = None, **env: str) -> list[str]:
    """Run a program that sends to the receiver, and return the lines of its stderr."""
    target = {}
    if receiver is not None:
        target = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
    return run(code, **{**target, **env}).stderr.splitlines()


def test_an_imported_library_without_its_instrumentor_is_said_with_the_command(http_receiver: Any) -> None:
    for code in (ON + "import openai", "import openai\n" + ON):
        assert said(code, http_receiver) == [MISSING]


def test_a_client_that_a_framework_imports_is_left_to_the_spans_of_the_framework(
    tmp_path: Path, http_receiver: Any
) -> None:
    (tmp_path / "langchain_openai.py").write_text("import openai")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    load = "import langchain_openai\n"
    for order in (load + ON, ON + load):
        assert said(code + order, http_receiver) == []


def test_nothing_is_said_where_nobody_wants_it_or_can_hear_it(http_receiver: Any) -> None:
    for code, env in (
        ("import ragtrace; ragtrace.instrument(quiet=True)\nimport openai", {}),
        (ON + "import openai", {"RAGTRACE_QUIET": "1"}),
        ("import sys, ragtrace; sys.stderr = None; ragtrace.instrument()\nimport openai", {}),
    ):
        assert said(code, http_receiver, **env) == [], code


def test_an_endpoint_where_nobody_listens_is_named_once() -> None:
    (port,) = free_ports(1)
    target = f"http://user:secret@127.0.0.1:{port}"
    code = f"import ragtrace; ragtrace.instrument(endpoint={target!r})\n" + CALL
    again = "ragtrace.uninstrument(timeout_s=1); ragtrace.instrument()\n" + CALL
    (line,) = said(code + again)
    assert line == (
        f"ragtrace: no span could be sent to http://127.0.0.1:{port} by gRPC: is a collector there, and does "
        "it take them?"
    )


def test_an_endpoint_that_nobody_named_is_said_with_how_to_name_it() -> None:
    # something may listen there: an exporter that is refused takes the place of one that reaches nobody
    code = f"""
import ragtrace
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
class Refusing(SpanExporter):
    def export(self, spans): return SpanExportResult.FAILURE
from ragtrace.capture import pipeline
pipeline.open_span_exporter = lambda **settings: Refusing()
ragtrace.instrument(protocol="http/protobuf")
{CALL}"""
    (line,) = said(code)
    assert line.startswith("ragtrace: no span could be sent to http://localhost:4318 by ")
    assert line.endswith("`ragtrace.instrument(endpoint=…)` or OTEL_EXPORTER_OTLP_ENDPOINT")


def test_spans_without_a_rag_call_are_said_at_the_end_and_to_a_server_before_it(http_receiver: Any) -> None:
    code = ON + OTHER_SPANS.format(count=1000) + 'import sys; print("serving on", file=sys.stderr)\n'
    hint, serving = said(code, http_receiver)
    assert "1000 spans ended" in hint
    assert serving == "serving on"
    (line,) = said(ON + OTHER_SPANS.format(count=3), http_receiver)
    assert line.startswith(
        "ragtrace: 3 spans ended and none is part of a RAG call: there is nothing to judge."
    )
    assert "ragtrace doctor --app" in line


def test_a_tracer_provider_that_comes_too_late_is_said_with_the_order(http_receiver: Any) -> None:
    assert not [line for line in said(PROVIDER + ON, http_receiver) if "set_tracer_provider" in line]
    lines = said(ON + PROVIDER + PROVIDER + CALL, http_receiver)
    late, *_ = lines
    assert late == (
        "ragtrace: the application set its tracer provider after ragtrace.instrument(), so OpenTelemetry "
        "ignored it, and its exporters get no spans: call ragtrace.instrument() after set_tracer_provider()"
    )
    assert sum("instrument()" in line for line in lines) == 1


def test_an_application_that_logs_to_a_file_has_it_there_too(tmp_path: Path, http_receiver: Any) -> None:
    log = tmp_path / "app.log"
    code = f"import logging; logging.basicConfig(filename={str(log)!r})\n" + ON + "import openai"
    assert said(code, http_receiver) == [MISSING]
    assert log.read_text() == f"WARNING:ragtrace:{MISSING}\n"
