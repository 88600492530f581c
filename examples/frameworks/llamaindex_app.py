"""LlamaIndex: a vector store index and its query engine.

    python examples/frameworks/llamaindex_app.py "Who pays for the shipping of a return?"

The one line captures the query engine with its retriever and its model.
"""

import functools
import os
import sys

from corpus import CHUNKS
from llama_index.core import VectorStoreIndex
from llama_index.core.query_engine import BaseQueryEngine
from llama_index.core.schema import TextNode
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI

import ragtrace

BASE_URL = os.environ.get("OPENAI_BASE_URL")  # which LlamaIndex itself does not read


def ask(question: str) -> str:
    return str(query_engine().query(question))


@functools.cache
def query_engine() -> BaseQueryEngine:
    nodes = [TextNode(id_=name, text=text) for name, text in CHUNKS.items()]
    embedder = OpenAIEmbedding(model="text-embedding-3-small", api_base=BASE_URL)
    index = VectorStoreIndex(nodes, embed_model=embedder)
    return index.as_query_engine(llm=OpenAI(model="gpt-4.1-mini", api_base=BASE_URL), similarity_top_k=3)


if __name__ == "__main__":
    ragtrace.instrument(service_name="llamaindex-app")
    print(ask(" ".join(sys.argv[1:]) or "Who pays for the shipping of a return?"))
