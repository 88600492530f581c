"""Every client of ours that asks others over HTTP, and the error by which it says that it got no answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ragtrace.backends import OtlpHttpSink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.opening import open_reader
from ragtrace.backends.scores import LangfuseScoreSink, PhoenixAnnotationSink
from ragtrace.errors import JudgeError, RagtraceError, ReadError, SendError
from ragtrace.judge import open_embedder, open_judge
from ragtrace.judge.batch import BatchApi
from ragtrace.judge.endpoint import Access
from ragtrace.ports import FreeText, JudgeRequest
from ragtrace.traces.otlp import encode
from tests.rag_spans import rag_trace, trace_id_of

__all__ = ["CLIENTS", "CONTENT", "SECRET", "Client", "measure", "peak_bytes"]

SECRET: Final = "t-secret"
"""Each client has it, as a token or a key."""
CONTENT: Final = "what-only-the-named-host-may-read"
_KEYS: Final = {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET}

Ask = Callable[[str, float], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client. ``ask`` takes a base URL and the seconds that an answer may take."""

    ask: Ask
    error: type[RagtraceError]
    answers_in_full: bool = True
    """Whether it reads the body of a success."""


async def _no_sleep(_: float) -> None:
    await asyncio.sleep(0)


def _reader(kind: str) -> Client:
    async def ask(url: str, timeout_s: float) -> object:
        access = ConnectionSettings(token=SECRET, timeout_s=timeout_s, answer_s=timeout_s)
        reader = open_reader(f"{kind}:{url}", access=access, sleep=_no_sleep)
        try:
            return await reader.get(trace_id_of(0))
        finally:
            await reader.aclose()

    return Client(ask=ask, error=ReadError)


def _sink(make: Callable[..., Any], path: str = "") -> Client:
    async def ask(url: str, timeout_s: float) -> object:
        sink = make(f"{url}{path}", access=ConnectionSettings(token=SECRET, timeout_s=timeout_s))
        try:
            return await sink.send(encode(rag_trace(0, question=CONTENT)))
        finally:
            await sink.aclose()

    return Client(ask=ask, error=SendError, answers_in_full=make is OtlpHttpSink)


def _judge(spec: str) -> Client:
    async def ask(url: str, timeout_s: float) -> object:
        judge = open_judge(spec, base_url=url, environ=_KEYS, timeout_s=timeout_s, max_retries=0)
        request = JudgeRequest(
            step="t",
            system="s",
            user=CONTENT,
            reply_type=FreeText,
            inputs=FreeText(text=CONTENT),
            max_output_tokens=9,
        )
        try:
            return await judge.ask(request)
        finally:
            await judge.aclose()

    return Client(ask=ask, error=JudgeError)


async def _embed(url: str, timeout_s: float) -> object:
    embedder = open_embedder("openai:e", base_url=url, environ=_KEYS, timeout_s=timeout_s, max_retries=0)
    try:
        return await embedder.embed([CONTENT])
    finally:
        await embedder.aclose()


def _batches(ask_api: Callable[[BatchApi], Awaitable[object]]) -> Client:
    async def ask(url: str, timeout_s: float) -> object:
        access = Access.to(url, {"authorization": f"Bearer {SECRET}"})
        api = BatchApi(access, who="judge m", timeout_s=timeout_s)
        try:
            return await ask_api(api)
        finally:
            await api.aclose()

    return Client(ask=ask, error=JudgeError)


CLIENTS: Final = {
    "jaeger": _reader("jaeger"),
    "tempo": _reader("tempo"),
    "phoenix": _reader("phoenix"),
    "langfuse": _reader("langfuse"),
    "otlp sink": _sink(OtlpHttpSink, "/v1/traces"),
    "phoenix sink": _sink(PhoenixAnnotationSink),
    "langfuse sink": _sink(LangfuseScoreSink),
    "openai judge": _judge("openai:m"),
    "anthropic judge": _judge("anthropic:m"),
    "embedder": Client(ask=_embed, error=JudgeError),
    "batch upload": _batches(lambda api: api.upload(CONTENT.encode())),
    "batch state": _batches(lambda api: api.retrieve("b")),
    "batch results": _batches(lambda api: api.lines("f")),
}
"""By name. The command line's own, and the exporters of the SDK, have tests of their own."""


def measure(url: str, *names: str) -> None:
    """Ask by each; print the peak of memory in bytes before, and after each with what was said."""
    print(peak_bytes())
    for name in names:
        client = CLIENTS[name]
        try:
            asyncio.run(client.ask(url, 60))
            said = "nothing"
        except client.error as exc:
            said = type(exc).__name__
        print(peak_bytes(), said)


def peak_bytes() -> int:
    """Return the peak of this process's memory; what `getrusage` tells began with the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10
