"""An application that Traceloop's SDK (OpenLLMetry) traces, as its own guide has it. No line of ragtrace."""

import sys

from openai import OpenAI
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import task, workflow

Traceloop.init(app_name="support-bot", exporter=OTLPSpanExporter(), telemetry_enabled=False)


@task(name="retriever")
def search(question: str) -> list[str]:
    return ["The warranty on every lamp lasts 24 months. It starts on the day of delivery."]


@workflow(name="ask")
def ask(question: str) -> str:
    completion = OpenAI().chat.completions.create(
        model="gpt-4.1-mini",
        messages=[
            {"role": "system", "content": f"Answer from these passages only.\n\n{search(question)[0]}"},
            {"role": "user", "content": question},
        ],
    )
    return completion.choices[0].message.content


print(ask(sys.argv[1]))
