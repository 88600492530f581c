"""What a judge's call costs the client in processor time, beside the SDK's typed method.

A stub in another process answers every chat completion at once with the same verdicts. *judge*: all of
ragtrace (client, ladder, layers, checks of the reply); *cached*: the same question again, out of the cache on
disk.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from ragtrace.judge import CacheFile, cached, open_judge
from ragtrace.judge_forms import NumberedText, VerifyInput, VerifyReply
from ragtrace.ports import JudgeRequest
from tests.benchmarks.recording import Measurement, versions_of

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


ROUNDS: Final = 5
CALLS: Final = 600
AT_ONCE: Final = 64
WHAT: Final = {"judge": "a judge's call, CPU", "cached": "a judge's call from the cache, CPU"}


def measure() -> list[Measurement]:
    with running_stub() as url:
        rounds = [asyncio.run(_one_round(url)) for _ in range(ROUNDS)]
    return [
        Measurement(
            what=what,
            alternative="the openai SDK's call",
            ratios=tuple(found[name] / found["sdk"] for found in rounds),
            versions=versions_of(["openai", "httpx"]),
        )
        for name, what in WHAT.items()
    ]


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


async def _one_round(url: str) -> dict[str, float]:
    """Return for each way of calling the CPU seconds of a call."""
    judge = open_judge("openai:m", base_url=url, environ={}, max_concurrency=AT_ONCE)
    sdk = AsyncOpenAI(api_key="k", base_url=url, http_client=DefaultAsyncHttpxClient())
    with tempfile.TemporaryDirectory() as folder:
        remembering = cached(judge, CacheFile(Path(folder) / "judge.db"))
        await remembering.ask(_request(0))
        calls: dict[str, Call] = {
            "judge": lambda number: judge.ask(_request(number)),
            "cached": lambda number: remembering.ask(_request(0)),
            "sdk": lambda number: sdk.chat.completions.create(**_parameters(number)),
        }
        found = {name: await _cost(call) for name, call in calls.items()}
        await remembering.aclose()
    await sdk.close()
    return found


async def _cost(call: Call) -> float:
    numbers = iter(range(CALLS))

    async def work() -> None:
        for number in numbers:
            await call(number)

    cpu = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return (time.process_time() - cpu) / CALLS


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
