"""The RAG call that every contender records: three spans, 13 kB of text."""

from __future__ import annotations

QUESTION = ("How long is the warranty on the loom, and does it cover the belt? " * 2)[:100]
ANSWER = ("The warranty lasts 24 months and covers the motor and the frame. " * 10)[:600]
CHUNKS = [
    {
        "id": f"chunk-{index}",
        "text": (f"Section {index} of the handbook. " * 40)[:1_000],
        "score": 0.9 - index / 10,
    }
    for index in range(5)
]
PROMPT = (
    "Answer from these sections.\n"
    + "\n".join(str(chunk["text"]) for chunk in CHUNKS)
    + ANSWER[:400]
    + QUESTION
)
MODEL = "gpt-5-mini"
INPUT_TOKENS = 1_500
OUTPUT_TOKENS = 150
