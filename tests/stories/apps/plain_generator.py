"""Code of one's own that streams: the helpers are decorators of generators."""

import sys
from collections.abc import Iterator

import ragtrace

ragtrace.instrument(service_name="support-bot")


@ragtrace.retrieval(data_source="faq", top_k=2)
def search(query: str) -> list[dict[str, object]]:
    return [{"id": "faq-12", "text": "Refunds take 14 days.", "score": 0.93}]


@ragtrace.generation(model="my-model")
def complete(prompt: str) -> Iterator[str]:
    yield "Refunds take "
    yield "30 days."


@ragtrace.rag(name="support")
def ask(question: str) -> Iterator[str]:
    yield from complete(f"{search(question)[0]['text']}\n\n{question}")


print("".join(ask(sys.argv[1])))
