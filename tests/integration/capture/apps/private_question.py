"""Ask an example application a question with personal data in it; print what its spans hold, as OTLP/JSON."""

from __future__ import annotations

import sys
from importlib import import_module

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.traces.otlp import request_to_json

memory, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
application, mode, question = sys.argv[1:]
assert ragtrace.instrument(tracer_provider=provider, content=mode)
import_module(application).ask(question)
print(request_to_json(encode_spans(memory.get_finished_spans())))
