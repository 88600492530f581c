"""Qdrant in its local mode, and the OpenAI SDK.

    python examples/frameworks/qdrant_app.py "What does shipping cost?"

``@ragtrace.rag`` marks the call as a whole: without it, the query and the chat are in two traces.
"""

import functools
import sys

from corpus import CHUNKS
from openai import OpenAI
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams

import ragtrace


@ragtrace.rag
def ask(question: str) -> str:
    found = store().query_points("handbook", query=embed([question])[0], limit=3)
    passages = "\n".join(point.payload["text"] for point in found.points)
    completion = OpenAI().chat.completions.create(
        model="gpt-4.1-mini",
        messages=[
            {"role": "system", "content": f"Answer from these passages of our handbook only.\n\n{passages}"},
            {"role": "user", "content": question},
        ],
    )
    return completion.choices[0].message.content


@functools.cache
def store() -> QdrantClient:
    vectors = embed(list(CHUNKS.values()))
    client = QdrantClient(":memory:")
    client.create_collection(
        "handbook", vectors_config=VectorParams(size=len(vectors[0]), distance=Distance.COSINE)
    )
    points = [
        PointStruct(id=number, vector=vector, payload={"chunk_id": name, "text": text})
        for number, ((name, text), vector) in enumerate(zip(CHUNKS.items(), vectors, strict=True))
    ]
    client.upsert("handbook", points)
    return client


def embed(texts: list[str]) -> list[list[float]]:
    found = OpenAI().embeddings.create(model="text-embedding-3-small", input=texts)
    return [item.embedding for item in found.data]


if __name__ == "__main__":
    ragtrace.instrument(service_name="qdrant-app")
    print(ask(" ".join(sys.argv[1:]) or "What does shipping cost?"))
