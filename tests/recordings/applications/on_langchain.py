"""Applications on LangChain."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from itertools import product
from typing import Any

from tests.recordings.applications.application import (
    FOLLOW_UP,
    HISTORY,
    MODEL,
    SESSION,
    TWO_QUESTIONS,
    Application,
    Json,
    chunk,
    parts,
    union,
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
    return replace(langchain(), ask=lambda question: "".join(app.chain().stream(question)))


def langchain_async() -> Application:
    app = import_module("langchain_app")

    async def read(question: str) -> str:
        return "".join([piece async for piece in app.chain().astream(question)])

    return replace(langchain(), ask=lambda question: asyncio.run(read(question)))


def langchain_faiss() -> Application:
    """Chunks from FAISS."""
    return _langchain_with(_faiss, question="When does a refund reach my account?")


def langchain_ensemble() -> Application:
    """Two retrievers under one, and a compressor that puts the best first: retrievers within retrievers."""
    return _langchain_with(_ensemble, question="Who pays for the shipping of a return?")


def langchain_forty() -> Application:
    """Forty chunks, each with metadata."""
    return _langchain_with(_forty, question="How long do repairs take in branch 7?")


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
        chunks=lambda question: union(_documents(app.retriever().invoke(part)) for part in parts(question)),
    )


def langfuse_langchain() -> Application:
    """LangChain with Langfuse's callback handler."""
    app = import_module("langchain_app")

    def ask(question: str) -> str:
        from langfuse.langchain import CallbackHandler

        config = {"callbacks": [CallbackHandler()], "metadata": {"langfuse_session_id": SESSION}}
        return str(app.chain().invoke(question, config=config))

    return replace(langchain(), ask=ask, session_id=SESSION)


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


def _embeddings() -> Any:
    app = import_module("langchain_app")
    return app.OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)


@functools.cache
def _faiss() -> Any:
    from langchain_community.vectorstores import FAISS

    store = FAISS.from_documents(_langchain_documents(), _embeddings())
    return store.as_retriever(search_kwargs={"k": 3})


@functools.cache
def _ensemble() -> Any:
    from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
    from langchain_core.documents import BaseDocumentCompressor
    from langchain_core.vectorstores import InMemoryVectorStore

    app = import_module("langchain_app")

    class ShortestFirst(BaseDocumentCompressor):
        def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
            return sorted(documents, key=lambda document: len(document.page_content))[:3]

    costs = InMemoryVectorStore(_embeddings())
    costs.add_documents([each for each in _langchain_documents() if "cost" in each.id])
    ensemble = EnsembleRetriever(
        retrievers=[app.retriever(), costs.as_retriever(search_kwargs={"k": 2})], id_key=None
    )
    return ContextualCompressionRetriever(base_compressor=ShortestFirst(), base_retriever=ensemble)


@functools.cache
def _forty() -> Any:
    from langchain_core.vectorstores import InMemoryVectorStore

    app = import_module("langchain_app")
    store, documents = InMemoryVectorStore(_embeddings()), []
    for branch, each in product(range(1, 9), _langchain_documents()):
        text, about = f"Branch {branch}: {each.page_content}", {"branch": branch}
        documents.append(app.Document(id=f"{each.id}-{branch}", page_content=text, metadata=about))
    store.add_documents(documents)
    return store.as_retriever(search_kwargs={"k": 40})


def _langchain_documents() -> list[Any]:
    app = import_module("langchain_app")
    return [app.Document(id=name, page_content=text) for name, text in app.CHUNKS.items()]


def _documents(found: Iterable[Any]) -> list[Json]:
    return [chunk(document.id, document.page_content) for document in found]
