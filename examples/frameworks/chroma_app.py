"""Chroma and the OpenAI SDK.

    python examples/frameworks/chroma_app.py "Can I return a lamp?"

``@ragtrace.rag`` marks the call as a whole: without it, the query and the chat are in two traces.
"""

import functools
import sys

import chromadb
from chromadb.config import Settings
from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction
from corpus import CHUNKS
from openai import OpenAI

import ragtrace


@ragtrace.rag
def ask(question: str) -> str:
    found = collection().query(query_texts=[question], n_results=3)
    passages = "\n".join(found["documents"][0])
    completion = OpenAI().chat.completions.create(
        model="gpt-4.1-mini",
        messages=[
            {"role": "system", "content": f"Answer from these passages of our handbook only.\n\n{passages}"},
            {"role": "user", "content": question},
        ],
    )
    return completion.choices[0].message.content


@functools.cache
def collection() -> chromadb.Collection:
    client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    made = client.create_collection(
        "handbook",
        embedding_function=OpenAIEmbeddingFunction(model_name="text-embedding-3-small"),
        configuration={"hnsw": {"space": "cosine"}},
    )
    made.add(ids=list(CHUNKS), documents=list(CHUNKS.values()))
    return made


if __name__ == "__main__":
    ragtrace.instrument(service_name="chroma-app")
    print(ask(" ".join(sys.argv[1:]) or "Can I return a lamp?"))
