"""Streams in a process of their own: ``python -m ….stream_worker captured|plain MODEL SINK``.

A line on stdin is an order, ``KIND STREAMS``; a line of JSON answers it: microseconds from the call to its
first token, and to its last, of each stream.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import ragtrace
from ragtrace.capture import flush
from tests.benchmarks.capture_cost.payload import ANSWER, MODEL, PROMPT, QUESTION

FIRST_S = 0.02
"""What a fast model takes for its first token."""
PIECES = [f"{word} " for word in ANSWER.split()]

Times = tuple[float, float]


def main() -> None:
    mode, model, sink = sys.argv[1:]
    if mode == "captured":
        assert ragtrace.instrument(endpoint=f"{sink}/v1/traces", protocol="http/protobuf")
    kinds = _kinds(mode == "captured", model)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries may print
    print(json.dumps(list(kinds)), file=answers)
    for line in sys.stdin:
        kind, _, streams = line.strip().rpartition(" ")
        print(json.dumps([kinds[kind]() for _ in range(int(streams))]), file=answers)
        flush(60)


def _kinds(captured: bool, model: str) -> dict[str, Callable[[], Times]]:
    rag: Callable[..., Any] = ragtrace.rag if captured else _as_it_is
    generation: Callable[..., Any] = ragtrace.generation(model=MODEL) if captured else _as_it_is
    sync, asynchronous = rag(_answering(generation)), rag(_answering_async(generation))
    kinds: dict[str, Callable[[], Times]] = {
        "generator": lambda: _read(sync(QUESTION)),
        "async generator": lambda: asyncio.run(_read_async(asynchronous(QUESTION))),
    }
    try:
        ask = rag(_openai(model))
    except ImportError:
        return kinds
    return {**kinds, "openai": lambda: _read(ask(QUESTION))}


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _answering(generation: Callable[..., Any]) -> Callable[..., Iterator[str]]:
    @generation
    def complete(prompt: str) -> Iterator[str]:
        time.sleep(FIRST_S)
        yield from PIECES

    def ask(question: str) -> Iterator[str]:
        yield from complete(PROMPT)

    return ask


def _answering_async(generation: Callable[..., Any]) -> Callable[..., AsyncIterator[str]]:
    @generation
    async def complete(prompt: str) -> AsyncIterator[str]:
        await asyncio.sleep(FIRST_S)
        for piece in PIECES:
            yield piece

    async def ask(question: str) -> AsyncIterator[str]:
        async for piece in complete(PROMPT):
            yield piece

    return ask


def _openai(model: str) -> Callable[..., Iterator[str]]:
    from openai import OpenAI

    client = OpenAI(base_url=f"{model}/v1", api_key="k")

    def ask(question: str) -> Iterator[str]:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "system", "content": PROMPT}, {"role": "user", "content": question}],
            stream=True,
        )
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    return ask


def _read(stream: Iterator[str]) -> Times:
    started = time.perf_counter()
    next(stream)
    first = time.perf_counter()
    assert sum(1 for _ in stream)
    return (first - started) * 1e6, (time.perf_counter() - started) * 1e6


async def _read_async(stream: AsyncIterator[str]) -> Times:
    started = time.perf_counter()
    await anext(stream)
    first = time.perf_counter()
    assert [piece async for piece in stream]
    return (first - started) * 1e6, (time.perf_counter() - started) * 1e6


if __name__ == "__main__":
    main()
