"""The applications that are recorded: the examples, and some that do what traces are hard to read for."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["APPLICATIONS", "Application", "Json"]

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "frameworks"))

Json = dict[str, Any]
MODEL = "gpt-4.1-mini"
TWO_QUESTIONS = "How long does the warranty last, and who pays for the shipping of a return?"
HISTORY = ("How long does the warranty on a lamp last?", "The warranty on every lamp lasts 24 months.")
FOLLOW_UP = "What does it cover?"
SESSION = "session-7"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application, and the truth about what it does, which its own objects tell."""

    question: str
    prepare: Callable[[], object]
    """Builds the index. What it does is not recorded."""
    ask: Callable[[str], str]
    chunks: Callable[[str], list[Json]]
    """Returns what the model got for a question, in order. Called when recording is over."""
    model: str = MODEL
    session_id: str | None = None
    is_rooted: bool = True
    """Whether its framework makes one span around all others. Without, the recorder makes one, as a web
    framework does around a request; ragtrace needs none."""


def openai_chat() -> Application:
    return _by_hand("openai_chat", "How long does the warranty last?")


def openai_responses() -> Application:
    return _by_hand("openai_responses", "Who pays for the shipping of a return?")


def openai_streaming() -> Application:
    return _by_hand("openai_streaming", "When does a refund reach my account?")


def anthropic() -> Application:
    return _by_hand("anthropic_app", "How long do repairs take?", model="claude-sonnet-5")


def _by_hand(name: str, question: str, *, model: str = MODEL) -> Application:
    handbook = import_module("handbook")
    return Application(
        question=question,
        prepare=handbook.index,
        ask=import_module(name).ask,
        chunks=lambda asked: [_chunk(found.id, found.text, found.score) for found in handbook.search(asked)],
        model=model,
        is_rooted=False,
    )


def openai_async() -> Application:
    app = import_module("openai_async")

    async def search(question: str) -> list[Json]:
        async with app.AsyncOpenAI() as client:
            return [_chunk(found.id, found.text, found.score) for found in await app.search(client, question)]

    return Application(
        question="What does the warranty cover?",
        prepare=lambda: None,
        ask=app.ask,
        chunks=lambda question: asyncio.run(search(question)),
        is_rooted=False,
    )


def openai_choices() -> Application:
    """Two choices, the first of which is the answer."""
    return _plain(lambda question: _complete(question, _plain_search(question), n=2), is_rooted=False)


def openai_abandoned() -> Application:
    """A streamed answer that nobody reads to its end."""
    app = import_module("openai_streaming")

    def ask(question: str) -> str:
        stream = app.stream(question)
        words = [next(stream), next(stream), next(stream)]
        stream.close()
        return "".join(words)

    return replace(openai_streaming(), ask=ask)


def chroma() -> Application:
    app = import_module("chroma_app")

    def chunks(question: str) -> list[Json]:
        found = app.collection().query(query_texts=[question], n_results=3)
        rows = zip(found["ids"][0], found["documents"][0], found["distances"][0], strict=True)
        return [{"id": id_, "text": text, "distance": distance} for id_, text, distance in rows]

    return Application(
        question="Can I return a lamp?", prepare=app.collection, ask=app.ask, chunks=chunks, is_rooted=False
    )


def qdrant() -> Application:
    app = import_module("qdrant_app")

    def chunks(question: str) -> list[Json]:
        found = app.store().query_points("handbook", query=app.embed([question])[0], limit=3)
        return [_chunk(str(point.id), point.payload["text"], point.score) for point in found.points]

    return Application(
        question="What does shipping cost?", prepare=app.store, ask=app.ask, chunks=chunks, is_rooted=False
    )


def langchain() -> Application:
    app = import_module("langchain_app")
    return Application(
        question="How long does the warranty last?",
        prepare=app.chain,
        ask=app.ask,
        chunks=lambda question: _documents(app.retriever().invoke(question)),
    )


def langchain_streaming() -> Application:
    app = import_module("langchain_app")
    return Application(
        question="How long does the warranty last?",
        prepare=app.chain,
        ask=lambda question: "".join(app.chain().stream(question)),
        chunks=lambda question: _documents(app.retriever().invoke(question)),
    )


def langchain_faiss() -> Application:
    """Chunks from FAISS."""
    return _langchain_with(functools.cache(_langchain_faiss), question="When does a refund reach my account?")


def langchain_ensemble() -> Application:
    """Two retrievers under one, and a compressor that puts the best first: retrievers within retrievers."""
    retriever = functools.cache(_langchain_ensemble)
    return _langchain_with(retriever, question="Who pays for the shipping of a return?")


def langchain_forty() -> Application:
    """Forty chunks, each with metadata."""
    retriever = functools.cache(_langchain_forty)
    return _langchain_with(retriever, question="How long do repairs take in branch 7?")


def langchain_history() -> Application:
    """A chat: the question is rewritten before it is searched for, and it has a session."""
    app = import_module("langchain_app")

    @functools.cache
    def chain() -> Any:
        from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
        from langchain_classic.chains.combine_documents import create_stuff_documents_chain
        from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

        history = MessagesPlaceholder("chat_history")
        rewrite = ChatPromptTemplate.from_messages(
            [("system", "Make the latest message a standalone question."), history, ("human", "{input}")]
        )
        answer = ChatPromptTemplate.from_messages(
            [("system", "Answer from these passages only.\n\n{context}"), history, ("human", "{input}")]
        )
        model = app.ChatOpenAI(model=MODEL)
        retriever = create_history_aware_retriever(model, app.retriever(), rewrite)
        return create_retrieval_chain(retriever, create_stuff_documents_chain(model, answer))

    def run(question: str) -> Any:
        history = [("human", HISTORY[0]), ("ai", HISTORY[1])]
        given = {"input": question, "chat_history": history}
        return chain().invoke(given, config={"metadata": {"session_id": SESSION}})

    return Application(
        question=FOLLOW_UP,
        prepare=chain,
        ask=lambda question: run(question)["answer"],
        chunks=lambda question: _documents(run(question)["context"]),
        session_id=SESSION,
    )


def langchain_agent() -> Application:
    """An agent that retrieves by a tool, twice."""
    app = import_module("langchain_app")

    @functools.cache
    def agent() -> Any:
        from langchain.agents import create_agent
        from langchain_core.tools import tool

        @tool(response_format="content_and_artifact")
        def retrieve(query: str) -> tuple[str, list[Any]]:
            """Find passages of the handbook."""
            found = app.retriever().invoke(query)
            return app.in_one_text(found), found

        return create_agent(app.ChatOpenAI(model=MODEL), tools=[retrieve], name="handbook")

    def ask(question: str) -> str:
        state = agent().invoke({"messages": [{"role": "user", "content": question}]})
        return str(state["messages"][-1].content)

    return Application(
        question=TWO_QUESTIONS,
        prepare=agent,
        ask=ask,
        chunks=lambda question: _union(_documents(app.retriever().invoke(part)) for part in _parts(question)),
    )


def _langchain_with(retriever: Callable[[], Any], *, question: str) -> Application:
    app = import_module("langchain_app")

    @functools.cache
    def chain() -> Any:
        found = {"context": retriever() | app.in_one_text, "question": app.RunnablePassthrough()}
        return found | app.PROMPT | app.ChatOpenAI(model=MODEL) | app.StrOutputParser()

    return Application(
        question=question,
        prepare=chain,
        ask=lambda asked: chain().invoke(asked),
        chunks=lambda asked: _documents(retriever().invoke(asked)),
    )


def _langchain_faiss() -> Any:
    from langchain_community.vectorstores import FAISS

    app = import_module("langchain_app")
    embeddings = app.OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)
    store = FAISS.from_documents(_langchain_documents(), embeddings)
    return store.as_retriever(search_kwargs={"k": 3})


def _langchain_ensemble() -> Any:
    from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
    from langchain_core.documents import BaseDocumentCompressor
    from langchain_core.vectorstores import InMemoryVectorStore

    app = import_module("langchain_app")

    class ShortestFirst(BaseDocumentCompressor):
        def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
            return sorted(documents, key=lambda document: len(document.page_content))[:3]

    embeddings = app.OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)
    costs = InMemoryVectorStore(embeddings)
    costs.add_documents([each for each in _langchain_documents() if "cost" in each.id])
    ensemble = EnsembleRetriever(
        retrievers=[app.retriever(), costs.as_retriever(search_kwargs={"k": 2})], id_key=None
    )
    return ContextualCompressionRetriever(base_compressor=ShortestFirst(), base_retriever=ensemble)


def _langchain_forty() -> Any:
    from langchain_core.vectorstores import InMemoryVectorStore

    app = import_module("langchain_app")
    store = InMemoryVectorStore(
        app.OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)
    )
    store.add_documents(
        [
            app.Document(
                id=f"{each.id}-{branch}",
                page_content=f"Branch {branch}: {each.page_content}",
                metadata={"branch": branch},
            )
            for branch in range(1, 9)
            for each in _langchain_documents()
        ]
    )
    return store.as_retriever(search_kwargs={"k": 40})


def _langchain_documents() -> list[Any]:
    app = import_module("langchain_app")
    return [app.Document(id=name, page_content=text) for name, text in app.CHUNKS.items()]


def llamaindex() -> Application:
    app = import_module("llamaindex_app")
    return _llamaindex_with(app.query_engine, question="Who pays for the shipping of a return?")


def llamaindex_streaming() -> Application:
    return _llamaindex_with(
        functools.cache(lambda: _llamaindex_engine(streaming=True)),
        question="When does a refund reach my account?",
    )


def llamaindex_reranker() -> Application:
    """Five nodes are found, a postprocessor keeps two."""
    return _llamaindex_with(
        functools.cache(lambda: _llamaindex_engine(node_postprocessors=[_shortest_first()])),
        question="What does the warranty cover?",
    )


def llamaindex_many() -> Application:
    """Forty-eight nodes: in attributes of their own, more than the 128 that the SDK keeps."""
    return _llamaindex_with(
        functools.cache(_llamaindex_many), question="How long do repairs take in branch 7?"
    )


def llamaindex_fusion() -> Application:
    """Two retrievers under one."""
    return _llamaindex_with(functools.cache(_llamaindex_fusion), question="What does shipping cost?")


def llamaindex_chat() -> Application:
    """A chat: the question is rewritten before it is searched for."""
    app = import_module("llamaindex_app")

    def chat(question: str) -> Any:
        from llama_index.core.llms import ChatMessage

        history = [
            ChatMessage(role="user", content=HISTORY[0]),
            ChatMessage(role="assistant", content=HISTORY[1]),
        ]
        model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
        engine = _llamaindex().as_chat_engine(
            chat_mode="condense_plus_context", llm=model, similarity_top_k=3
        )
        return engine.chat(question, chat_history=history)

    return Application(
        question=FOLLOW_UP,
        prepare=_llamaindex,
        ask=lambda question: str(chat(question)),
        chunks=lambda question: _nodes(chat(question).source_nodes),
    )


def _llamaindex_with(engine: Callable[[], Any], *, question: str) -> Application:
    return Application(
        question=question,
        prepare=engine,
        ask=lambda asked: str(engine().query(asked)),
        chunks=lambda asked: _nodes(engine().query(asked).source_nodes),
    )


@functools.cache
def _llamaindex() -> Any:
    app = import_module("llamaindex_app")
    nodes = [app.TextNode(id_=name, text=text) for name, text in app.CHUNKS.items()]
    embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=app.BASE_URL)
    return app.VectorStoreIndex(nodes, embed_model=embedder)


def _llamaindex_engine(**options: Any) -> Any:
    app = import_module("llamaindex_app")
    model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
    return _llamaindex().as_query_engine(llm=model, similarity_top_k=5, **options)


def _llamaindex_many() -> Any:
    app = import_module("llamaindex_app")
    nodes = [
        app.TextNode(id_=f"{name}-{branch}", text=f"Branch {branch}: {text}")
        for branch in range(1, 9)
        for name, text in app.CHUNKS.items()
    ]
    embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=app.BASE_URL)
    model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
    return app.VectorStoreIndex(nodes, embed_model=embedder).as_query_engine(llm=model, similarity_top_k=48)


def _llamaindex_fusion() -> Any:
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import QueryFusionRetriever

    app = import_module("llamaindex_app")
    model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
    retrievers = [_llamaindex().as_retriever(similarity_top_k=count) for count in (2, 3)]
    fused = QueryFusionRetriever(retrievers, llm=model, num_queries=1, similarity_top_k=3, use_async=False)
    return RetrieverQueryEngine.from_args(fused, llm=model)


def _shortest_first() -> Any:
    from llama_index.core.postprocessor.types import BaseNodePostprocessor

    class ShortestFirst(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return sorted(nodes, key=lambda found: len(found.text))[:2]

    return ShortestFirst()


def haystack() -> Application:
    app = import_module("haystack_app")

    def chunks(question: str) -> list[Json]:
        given = {"embedder": {"text": question}, "prompt": {"question": question}}
        found = app.pipeline().run(given, include_outputs_from={"retriever"})
        return _contents(found["retriever"]["documents"])

    return Application(
        question="When does a refund reach my account?", prepare=app.pipeline, ask=app.ask, chunks=chunks
    )


def haystack_hybrid() -> Application:
    """Two retrievers, a joiner, a ranker: the ranker's three documents are what the model gets."""
    app = import_module("haystack_app")

    @functools.cache
    def pipeline() -> Any:
        from haystack.components.joiners import DocumentJoiner
        from haystack.components.rankers import LostInTheMiddleRanker
        from haystack.components.retrievers.in_memory import InMemoryBM25Retriever

        made = app.Pipeline()
        made.add_component("embedder", app.OpenAITextEmbedder(model="text-embedding-3-small"))
        made.add_component("by_vector", app.InMemoryEmbeddingRetriever(app.store(), top_k=3))
        made.add_component("by_words", InMemoryBM25Retriever(app.store(), top_k=3))
        made.add_component("joiner", DocumentJoiner(join_mode="reciprocal_rank_fusion"))
        made.add_component("ranker", LostInTheMiddleRanker(top_k=3))
        made.add_component("prompt", app.ChatPromptBuilder(template=app.TEMPLATE, required_variables="*"))
        made.add_component("llm", app.OpenAIChatGenerator(model=MODEL))
        made.connect("embedder.embedding", "by_vector.query_embedding")
        made.connect("by_vector", "joiner")
        made.connect("by_words", "joiner")
        made.connect("joiner.documents", "ranker.documents")
        made.connect("ranker.documents", "prompt.documents")
        made.connect("prompt.prompt", "llm.messages")
        return made

    def run(question: str) -> Any:
        given = {
            "embedder": {"text": question},
            "by_words": {"query": question},
            "prompt": {"question": question},
        }
        return pipeline().run(given, include_outputs_from={"ranker"})

    return Application(
        question="Who pays for the shipping of a return?",
        prepare=pipeline,
        ask=lambda question: run(question)["llm"]["replies"][0].text,
        chunks=lambda question: _contents(run(question)["ranker"]["documents"]),
    )


def pydantic_ai() -> Application:
    return _agent("What does the warranty cover?")


def pydantic_ai_two_hops() -> Application:
    """The agent calls its tool twice, in a conversation that has an id."""
    app = import_module("pydantic_ai_app")

    def ask(question: str) -> str:
        return str(app.agent().run_sync(question, conversation_id=SESSION).output)

    return replace(_agent(TWO_QUESTIONS), ask=ask, session_id=SESSION)


def pydantic_ai_streaming() -> Application:
    app = import_module("pydantic_ai_app")

    def ask(question: str) -> str:
        return "".join(app.agent().run_stream_sync(question).stream_text(delta=True))

    return replace(pydantic_ai(), ask=ask)


def _agent(question: str) -> Application:
    app = import_module("pydantic_ai_app")

    def prepare() -> None:
        app.agent()
        app.index()

    return Application(
        question=question,
        prepare=prepare,
        ask=app.ask,
        chunks=lambda asked: _union(app.retrieve(part) for part in _parts(asked)),
    )


def traceloop_decorated() -> Application:
    """Functions under the Traceloop SDK's own decorators."""
    from traceloop.sdk.decorators import task, workflow

    search = task(name="search")(_plain_search)

    @workflow(name="ask_handbook")
    def ask(question: str) -> str:
        from traceloop.sdk import Traceloop

        Traceloop.set_association_properties({"session_id": SESSION, "user_id": "user-3"})
        return _complete(question, search(question))

    return _plain(ask, session_id=SESSION)


def langfuse_decorated() -> Application:
    """Functions under Langfuse's ``@observe``, and its own OpenAI client."""
    from langfuse import observe, propagate_attributes
    from langfuse.openai import OpenAI

    search = observe(as_type="retriever", name="search")(_plain_search)

    @observe(name="ask_handbook")
    def ask(question: str) -> str:
        with propagate_attributes(session_id=SESSION, user_id="user-3"):
            return _complete(question, search(question), client=OpenAI())

    return _plain(ask, session_id=SESSION)


def langfuse_langchain() -> Application:
    """LangChain with Langfuse's callback handler."""
    app = import_module("langchain_app")

    def ask(question: str) -> str:
        from langfuse.langchain import CallbackHandler

        config = {"callbacks": [CallbackHandler()], "metadata": {"langfuse_session_id": SESSION}}
        return str(app.chain().invoke(question, config=config))

    return Application(
        question="How long does the warranty last?",
        prepare=app.chain,
        ask=ask,
        chunks=lambda question: _documents(app.retriever().invoke(question)),
        session_id=SESSION,
    )


def mlflow_decorated() -> Application:
    """Functions under MLflow's ``@trace``, and its autologging of OpenAI."""
    import mlflow
    from mlflow.entities import Document

    @mlflow.trace(span_type="RETRIEVER")
    def search(query: str) -> list[Any]:
        return [
            Document(id=found["id"], page_content=found["text"], metadata={"chunk_id": found["id"]})
            for found in _plain_search(query)
        ]

    @mlflow.trace(name="ask_handbook")
    def ask(question: str) -> str:
        mlflow.update_current_trace(session_id=SESSION, user="user-3")
        return _complete(question, [{"id": each.id, "text": each.page_content} for each in search(question)])

    return _plain(ask, session_id=SESSION)


def openinference_decorated() -> Application:
    """Functions under OpenInference's decorators and its session."""
    import json

    from openinference.instrumentation import OITracer, TraceConfig, using_session
    from openinference.semconv.trace import SpanAttributes
    from opentelemetry import trace

    def ask(question: str) -> str:
        tracer = OITracer(trace.get_tracer("handbook"), TraceConfig())
        with (
            using_session(SESSION),
            tracer.start_as_current_span("ask_handbook", openinference_span_kind="chain") as span,
        ):
            span.set_input(question)
            with tracer.start_as_current_span("search", openinference_span_kind="retriever") as found:
                found.set_input(question)
                chunks = _plain_search(question)
                for index, chunk in enumerate(chunks):
                    prefix = f"{SpanAttributes.RETRIEVAL_DOCUMENTS}.{index}.document"
                    found.set_attribute(f"{prefix}.id", chunk["id"])
                    found.set_attribute(f"{prefix}.content", chunk["text"])
                    found.set_attribute(f"{prefix}.score", chunk["score"])
                    found.set_attribute(f"{prefix}.metadata", json.dumps({"source": "handbook"}))
            answer = _complete(question, chunks)
            span.set_output(answer)
            return answer

    return _plain(ask, session_id=SESSION)


def openinference_evaluated() -> Application:
    """A judge of the application's own, which asks a model about the answer in the same trace."""
    from openinference.instrumentation import OITracer, TraceConfig
    from opentelemetry import trace

    tracer = OITracer(trace.get_tracer("handbook"), TraceConfig())
    search = tracer.tool(name="search")(_plain_search)

    @tracer.chain(name="ask_handbook")
    def ask(question: str) -> str:
        chunks = search(question)
        answer = _complete(question, chunks)
        with tracer.start_as_current_span("judge", openinference_span_kind="evaluator") as span:
            span.set_input(answer)
            span.set_output(_complete(f"Is it said that {answer.lower()}?", chunks))
        return answer

    return _plain(ask)


def _plain(
    ask: Callable[[str], str], *, session_id: str | None = None, is_rooted: bool = True
) -> Application:
    handbook = import_module("handbook")
    return Application(
        question="How long does the warranty last?",
        prepare=handbook.index,
        ask=ask,
        chunks=_plain_search,
        session_id=session_id,
        is_rooted=is_rooted,
    )


def _plain_search(question: str) -> list[Json]:
    """Find the three chunks that are nearest to the question."""
    handbook = import_module("handbook")
    return [_chunk(found.id, found.text, found.score) for found in handbook.search(question)]


def _complete(question: str, chunks: list[Json], client: Any = None, n: int = 1) -> str:
    from openai import OpenAI

    passages = "\n".join(chunk["text"] for chunk in chunks)
    completion = (client or OpenAI()).chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": f"Answer from these passages only.\n\n{passages}"},
            {"role": "user", "content": question},
        ],
        n=n,
    )
    return str(completion.choices[0].message.content)


def _chunk(id_: str, text: str, score: float | None = None) -> Json:
    return {"id": id_, "text": text} | ({} if score is None else {"score": score})


def _documents(found: Iterable[Any]) -> list[Json]:
    return [_chunk(document.id, document.page_content) for document in found]


def _nodes(found: Iterable[Any]) -> list[Json]:
    return [_chunk(each.node.node_id, each.text, each.score) for each in found]


def _contents(found: Iterable[Any]) -> list[Json]:
    return [_chunk(document.id, document.content, document.score) for document in found]


def _parts(question: str) -> list[str]:
    """Part a question as the model server does that calls the tool for each part."""
    return [f"{part.strip()}?" for part in question.rstrip("?").split(", and ")]


def _union(founds: Iterable[list[Json]]) -> list[Json]:
    return list(
        {chunk["id"]: chunk for found in reversed(list(founds)) for chunk in reversed(found)}.values()
    )[::-1]


APPLICATIONS: dict[str, Callable[[], Application]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        anthropic,
        chroma,
        haystack,
        haystack_hybrid,
        langchain,
        langchain_agent,
        langchain_ensemble,
        langchain_faiss,
        langchain_forty,
        langchain_history,
        langchain_streaming,
        langfuse_decorated,
        langfuse_langchain,
        llamaindex,
        llamaindex_chat,
        llamaindex_fusion,
        llamaindex_many,
        llamaindex_reranker,
        llamaindex_streaming,
        mlflow_decorated,
        openai_abandoned,
        openai_async,
        openai_chat,
        openai_choices,
        openai_responses,
        openai_streaming,
        openinference_decorated,
        openinference_evaluated,
        pydantic_ai,
        pydantic_ai_streaming,
        pydantic_ai_two_hops,
        qdrant,
        traceloop_decorated,
    )
}
