"""The examples run as they stand, offline, and their spans hold question, chunks and answer."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ragtrace
from ragtrace import semconv
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with running_receiver() as running:
        yield running


def run_minimal(*question: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "minimal_rag.py", *question],
        env=os.environ
        | {
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: pair.value for pair in span.attributes}


def ours(receiver: OtlpReceiver) -> list[Any]:
    """Return the spans ragtrace made, in order of their ends; a web framework may make spans of its own."""
    return [span for span in receiver.spans if semconv.RAG_KIND in attributes(span)]


def text_of(span: Any, key: str) -> str:
    return json.loads(attributes(span)[key].string_value)[0]["parts"][0]["content"]


@pytest.mark.slow
def test_minimal_rag_answers_and_prints_the_trace_it_sent(receiver: OtlpReceiver) -> None:
    ended = run_minimal("What", "costs", "a", "belt?", endpoint=f"http://{receiver.endpoint}")
    search, chat, root = ours(receiver)
    assert ended.stdout == f"A new belt costs 19 euros in the shop.\ntrace {root.trace_id.hex()}\n"
    assert text_of(root, semconv.INPUT_MESSAGES) == "What costs a belt?"
    assert text_of(root, semconv.OUTPUT_MESSAGES) == text_of(chat, semconv.OUTPUT_MESSAGES)
    assert json.loads(attributes(search)[semconv.RETRIEVAL_DOCUMENTS].string_value)[0]["id"] == "belt"


@pytest.mark.slow
def test_minimal_rag_works_with_nothing_listening() -> None:
    ended = run_minimal(endpoint="http://127.0.0.1:1")
    assert re.fullmatch(r"The warranty on the Loom 2 lasts 24 months\.\ntrace [0-9a-f]{32}\n", ended.stdout)
    assert ended.stderr == ""


@pytest.fixture
async def service(receiver: OtlpReceiver) -> AsyncIterator[httpx.AsyncClient]:
    spec = importlib.util.spec_from_file_location("fastapi_rag", EXAMPLES / "fastapi_rag" / "app.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fastapi_rag"] = module
    spec.loader.exec_module(module)
    ragtrace.instrument(service_name="fastapi-rag", endpoint=receiver.endpoint)
    transport = httpx.ASGITransport(app=module.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        yield client
    ragtrace.uninstrument()
    del sys.modules["fastapi_rag"]


async def test_fastapi_rag_answers(service: httpx.AsyncClient, receiver: OtlpReceiver) -> None:
    reply = await service.post("/ask", json={"question": "How long is the warranty?", "session_id": "s"})
    answered = reply.json()
    ragtrace.uninstrument()
    search, chat, root = ours(receiver)
    assert answered["answer"].startswith("The warranty lasts 24 months")
    assert answered["sources"][0] == "warranty"
    assert answered["trace_id"] == root.trace_id.hex()
    assert text_of(root, semconv.OUTPUT_MESSAGES) == answered["answer"]
    assert attributes(root)[semconv.SESSION_ID].string_value == "s"
    assert {search.parent_span_id, chat.parent_span_id} == {root.span_id}


async def test_fastapi_rag_streams(service: httpx.AsyncClient, receiver: OtlpReceiver) -> None:
    question = {"question": "What does a new belt cost?"}
    async with service.stream("POST", "/stream", json=question) as reply:
        streamed = "".join([piece async for piece in reply.aiter_text()])
    ragtrace.uninstrument()
    search, chat, root = ours(receiver)
    assert streamed == "A new belt costs 19 euros."
    assert text_of(root, semconv.INPUT_MESSAGES) == question["question"]
    assert text_of(root, semconv.OUTPUT_MESSAGES) == streamed
    assert {search.parent_span_id, chat.parent_span_id} == {root.span_id}
    assert semconv.RAG_STREAM_COMPLETE not in attributes(root)


async def test_fastapi_rag_refuses_an_empty_question(service: httpx.AsyncClient) -> None:
    assert (await service.post("/ask", json={"question": ""})).status_code == 422
