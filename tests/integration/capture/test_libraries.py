"""Real libraries, instrumented by one line, each in a process of its own that prints its spans."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.model_server import model_environment, running_model_server
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
QUESTION = "Can I return a lamp?"
BEFORE = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
memory = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(memory))
import ragtrace
"""
AFTER = """
print("[" + ",".join(span.to_json(None) for span in memory.get_finished_spans()) + "]")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A finished span, as its process printed it."""

    name: str
    id: str
    trace_id: str
    parent_id: str | None
    scope: str
    attributes: Mapping[str, Any]
    text: str = field(repr=False)

    @property
    def kind(self) -> str | None:
        return self.attributes.get("openinference.span.kind") or self.attributes.get("gen_ai.operation.name")


Run = Callable[..., list[Span]]


@pytest.fixture(scope="module")
def run(frameworks: Path) -> Iterator[Run]:
    """Run code with an SDK provider in memory, and return the spans."""
    with running_model_server() as url:

        def run(code: str, *, before: str = BEFORE, after: str = AFTER, **env: str) -> list[Span]:
            ended = subprocess.run(
                [frameworks, "-c", before + code + after],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": _PATH, **model_environment(url), **env},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr[-3_000:]
            return [_span(each) for each in json.loads(ended.stdout.splitlines()[-1])]

        yield run


_PATH = os.pathsep.join([str(ROOT), str(ROOT / "examples" / "frameworks")])


def _span(printed: Mapping[str, Any]) -> Span:
    return Span(
        name=printed["name"],
        id=printed["context"]["span_id"],
        trace_id=printed["context"]["trace_id"],
        parent_id=printed["parent_id"],
        scope=str(printed.get("instrumentation_scope") or ""),
        attributes=printed["attributes"],
        text=json.dumps(printed),
    )


def of_kind(spans: list[Span], kind: str) -> list[Span]:
    return [span for span in spans if span.kind == kind]


OWN_LANGCHAIN = """
from openinference.instrumentation.langchain import LangChainInstrumentor
LangChainInstrumentor().instrument()
"""


@pytest.mark.parametrize("own", ["", OWN_LANGCHAIN], ids=["by ragtrace", "by the application"])
def test_what_a_langchain_run_calls_stands_under_its_span(run: Run, own: str) -> None:
    spans = run(f"""{own}
ragtrace.instrument()
from langchain_app import ask
memory.clear()
ask({QUESTION!r}); memory.clear()
ask({QUESTION!r})
""")
    by_id = {span.id: span for span in spans}
    assert len({span.trace_id for span in spans}) == 1
    (embedding,) = of_kind(spans, "EMBEDDING")
    (retriever,) = of_kind(spans, "RETRIEVER")
    inner, outer = sorted(of_kind(spans, "LLM"), key=lambda span: span.name == "ChatOpenAI")
    assert by_id[embedding.parent_id or ""] is retriever
    assert by_id[inner.parent_id or ""] is outer
    assert retriever.attributes["retrieval.documents.0.document.id"]


def test_a_call_inside_a_run_that_another_traces_is_no_call_of_its_own(run: Run) -> None:
    spans = run(
        f"""
ragtrace.instrument()
from langchain_app import ask
ask({QUESTION!r}); memory.clear()
ask({QUESTION!r})
from openai import OpenAI
OpenAI().responses.create(model="gpt-4.1-mini", input={QUESTION!r})
""",
        LANGSMITH_OTEL_ENABLED="true",
    )
    assert [span.name for span in spans] == ["Response"]


def test_an_asynchronous_langchain_run_is_one_trace_too(run: Run) -> None:
    spans = run("""
ragtrace.instrument()
import asyncio
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
chain = ChatPromptTemplate.from_template("{q}") | ChatOpenAI(model="gpt-4.1-mini")
async def streamed(q):
    async for _ in chain.astream({"q": q}): pass
async def main():
    await asyncio.gather(chain.ainvoke({"q": "one"}), chain.ainvoke({"q": "two"}), streamed("three"))
asyncio.run(main())
with ragtrace.rag(question="after all of it"): pass
""")
    assert len({span.trace_id for span in spans}) == 4
    assert [span.name for span in spans if span.parent_id is None].count("RunnableSequence") == 3
    by_id = {span.id: span for span in spans}
    clients = [span for span in spans if span.name == "ChatCompletion"]
    assert [by_id[span.parent_id or ""].name for span in clients] == ["ChatOpenAI"] * 3


def test_without_content_no_library_records_a_word(run: Run) -> None:
    spans = run(f"""
ragtrace.instrument(content="off")
import chroma_app, langchain_app, llamaindex_app, haystack_app, pydantic_ai_app, anthropic_app
for app in (chroma_app, langchain_app, llamaindex_app, haystack_app, pydantic_ai_app, anthropic_app):
    app.ask({QUESTION!r})
""")
    assert {"LLM", "RETRIEVER", "retrieval", "chat", "invoke_agent"} <= {span.kind for span in spans}
    assert [span.name for span in spans if "lamp" in span.text.replace("handbook", "")] == []


@pytest.mark.parametrize("fault", ["", "error"], ids=["answered", "failed"])
def test_vector_stores_name_their_chunks(run: Run, fault: str) -> None:
    vector = "[1.0, 0.1]" if not fault else "[1.0, 0.1, 0.7]"
    spans = run(f"""
ragtrace.instrument()
import asyncio, chromadb
from qdrant_client import AsyncQdrantClient, QdrantClient, models
def attempted(call):
    try: return call()
    except Exception as exc: return exc
chroma = chromadb.EphemeralClient().create_collection("handbook", embedding_function=None)
chroma.add(ids=["a"], embeddings=[[1.0, 0.0]], documents=["Lamps"], metadatas=[{{"page": 1}}])
attempted(lambda: chroma.query(query_embeddings=[{vector}], n_results=1))
size = dict(vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
points = [models.PointStruct(id=7, vector=[1, 0], payload={{"text": "Lamps", "page": 1}})]
qdrant = QdrantClient(":memory:")
qdrant.create_collection("handbook", **size); qdrant.upsert("handbook", points)
attempted(lambda: qdrant.query_points("handbook", query={vector}, limit=1))
async def main():
    client = AsyncQdrantClient(":memory:")
    await client.create_collection("handbook", **size); await client.upsert("handbook", points)
    try: await client.query_points("handbook", query={vector}, limit=1)
    except Exception as exc: pass
asyncio.run(main())
""")
    assert [span.name for span in spans] == ["retrieval handbook"] * 3
    if fault:
        assert all("error.type" in span.attributes for span in spans)
        return
    chroma, *qdrants = [json.loads(span.attributes["ragtrace.retrieval.documents"][0]) for span in spans]
    assert (chroma["id"], chroma["content"], chroma["metadata"]) == ("a", "Lamps", {"page": 1})
    assert chroma["distance"] == pytest.approx(0.01, abs=1e-4)
    assert [(each["id"], each["content"], each["metadata"]) for each in qdrants] == [
        ("7", "Lamps", {"page": 1})
    ] * 2
    assert all(each["score"] == pytest.approx(0.995, abs=1e-3) for each in qdrants)


def test_a_store_inside_a_recorded_retrieval_is_not_recorded_again(run: Run) -> None:
    spans = run("""
ragtrace.instrument()
import asyncio, chromadb
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
store = chromadb.EphemeralClient().create_collection("handbook", embedding_function=None)
store.add(ids=["a"], embeddings=[[1.0, 0.0]], documents=["Lamps"])
def search(): return store.query(query_embeddings=[[1.0, 0.0]], n_results=1)
class Retriever(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        found = search()
        return [Document(id=i, page_content=text) for i, text in zip(*found["ids"], *found["documents"])]
ragtrace.retrieval(data_source="own")(search)()
Retriever().invoke("Which?")
asyncio.run(Retriever().ainvoke("Which?"))
search()
""")
    assert [span.name for span in spans] == ["retrieval own", "Retriever", "Retriever", "retrieval handbook"]


def test_weaviate_queries_are_recorded_and_put_back(run: Run) -> None:
    (span,) = run("""
import uuid
from weaviate.collections.query import _QueryCollection
from weaviate.collections.classes.internal import MetadataReturn, Object, QueryReturn
original, said = _QueryCollection.near_text, {"body": "Lamps come back within 30 days", "page": "1"}
found = Object(uuid=uuid.UUID(int=7), metadata=MetadataReturn(distance=0.25), properties=said,
               references=None, vector={}, collection="Handbook")
class Executor:
    _name = "Handbook"
    def near_text(self, query, *, limit=None): return QueryReturn(objects=[found])
_QueryCollection.near_text = Executor.near_text
ragtrace.instrument()
queries = object.__new__(_QueryCollection); queries._name = "Handbook"
assert queries.near_text("How long?", limit=3).objects == [found]
ragtrace.uninstrument()
assert _QueryCollection.near_text is Executor.near_text
""")  # the real class: only what would ask the network is replaced
    assert span.name == "retrieval Handbook"
    assert span.attributes["gen_ai.retrieval.query.text"] == "How long?"
    (chunk,) = map(json.loads, span.attributes["ragtrace.retrieval.documents"])
    assert (chunk["distance"], chunk["content"]) == (0.25, "Lamps come back within 30 days")


INSTRUMENTED_BY = {
    "OpenInference": "from openinference.instrumentation.openai import OpenAIInstrumentor as One\n",
    "OpenLLMetry": "from opentelemetry.instrumentation.openai import OpenAIInstrumentor as One\n",
}


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("other", INSTRUMENTED_BY)
def test_a_call_is_recorded_once_beside_the_applications_own_instrumentor(
    run: Run, other: str, order: str
) -> None:
    own = INSTRUMENTED_BY[other] + "One().instrument()\n"
    ours = "ragtrace.instrument()\n"
    spans = run(
        (own + ours if order == "before" else ours + own)
        + "from openai import OpenAI\n"
        + f"OpenAI().responses.create(model='gpt-4.1-mini', input={QUESTION!r})\n"
        + "ragtrace.uninstrument()\n"
        + f"OpenAI().responses.create(model='gpt-4.1-mini', input={QUESTION!r})\n"
    )
    assert len(spans) == 2
    assert len({span.name for span in spans}) == 1


def test_uninstrumented_libraries_record_nothing_more(run: Run) -> None:
    spans = run(f"""
ragtrace.instrument()
import chroma_app, langchain_app, llamaindex_app, pydantic_ai_app
apps = (chroma_app, langchain_app, llamaindex_app, pydantic_ai_app)
for app in apps: app.ask({QUESTION!r})
assert memory.get_finished_spans()
ragtrace.uninstrument()
memory.clear()
for app in apps: app.ask({QUESTION!r})
""")
    assert spans == []


def test_instrument_imports_no_library(run: Run) -> None:
    assert (
        run("""
ragtrace.instrument()
roots = {name.partition(".")[0] for name in sys.modules}
assert not roots & {"openai", "anthropic", "langchain_core", "llama_index", "haystack", "pydantic_ai",
                    "chromadb", "qdrant_client", "weaviate", "openinference", "wrapt"}
""")
        == []
    )


AGENT = """
import json, os, subprocess, sys
from importlib.metadata import entry_points
named = entry_points(group="opentelemetry_instrumentor").names  # all that the agent would load
env = dict(os.environ, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=",".join(named - {{{kept!r}}}))
app = "from {app} import ask; ask({question!r})"
ended = subprocess.run([{agent!r}, sys.executable, "-c", app], env=env, capture_output=True, text=True)
assert ended.returncode == 0, ended.stderr
decoder, text, spans = json.JSONDecoder(), ended.stdout, []
while text.strip():
    span, end = decoder.raw_decode(text)
    spans.append(span)
    text = text[end:].lstrip()
print(json.dumps(spans))
"""


@pytest.fixture
def run_by_agent(run: Run, frameworks: Path) -> Run:
    """Run an application by ``opentelemetry-instrument``."""
    agent = str(frameworks.with_name("opentelemetry-instrument"))

    def run_app(app: str, *, kept: str = "", **env: str) -> list[Span]:
        return run(
            AGENT.format(app=app, question=QUESTION, agent=agent, kept=kept),
            before="",
            after="",
            PYTHONPATH=_PATH,
            OTEL_TRACES_EXPORTER="console",
            OTEL_METRICS_EXPORTER="none",
            OTEL_LOGS_EXPORTER="none",
            **env,
        )

    return run_app


def test_opentelemetry_instrument_is_enough(run_by_agent: Run) -> None:
    spans = run_by_agent("pydantic_ai_app")
    assert [span.name for span in spans if span.parent_id is None] == ["invoke_agent handbook"]
    assert len({span.id for span in spans}) == len(spans)
    assert {"chat", "execute_tool"} <= {span.kind for span in spans}
    assert of_kind(spans, "LLM") == []  # the variable names the instrumentor of OpenAI


def test_what_the_agent_turned_on_follows_the_content_policy(run_by_agent: Run) -> None:
    spans = run_by_agent("haystack_app", kept="haystack", RAGTRACE_CAPTURE_CONTENT="false")
    assert [span.name for span in spans].count("Pipeline.run") == 1
    assert of_kind(spans, "RETRIEVER")
    assert [span.name for span in spans if "lamp" in span.text.replace("handbook", "")] == []


STREAMS = """
import asyncio
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
ragtrace.instrument(only=["langchain"])

@ragtrace.retrieval
def search(query): return ["Refunds take 14 days."]

def prompt(question): return search("in the chain")[0] + question

def chain(last=StrOutputParser()):
    model = GenericFakeChatModel(messages=iter([AIMessage("Refunds take 14 days.")]))
    return RunnableLambda(prompt) | model | last
"""


@pytest.mark.parametrize(
    "reading",
    [
        """
async def read():
    stream = chain().astream("Who?")
    async for piece in stream: break
    search("next")
asyncio.run(read())
""",
        """
async def read():
    async for piece in chain().astream("Who?"): break
    search("next")
asyncio.run(read())
""",
        """
for piece in chain().stream("Who?"): break
search("next")
""",
        """
async def read():
    ready = asyncio.Event()
    async def wait(message):
        ready.set()
        await asyncio.Event().wait()
    async def consume():
        try:
            async for piece in chain(RunnableLambda(wait)).astream("Who?"): pass
        finally:
            search("next")
    task = asyncio.create_task(consume())
    await ready.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
asyncio.run(read())
""",
    ],
    ids=["left and kept", "left", "left, sync", "cancelled"],
)
def test_what_comes_after_a_stream_that_was_left_is_no_part_of_it(run: Run, reading: str) -> None:
    spans = run(STREAMS + reading)
    (root,) = [span for span in spans if span.name == "RunnableSequence"]
    inside, after = (span for span in spans if span.name == "retrieval")
    assert inside.trace_id == root.trace_id
    assert (after.parent_id, after.trace_id == root.trace_id) == (None, False)
    assert root.attributes["ragtrace.stream.complete"] is False
    assert root.attributes["ragtrace.stream.end"] == "reader_left"


AGENT_STREAM = """
import asyncio
from contextlib import suppress
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
ragtrace.instrument(only=["pydantic-ai"])
agent = Agent(TestModel(), name="shop")

@agent.tool_plain
def search() -> str: return "Refunds take 14 days."

async def answer(question):
    async with agent.run_stream(question) as run:
        async for piece in run.stream_text(delta=True, debounce_by=None): yield piece

async def read(how):
    pieces = answer("Who?")
    async for piece in pieces: break
    if how == "closed":
        with suppress(GeneratorExit): await pieces.aclose()
    if how == "forgotten":
        del pieces
        await asyncio.sleep(0)
        closing = asyncio.all_tasks() - {asyncio.current_task()}
        with suppress(asyncio.CancelledError):  # of a scope that another task ends
            await asyncio.gather(*closing, return_exceptions=True)
    await agent.run("And next?")
    with ragtrace.rag(question="And then?"): pass
"""


@pytest.mark.parametrize("how", ["kept", "closed", "forgotten"])
def test_what_comes_after_an_agents_stream_that_was_left_is_no_part_of_it(run: Run, how: str) -> None:
    spans = run(AGENT_STREAM + f"asyncio.run(read({how!r}))\n")
    calls = [span for span in spans if span.name in ("invoke_agent shop", "invoke_workflow rag")]
    assert len({span.trace_id for span in calls}) == len(calls) == 3
    assert {span.parent_id for span in calls} == {None}
    assert len({span.trace_id for span in spans if span.name == "execute_tool search"}) == 2
    assert len({span.trace_id for span in spans}) == 3
