"""A RAG application in one file: real retrieval, an extractive answer, no network, no key.

    python examples/minimal_rag.py "How long is the warranty?"

It sends OTLP to localhost:4317 (or OTEL_EXPORTER_OTLP_ENDPOINT), and works as well with nobody listening.
"""

import math
import re
import sys

import ragtrace

DOCUMENTS = {
    "warranty": "The warranty on the Loom 2 lasts 24 months. It covers motor and frame, not the belt.",
    "returns": "Unused looms can be returned within 30 days. The buyer pays for the shipping of a return.",
    "belt": "Replace the belt of the Loom 2 every 500 hours. A new belt costs 19 euros in the shop.",
    "setup": "Put the loom on a level floor. Hold the power button for three seconds to calibrate it.",
}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


def score(question: str, text: str) -> float:
    found = words(question) & words(text)
    return sum(
        math.log(1 + len(DOCUMENTS) / sum(word in words(each) for each in DOCUMENTS.values()))
        for word in found
    )


@ragtrace.retrieval(data_source="handbook", top_k=2)
def retrieve(question: str) -> list[ragtrace.Chunk]:
    found = [
        ragtrace.Chunk(id=name, text=text, score=score(question, text)) for name, text in DOCUMENTS.items()
    ]
    return sorted(found, key=lambda chunk: -(chunk.score or 0))[:2]


@ragtrace.generation(model="best-sentence")
def generate(prompt: str, question: str) -> str:
    return max(re.split(r"(?<=\.) ", prompt), key=lambda sentence: score(question, sentence))


def ask(question: str) -> tuple[str, str | None]:
    with ragtrace.rag(question=question, name="handbook") as call:
        chunks = retrieve(question)
        call.answer = answer = generate(" ".join(str(chunk.text) for chunk in chunks), question)
        return answer, call.trace_id


if __name__ == "__main__":
    ragtrace.instrument(service_name="minimal-rag")
    answer, trace_id = ask(" ".join(sys.argv[1:]) or "How long is the warranty on the Loom 2?")
    print(answer)
    print(f"trace {trace_id}")
