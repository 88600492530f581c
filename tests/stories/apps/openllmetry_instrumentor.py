"""One call of OpenAI's client under OpenLLMetry's instrumentor alone. No line of ragtrace."""

import sys

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
OpenAIInstrumentor().instrument()

PROMPT = """Answer from these passages only.

<passage id="warranty-length">
The warranty on every lamp lasts 24 months. It starts on the day of delivery.
</passage>

Question: {question}"""

completion = OpenAI().chat.completions.create(
    model="gpt-4.1-mini", messages=[{"role": "user", "content": PROMPT.format(question=sys.argv[1])}]
)
print(completion.choices[0].message.content)
