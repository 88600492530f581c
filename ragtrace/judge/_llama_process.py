"""A GGUF file, served by xllamacpp in a child process on loopback.

Native code can crash, so it runs in its own process. The child always ends with its parent. A terminal's
Ctrl-C does not reach it, so that the parent can drain first.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout

_PROGRAM: Final = Path(__file__).with_name("llama_child.py")
_GRACE_S: Final = 5.0
_TAIL_BYTES: Final = 20_000
_NO_MEMORY: Final = ("insufficient memory", "failed to allocate", "failed to create context")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServer:
    """The settings of a served file."""

    path: Path
    n_ctx: int
    """Tokens of prompt and reply together, in each slot."""
    threads: int
    parallel: int
    """Concurrent requests."""
    load_timeout_s: float = 900.0


class LlamaProcess:
    """A child process that serves one file. The caller that starts it must stop it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, api_key: str) -> None:
        self._process = process
        self.url = url
        """``http://127.0.0.1:port``, without ``/v1``."""
        self.api_key = api_key

    @classmethod
    async def start(cls, serving: LlamaServer) -> LlamaProcess:
        """Start a child process and wait until the model is loaded.

        Raises:
            JudgeRefused: it cannot be loaded; the message says why.
            JudgeTimeout: it was not loaded in time.
        """
        api_key = secrets.token_urlsafe(24)
        with tempfile.TemporaryFile() as log:
            process = _spawn(log)
            try:
                _tell(process, serving, api_key)
                async with asyncio.timeout(serving.load_timeout_s):
                    said = await asyncio.to_thread(process.stdout.readline)  # type: ignore[union-attr]
                if not said:
                    raise _failure(serving, await asyncio.to_thread(process.wait), _tail(log))
                return cls(process, json.loads(said)["url"], api_key)
            except TimeoutError:
                _stop(process)
                raise JudgeTimeout(
                    f"judge llama: {serving.path.name} was not loaded within {serving.load_timeout_s:g} s"
                ) from None
            except BaseException:
                _stop(process)
                raise

    @property
    def ended(self) -> str | None:
        """A description of how it ended; ``None`` while it runs."""
        code = self._process.poll()
        return None if code is None else _how(code)

    async def ended_within(self, seconds: float) -> str | None:
        """Wait up to ``seconds`` for it to end, and describe how it did."""
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, seconds)
        return self.ended

    async def stop(self) -> None:
        """End the child."""
        await asyncio.to_thread(_stop, self._process)


def _spawn(log: IO[bytes]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        # -P: modules in the program's folder have names of the standard library
        [sys.executable, "-P", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # reaps the child after a crash
    return process


def _tell(process: subprocess.Popen[bytes], serving: LlamaServer, api_key: str) -> None:
    settings = {
        "path": str(serving.path),
        "n_ctx": serving.n_ctx,
        "threads": serving.threads,
        "parallel": serving.parallel,
        "api_key": api_key,
    }
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has already ended; its log says why
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def _failure(serving: LlamaServer, code: int, log: str) -> JudgeError:
    what = f"judge llama: {serving.path} cannot be served: "
    if any(sign in log for sign in _NO_MEMORY) or code == -signal.SIGKILL:
        return JudgeRefused(
            f"{what}there is not enough memory for it with n_ctx={serving.n_ctx} and"
            f" parallel={serving.parallel}: lower them, or choose a smaller model"
        )
    return JudgeRefused(f"{what}{_first_complaint(log) or _how(code)}")


def _first_complaint(log: str) -> str | None:
    """Return the first error that llama.cpp wrote: ``0.00.037.272 E llama_model_load: error loading …``."""
    found = (line.partition(" E ")[2] for line in log.splitlines() if " E " in line[:20])
    return next((line.partition(": ")[2][:300] for line in found), None)


def _how(code: int) -> str:
    return f"its process ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}"


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, 2)
    log.seek(max(0, size - _TAIL_BYTES))
    return log.read().decode(errors="replace")
