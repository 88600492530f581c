"""Measure what one judge call costs the client in processor time, beside the openai SDK.

    python tests/benchmarks/judge_client.py [--calls 2000] [--at-once 64] [--rounds 3] [--old FOLDER]

A stub in another process answers every chat completion at once with the same verdicts. *sdk*: the openai SDK
alone, by its typed method and by the raw one that ragtrace uses, and over its aiohttp transport; *judge*: all
of ragtrace (client, ladder, layers, checks of the reply); *cached*: the same question again, out of the cache
on disk; *old judge*: the ragtrace of another checkout, in a process of its own. Rounds are interleaved, so
that a noisy machine is noisy for all; the best round counts.

    git archive 28c6874 ragtrace | tar -x -C FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx
from openai import AsyncOpenAI, DefaultAioHttpClient, DefaultAsyncHttpxClient

from ragtrace.judge import CacheFile, CacheSettings, cached, open_judge
from ragtrace.judge.layers import document_of
from ragtrace.judge_forms import NumberedText, VerifyInput, VerifyReply
from ragtrace.ports import JudgeRequest

Call: TypeAlias = Callable[[int], Awaitable[Any]]

VERDICTS = [
    {"id": number, "chunks": [1], "quote": "The warranty lasts 24 months", "label": "supported", "reason": ""}
    for number in range(1, 7)
]
COMPLETION = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": json.dumps({"verdicts": VERDICTS})},
        }
    ],
    "usage": {"prompt_tokens": 1500, "completion_tokens": 200, "total_tokens": 1700},
}
CHUNKS = tuple(NumberedText(number=n, text="The warranty lasts 24 months. " * 33) for n in range(1, 6))

STUB = """
import asyncio, sys
body = sys.stdin.buffer.readline().strip()
head = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body)
async def serve(reader, writer):
    try:
        while True:
            lines = (await reader.readuntil(b"\\r\\n\\r\\n")).lower().split(b"\\r\\n")
            length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            writer.write(head + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--old", metavar="FOLDER", help="a checkout whose judge is measured, too")
    parser.add_argument("--judge-at", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge_at:
        print(json.dumps(asyncio.run(_judge_alone(options.judge_at, options))))
        return
    with running_stub() as url:
        asyncio.run(_measure(url, options))


@contextmanager
def running_stub() -> Iterator[str]:
    """Run the stub; yield its address."""
    with subprocess.Popen(
        [sys.executable, "-c", STUB], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stub:
        assert stub.stdin
        assert stub.stdout
        stub.stdin.write(json.dumps(COMPLETION).encode() + b"\n")
        stub.stdin.flush()
        try:
            yield f"http://127.0.0.1:{int(stub.stdout.readline())}/v1"
        finally:
            stub.kill()


async def _measure(url: str, options: argparse.Namespace) -> None:
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for name, cost in (await one_round(url, options)).items():
            best[name] = min(cost, best.get(name, cost))
    print(f"{options.calls} calls, {options.at_once} at once: CPU ms a call, calls a second")
    for name, (cpu_s, wall_s) in sorted(best.items()):
        print(f"{name:24} {cpu_s * 1000:6.2f} {1 / wall_s:8.0f}")


async def _judge_alone(url: str, options: argparse.Namespace) -> tuple[float, float]:
    judge = open_judge("openai:m", base_url=url, environ={}, max_concurrency=options.at_once)
    await judge.ask(_request(0))
    found = await _cost(lambda number: judge.ask(_request(number)), options)
    await judge.aclose()
    return found


def _old_judge(url: str, options: argparse.Namespace) -> tuple[float, float]:
    sizes = ("--calls", str(options.calls), "--at-once", str(options.at_once))
    done = subprocess.run(
        [sys.executable, __file__, "--judge-at", url, *sizes],
        env={**os.environ, "PYTHONPATH": options.old},
        stdout=subprocess.PIPE,
        check=True,
    )
    cpu_s, wall_s = json.loads(done.stdout)
    return cpu_s, wall_s


async def one_round(url: str, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Return for each way of calling the CPU seconds and the seconds of a call."""
    judge = open_judge("openai:m", base_url=url, environ={}, max_concurrency=options.at_once)
    sdk = {
        "sdk": AsyncOpenAI(api_key="k", base_url=url, http_client=DefaultAsyncHttpxClient()),
        "sdk over aiohttp": AsyncOpenAI(api_key="k", base_url=url, http_client=DefaultAioHttpClient()),
    }
    with tempfile.TemporaryDirectory() as folder:
        remembering = cached(judge, CacheFile(CacheSettings(path=Path(folder) / "judge.db")))
        await remembering.ask(_request(0))
        calls: dict[str, Call] = {
            "judge": lambda number: judge.ask(_request(number)),
            "cached": lambda number: remembering.ask(_request(0)),
        }
        for name, client in sdk.items():
            calls[name] = partial(_complete, client)
            calls[f"{name}, raw"] = partial(_post, client)
        found = {name: await _cost(call, options) for name, call in calls.items()}
        if options.old:
            found["old judge"] = await asyncio.to_thread(_old_judge, url, options)
        await remembering.aclose()
    for client in sdk.values():
        await client.close()
    return found


async def _complete(client: AsyncOpenAI, number: int) -> object:
    return await client.chat.completions.create(**_parameters(number))


async def _post(client: AsyncOpenAI, number: int) -> object:
    content = document_of(_parameters(number))
    return json.loads(
        (await client.post("/chat/completions", cast_to=httpx.Response, content=content)).content
    )


async def _cost(call: Call, options: argparse.Namespace) -> tuple[float, float]:
    numbers = iter(range(options.calls))

    async def work() -> None:
        for number in numbers:
            await call(number)

    cpu, wall = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(options.at_once):
            group.create_task(work())
    return (time.process_time() - cpu) / options.calls, (time.perf_counter() - wall) / options.calls


def _request(number: int) -> JudgeRequest[VerifyReply]:
    inputs = VerifyInput(
        chunks=CHUNKS, claims=tuple(NumberedText(number=n, text=f"Claim {number} {n}") for n in range(1, 7))
    )
    return JudgeRequest(
        step="verify",
        system="Check the claims.",
        user="\n".join(text.text for text in (*inputs.chunks, *inputs.claims)),
        reply_type=VerifyReply,
        inputs=inputs,
        max_output_tokens=1200,
    )


def _parameters(number: int) -> dict[str, Any]:
    request = _request(number)
    messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
    return {"model": "m", "messages": messages, "max_tokens": 1200, "temperature": 0}


if __name__ == "__main__":
    main()
