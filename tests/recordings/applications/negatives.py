"""Programs that are no RAG call: nobody retrieves, or nobody answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import MODEL, Application

_TALK = (
    ("user", "I bought a lamp on Monday. It flickers."),
    ("assistant", "Flickering is often a loose bulb. Turn it until it is firm, and look whether it stops."),
)
_CONTEXT = (
    "The warranty on every lamp lasts 24 months. It starts on the day of delivery.",
    "The warranty covers driver and socket. It does not cover bulbs or broken glass.",
)
_GRADE = (
    "Given a question, an answer and the contexts that were retrieved, judge for each statement of it "
    "whether it can be inferred directly from the contexts. Return JSON with the verdict as 1 or 0.\n\n"
    "question: How long does the warranty last?\n"
    "contexts:\n{context}\n"
    "answer: The warranty on every lamp lasts 36 months.\n"
)


def _no_rag(ask: Callable[[str], Any], question: str, *, is_rooted: bool = True) -> Application:
    return Application(
        question=question,
        prepare=lambda: None,
        ask=lambda asked: str(ask(asked)),
        chunks=lambda _: [],
        is_rooted=is_rooted,
    )


# --- calls of a model alone


def openai_title() -> Application:
    """A title for a conversation, as chat applications make one after the first answer."""
    talk = "\n".join(f"{role}: {text}" for role, text in _TALK)
    task = (
        "### Task:\nWrite a title of three to five words for the conversation below.\n\n"
        f"### Chat history:\n<chat_history>\n{talk}\n</chat_history>"
    )
    return _no_rag(lambda asked: _complete(asked), task)


def openai_guardrail() -> Application:
    """A guardrail that looks at what the user says before anything else is done."""
    system = "You moderate messages for a shop for lamps. Reply with `safe` or `unsafe` and one reason."
    return _no_rag(
        lambda asked: _complete(asked, system), "Message: My lamp flickers, and I am angry about it."
    )


def openai_rewrite() -> Application:
    """A query rewrite, after which nothing is searched for."""
    system = "Make the latest message a standalone question for a search engine. Return the question only."
    return _no_rag(lambda asked: _complete(asked, system, history=_TALK), "What does its warranty cover?")


def openai_grading() -> Application:
    """Another tool's evaluation: contexts and answer are the material that a model grades."""
    return _no_rag(lambda asked: _complete(asked), _GRADE.format(context="\n".join(_CONTEXT)))


def openai_summary() -> Application:
    """A summary of a document that the caller brought along."""
    return _no_rag(
        lambda asked: _complete(asked),
        "Summarize this document in one sentence.\n\n" + " ".join(_CONTEXT),
    )


def _complete(question: str, system: str = "", *, history: Any = (), client: Any = None) -> str:
    from openai import OpenAI

    said = [("system", system)] if system else []
    completion = (client or OpenAI()).chat.completions.create(
        model=MODEL,
        messages=[{"role": role, "content": text} for role, text in (*said, *history, ("user", question))],
    )
    return str(completion.choices[0].message.content)


# --- LangChain


def langchain_talk() -> Application:
    """A chain of a prompt and a model, with the conversation so far."""
    app = import_module("langchain_app")

    def ask(question: str) -> str:
        prompt = app.ChatPromptTemplate.from_messages(
            [("system", "You are the assistant of a shop for lamps."), *_TALK, ("human", "{question}")]
        )
        chain = prompt | app.ChatOpenAI(model=MODEL) | app.StrOutputParser()
        return str(chain.invoke({"question": question}))

    return _no_rag(ask, "Which bulb should I buy for it?")


def langchain_calculator() -> Application:
    """An agent whose tool computes."""
    app = import_module("langchain_app")

    def ask(question: str) -> str:
        from langchain.agents import create_agent
        from langchain_core.tools import tool

        @tool
        def convert(amount: str) -> str:
            """Convert an amount of euros to dollars."""
            return "20 euros are 23.20 dollars at the rate of today."

        agent = create_agent(app.ChatOpenAI(model=MODEL), tools=[convert], name="cashier")
        state = agent.invoke({"messages": [{"role": "user", "content": question}]})
        return str(state["messages"][-1].content)

    return _no_rag(ask, "How many dollars are 20 euros?")


def langchain_ingestion() -> Application:
    """A document is split, embedded and stored."""
    app = import_module("langchain_app")

    def ask(_: str) -> str:
        from langchain_core.runnables import RunnableLambda
        from langchain_core.vectorstores import InMemoryVectorStore
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        embeddings = app.OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)
        store = InMemoryVectorStore(embeddings)
        splitter = RecursiveCharacterTextSplitter(chunk_size=80, chunk_overlap=0)
        split = RunnableLambda(splitter.split_documents)
        chain = split | RunnableLambda(store.add_documents)
        texts = " ".join(app.CHUNKS.values())
        return str(len(chain.invoke([app.Document(page_content=texts, metadata={"source": "handbook"})])))

    return _no_rag(ask, "")


def langchain_grading() -> Application:
    """Another tool's evaluation, as chains of prompts: statements first, then their verdicts."""
    app = import_module("langchain_app")

    def ask(question: str) -> str:
        model = app.ChatOpenAI(model=MODEL) | app.StrOutputParser()
        split = app.ChatPromptTemplate.from_messages(
            [
                (
                    "human",
                    "Break the answer into statements, as JSON.\n\nquestion: {question}\nanswer: {answer}",
                )
            ]
        )
        answer = "The warranty on every lamp lasts 36 months."
        statements = (split | model).with_config(run_name="statement_generator_prompt")
        verdicts = (app.ChatPromptTemplate.from_messages([("human", _GRADE)]) | model).with_config(
            run_name="n_l_i_statement_prompt"
        )
        statements.invoke({"question": question, "answer": answer})
        return str(verdicts.invoke({"context": "\n".join(_CONTEXT)}))

    return _no_rag(ask, "How long does the warranty last?", is_rooted=False)


# --- LlamaIndex


def llamaindex_talk() -> Application:
    """A chat engine without an index."""
    app = import_module("llamaindex_app")

    def ask(question: str) -> str:
        from llama_index.core.chat_engine import SimpleChatEngine
        from llama_index.core.llms import ChatMessage

        history = [ChatMessage(role=role, content=text) for role, text in _TALK]
        model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
        return str(SimpleChatEngine.from_defaults(llm=model).chat(question, chat_history=history))

    return _no_rag(ask, "Which bulb should I buy for it?")


def llamaindex_ingestion() -> Application:
    """A document is split, embedded and stored."""
    app = import_module("llamaindex_app")

    def ask(_: str) -> str:
        from llama_index.core import Document
        from llama_index.core.node_parser import TokenTextSplitter

        embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=app.BASE_URL)
        index = app.VectorStoreIndex.from_documents(
            [Document(text=" ".join(app.CHUNKS.values()))],
            transformations=[TokenTextSplitter(chunk_size=64, chunk_overlap=0)],
            embed_model=embedder,
        )
        return str(len(index.docstore.docs))

    return _no_rag(ask, "", is_rooted=False)


def llamaindex_calculator() -> Application:
    """An agent whose tool computes."""
    app = import_module("llamaindex_app")

    async def run(question: str) -> str:
        from llama_index.core.agent.workflow import FunctionAgent

        def convert(amount: str) -> str:
            """Convert an amount of euros to dollars."""
            return "20 euros are 23.20 dollars at the rate of today."

        model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
        return str(await FunctionAgent(name="cashier", tools=[convert], llm=model).run(question))

    return _no_rag(lambda question: asyncio.run(run(question)), "How many dollars are 20 euros?")


# --- Haystack


def haystack_talk() -> Application:
    """A pipeline of a prompt and a generator."""
    app = import_module("haystack_app")

    def ask(question: str) -> str:
        from haystack.dataclasses import ChatMessage

        template = [
            ChatMessage.from_system("You are the assistant of a shop for lamps."),
            ChatMessage.from_user("{{question}}"),
        ]
        made = app.Pipeline()
        made.add_component("prompt", app.ChatPromptBuilder(template=template, required_variables="*"))
        made.add_component("llm", app.OpenAIChatGenerator(model=MODEL))
        made.connect("prompt.prompt", "llm.messages")
        return str(made.run({"prompt": {"question": question}})["llm"]["replies"][0].text)

    return _no_rag(ask, "Lamps flicker if a bulb is loose. Which bulb should I buy?")


def haystack_ingestion() -> Application:
    """Documents are split, embedded and written."""
    app = import_module("haystack_app")

    def ask(_: str) -> str:
        from haystack import Document
        from haystack.components.embedders import OpenAIDocumentEmbedder
        from haystack.components.writers import DocumentWriter
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        made = app.Pipeline()
        made.add_component(
            "embedder", OpenAIDocumentEmbedder(model="text-embedding-3-small", progress_bar=False)
        )
        made.add_component("writer", DocumentWriter(InMemoryDocumentStore()))
        made.connect("embedder.documents", "writer.documents")
        documents = [Document(content=text) for text in _CONTEXT]
        return str(made.run({"embedder": {"documents": documents}})["writer"]["documents_written"])

    return _no_rag(ask, "")


# --- pydantic-ai


def pydantic_ai_calculator() -> Application:
    """An agent whose tool computes."""

    def convert(amount: str) -> str:
        """Convert an amount of euros to dollars."""
        return "20 euros are 23.20 dollars at the rate of today."

    def ask(question: str) -> str:
        from pydantic_ai import Agent

        return str(Agent(f"openai:{MODEL}", name="cashier", tools=[convert]).run_sync(question).output)

    return _no_rag(ask, "How many dollars are 20 euros?")


def pydantic_ai_talk() -> Application:
    """An agent without tools."""

    def ask(question: str) -> str:
        from pydantic_ai import Agent

        instructions = "You are the assistant of a shop for lamps. Lamps flicker if a bulb is loose."
        return str(
            Agent(f"openai:{MODEL}", name="clerk", instructions=instructions).run_sync(question).output
        )

    return _no_rag(ask, "Why does my lamp flicker?")


# --- under decorators


def langfuse_grading() -> Application:
    """An evaluator of the application's own, with its contexts as arguments."""
    from langfuse import observe
    from langfuse.openai import OpenAI

    @observe(as_type="evaluator", name="faithfulness")
    def grade(question: str, answer: str, contexts: list[str]) -> dict[str, Any]:
        prompt = _GRADE.format(context="\n".join(contexts))
        return {"score": 0, "reason": _complete(prompt, client=OpenAI())}

    @observe(name="nightly_evaluation")
    def run(question: str) -> str:
        return json.dumps(grade(question, "The warranty on every lamp lasts 36 months.", list(_CONTEXT)))

    return _no_rag(run, "How long does the warranty last?")


def langfuse_talk() -> Application:
    """A chat under a decorator."""
    from langfuse import observe
    from langfuse.openai import OpenAI

    @observe(name="chat")
    def ask(question: str) -> str:
        return _complete(
            question, "You are the assistant of a shop for lamps.", history=_TALK, client=OpenAI()
        )

    return _no_rag(ask, "Which bulb should I buy for it?")


def mlflow_summary() -> Application:
    """A summary under a decorator, of a document that the caller brought along."""
    import mlflow

    @mlflow.trace(name="summarize")
    def ask(document: str) -> str:
        return _complete(f"Summarize this document in one sentence.\n\n{document}")

    return _no_rag(ask, " ".join(_CONTEXT))


def mlflow_calculator() -> Application:
    """A function that calls a tool of its own, and then a model."""
    import mlflow

    @mlflow.trace(span_type="TOOL")
    def convert(amount: str) -> str:
        return "20 euros are 23.20 dollars at the rate of today."

    @mlflow.trace(name="cashier", span_type="AGENT")
    def ask(question: str) -> str:
        return _complete(question, f"Answer in one sentence. {convert('20')}")

    return _no_rag(ask, "How many dollars are 20 euros?")
