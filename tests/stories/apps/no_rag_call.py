"""An application whose spans hold no RAG call: somebody forgot to say which function answers."""

import sys

from opentelemetry import trace

import ragtrace

ragtrace.instrument(service_name="support-bot")

with trace.get_tracer("shop").start_as_current_span("answer"):
    print(f"{sys.argv[1]} Refunds take 30 days.")
