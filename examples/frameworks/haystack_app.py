"""Haystack: an embedder, a retriever, a prompt builder and a chat generator in one pipeline.

    python examples/frameworks/haystack_app.py "When does a refund reach my account?"

The one line captures the pipeline with its components.
"""

import functools
import os
import sys

# Before the import: nothing is reported to Haystack's makers.
os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "false")

from corpus import CHUNKS
from haystack import Document, Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

import ragtrace

TEMPLATE = [
    ChatMessage.from_system(
        "Answer from these passages of our handbook only.\n\n"
        "{% for document in documents %}{{ document.content }}\n{% endfor %}"
    ),
    ChatMessage.from_user("{{ question }}"),
]


def ask(question: str) -> str:
    found = pipeline().run({"embedder": {"text": question}, "prompt": {"question": question}})
    return found["llm"]["replies"][0].text


@functools.cache
def pipeline() -> Pipeline:
    made = Pipeline()
    made.add_component("embedder", OpenAITextEmbedder(model="text-embedding-3-small"))
    made.add_component("retriever", InMemoryEmbeddingRetriever(store(), top_k=3))
    made.add_component("prompt", ChatPromptBuilder(template=TEMPLATE, required_variables="*"))
    made.add_component("llm", OpenAIChatGenerator(model="gpt-4.1-mini"))
    made.connect("embedder.embedding", "retriever.query_embedding")
    made.connect("retriever.documents", "prompt.documents")
    made.connect("prompt.prompt", "llm.messages")
    return made


@functools.cache
def store() -> InMemoryDocumentStore:
    made = InMemoryDocumentStore(embedding_similarity_function="cosine")
    embedder = OpenAIDocumentEmbedder(model="text-embedding-3-small", progress_bar=False)
    documents = [Document(id=name, content=text) for name, text in CHUNKS.items()]
    made.write_documents(embedder.run(documents)["documents"])
    return made


if __name__ == "__main__":
    ragtrace.instrument(service_name="haystack-app")
    print(ask(" ".join(sys.argv[1:]) or "When does a refund reach my account?"))
