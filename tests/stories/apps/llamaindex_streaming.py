"""A query engine of LlamaIndex that streams its answer."""

import os
import sys

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI

import ragtrace

ragtrace.instrument(service_name="support-bot")

base_url = os.environ["OPENAI_BASE_URL"]  # which LlamaIndex itself does not read
nodes = [
    TextNode(id_="warranty-length", text="The warranty on every lamp lasts 24 months."),
    TextNode(id_="shipping-cost", text="Shipping costs 4 euros."),
]
index = VectorStoreIndex(
    nodes, embed_model=OpenAIEmbedding(model="text-embedding-3-small", api_base=base_url)
)
engine = index.as_query_engine(llm=OpenAI(model="gpt-4.1-mini", api_base=base_url), streaming=True)

for piece in engine.query(sys.argv[1]).response_gen:
    print(piece, end="", flush=True)
