"""Records what frameworks and vector stores give, and prints what of it stands on the spans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import chromadb
import numpy
from anthropic.types import Message, TextBlock, ThinkingBlock, Usage
from haystack.dataclasses import ChatMessage as HaystackMessage
from haystack.dataclasses import Document as HaystackDocument
from haystack.dataclasses import GeneratedAnswer, StreamingChunk
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.base.response.schema import Response
from llama_index.core.schema import NodeWithScore, TextNode
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams
from weaviate.collections.classes.internal import MetadataReturn, Object, QueryReturn

import ragtrace
from ragtrace import semconv

ID = "7b0f8a52-3d0e-4f0f-9d3a-3c1f1a5e2b11"


def chroma() -> Any:
    collection = chromadb.EphemeralClient().create_collection("handbook")
    collection.add(
        ids=["a", "b"], documents=["A", "B"], embeddings=[[1, 0], [0, 1]], metadatas=[{"p": 1}] * 2
    )
    return collection


def qdrant() -> Any:
    client = QdrantClient(":memory:")
    client.create_collection("c", VectorParams(size=2, distance=Distance.DOT))
    client.upsert("c", [PointStruct(id=1, vector=[0.5, 0.0], payload={"document": "A"})])
    return client.query_points("c", query=[1.0, 0.0])


def weaviate() -> Any:
    found = Object(
        collection="c",
        uuid=ID,
        properties={"content": "A"},
        metadata=MetadataReturn(score=0.5),
        references=None,
        vector={},
    )
    return QueryReturn(objects=[found])


def documents() -> Iterator[tuple[str, Any]]:
    yield "langchain", [Document("A", id="a", metadata={"p": 1})]
    yield "langchain with scores", [(Document("A", id="a"), numpy.float32(0.5))]
    yield "llama-index", [NodeWithScore(node=TextNode(text="A", id_="a"), score=0.5)]
    yield (
        "llama-index response",
        Response("r", source_nodes=[NodeWithScore(node=TextNode(text="A", id_="a"))]),
    )
    yield "haystack", {"documents": [HaystackDocument(id="a", content="A", score=0.5)]}
    yield "chroma query", chroma().query(query_embeddings=[[1, 0]])
    yield "chroma get", chroma_again().get()
    yield "qdrant response", qdrant()
    yield "qdrant points", qdrant().points
    yield "weaviate", weaviate()
    yield "faiss", (numpy.array([[0.5]], dtype="float32"), numpy.array([[0]]))


def chroma_again() -> Any:
    return chromadb.EphemeralClient().get_collection("handbook")


def completion() -> ChatCompletion:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Ada"}}
    return ChatCompletion(id="c", object="chat.completion", created=0, model="m", choices=[choice])


def completion_chunk(text: str | None) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": {"content": text}}
    return ChatCompletionChunk(id="c", object="chat.completion.chunk", created=0, model="m", choices=[choice])


def openai_response() -> OpenAIResponse:
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    part = {"type": "output_text", "text": "Ada", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return OpenAIResponse(
        id="r",
        created_at=0,
        model="m",
        object="response",
        output=[thought, message],
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )


def anthropic_message() -> Message:
    blocks = [ThinkingBlock(type="thinking", thinking="hm", signature=""), TextBlock(type="text", text="Ada")]
    usage = Usage(input_tokens=1, output_tokens=1)
    return Message(id="m", model="m", role="assistant", type="message", content=blocks, usage=usage)


def answers() -> Iterator[tuple[str, Any]]:
    yield "openai completion", completion()
    yield "openai completion as json", completion().model_dump()
    yield "openai response", openai_response()
    yield "openai response as json", openai_response().model_dump()
    yield "anthropic message", anthropic_message()
    yield "anthropic message as json", anthropic_message().model_dump()
    yield "langchain message", AIMessage("Ada")
    yield (
        "langchain blocks",
        AIMessage([{"type": "reasoning", "reasoning": "?"}, {"type": "text", "text": "Ada"}]),
    )
    yield "langchain chain", {"input": "Who?", "context": [Document("A")], "answer": "Ada"}
    yield "langgraph state", {"messages": [AIMessage("?"), AIMessage("Ada")]}
    yield "llama-index response", Response("Ada")
    yield "llama-index chat", ChatResponse(message=ChatMessage("Ada", role="assistant"))
    yield "llama-index completion", CompletionResponse(text="Ada")
    yield "haystack message", HaystackMessage.from_assistant("Ada")
    yield "haystack pipeline", {"llm": {"replies": [HaystackMessage.from_assistant("Ada")]}}
    yield (
        "haystack answer",
        {"builder": {"answers": [GeneratedAnswer(data="Ada", query="Who?", documents=[])]}},
    )


def pieces() -> Iterator[tuple[str, list[Any]]]:
    yield "openai pieces", [completion_chunk("A"), completion_chunk("da"), completion_chunk(None)]
    yield "langchain pieces", [AIMessageChunk("A"), AIMessageChunk("da")]
    yield "haystack pieces", [StreamingChunk("A"), StreamingChunk("da")]
    said = ChatMessage("Ada", role="assistant")
    yield "llama-index pieces", [ChatResponse(message=said, delta=delta) for delta in ("A", "da")]


def main() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ragtrace.instrument(tracer_provider=provider, only=[])
    for name, value in documents():
        ragtrace.retrieval(data_source=name)(lambda query, value=value: value)("Who?")
    for name, value in answers():
        ragtrace.rag(name=name)(lambda question, value=value: value)("Who?")
    for name, value in pieces():
        list(ragtrace.rag(name=name)(lambda question, value=value: (piece for piece in value))("Who?"))
    for span in exporter.get_finished_spans():
        written = span.attributes.get(semconv.RAG_DOCUMENTS)
        reply = span.attributes.get(semconv.OUTPUT_MESSAGES)
        found = [json.loads(chunk) for chunk in written] if written is not None else None
        print(json.dumps([span.name, found or (reply and json.loads(reply)[0]["parts"][0]["content"])]))
    print(json.dumps(["unread", ragtrace.statistics().values_unread]))


if __name__ == "__main__":
    main()
