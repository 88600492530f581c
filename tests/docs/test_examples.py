"""The examples run as they stand, offline, and their spans hold question, chunks and answer."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ragtrace
from ragtrace import semconv
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.docs.stand_ins import Place
from tests.patience import PATIENCE_S

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
        timeout=PATIENCE_S,
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
def test_minimal_rag_prints_the_trace_it_sent_and_its_answer_gets_its_verdict(
    receiver: OtlpReceiver, place: Place
) -> None:
    ended = run_minimal("What", "costs", "a", "belt?", endpoint=f"http://{receiver.endpoint}")
    search, chat, root = ours(receiver)
    assert ended.stdout == f"A new belt costs 19 euros in the shop.\ntrace {root.trace_id.hex()}\n"
    assert text_of(root, semconv.INPUT_MESSAGES) == "What costs a belt?"
    assert text_of(root, semconv.OUTPUT_MESSAGES) == text_of(chat, semconv.OUTPUT_MESSAGES)
    assert json.loads(attributes(search)[semconv.RETRIEVAL_DOCUMENTS].string_value)[0]["id"] == "belt"
    assert place.outcomes(receiver) == ["pass"]


@pytest.mark.slow
def test_minimal_rag_works_with_nothing_listening() -> None:
    ended = run_minimal(endpoint="http://127.0.0.1:1")
    assert re.fullmatch(r"The warranty on the Loom 2 lasts 24 months\.\ntrace [0-9a-f]{32}\n", ended.stdout)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("ragtrace: no span could be sent to http://127.0.0.1:1 ")


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


@pytest.mark.slow
async def test_fastapi_rag_answers_and_gets_its_verdict(
    service: httpx.AsyncClient, receiver: OtlpReceiver, place: Place
) -> None:
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
    assert await asyncio.to_thread(place.outcomes, receiver) == ["pass"]


@pytest.mark.slow
async def test_fastapi_rag_streams_and_gets_its_verdict(
    service: httpx.AsyncClient, receiver: OtlpReceiver, place: Place
) -> None:
    question = {"question": "What does a new belt cost?"}
    async with service.stream("POST", "/stream", json=question) as reply:
        streamed = "".join([piece async for piece in reply.aiter_text()])
    ragtrace.uninstrument()
    search, chat, root = ours(receiver)
    assert streamed == "A new belt costs 19 euros."
    assert text_of(root, semconv.INPUT_MESSAGES) == question["question"]
    assert text_of(root, semconv.OUTPUT_MESSAGES) == streamed
    assert {search.parent_span_id, chat.parent_span_id} == {root.span_id}
    assert attributes(root)[semconv.RAG_STREAM_COMPLETE].bool_value is True
    assert await asyncio.to_thread(place.outcomes, receiver) == ["pass"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which examples/custom_metric is installed, as pip would."""
    folder = tmp_path_factory.mktemp("plugin")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=EXAMPLES / "custom_metric", check=True, capture_output=True, timeout=PATIENCE_S)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def with_plugin(plugin: Path, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        env=os.environ | {"PYTHONPATH": ":".join([str(plugin), *filter(None, sys.path)])},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
def test_custom_metric_is_judged_by_its_name(plugin: Path) -> None:
    record = '{"question": "?", "answer": ""}'
    run = with_plugin(
        plugin, "-m", "ragtrace.cli", "evaluate", "-", "--json", "--metrics", "politeness", stdin=record
    )
    assert json.loads(run.stdout)["skip_reason"] == "no_content", run.stderr


@pytest.mark.slow
def test_custom_metric_passes_its_own_tests(plugin: Path) -> None:
    file = EXAMPLES / "custom_metric" / "test_politeness.py"
    run = with_plugin(plugin, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", str(file))
    assert run.returncode == 0, run.stdout
