"""``llama:PATH.gguf``: a local judge without an endpoint, a key or a compiler (extra ``llama``)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeUnavailable
from ragtrace.extras import install_command
from ragtrace.judge._llama_process import LlamaProcess, LlamaServer
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.openai.dialect import Likelihoods, OutputMode
from ragtrace.judge.openai.judge import OpenAICompatibleJudge
from ragtrace.judge.replies import ReplyRules
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_MAGIC: Final = b"GGUF"
_LEAST_TIMEOUT_S: Final = 600.0
"""For a small model on two cores, which reads 100 and writes 10 tokens a second."""
_CRASH_S: Final = 1.0
"""Time until a crash is known after the connection broke."""
_SETTINGS: Final = ("n_ctx", "threads", "parallel")


class LlamaJudge:
    """Serves a GGUF file in a child process and asks it.

    The first request starts the child; after a crash, the next request starts it again.
    """

    def __init__(
        self,
        serving: LlamaServer,
        *,
        timeout_s: float = _LEAST_TIMEOUT_S,
        extra_body: Mapping[str, Any] | None = None,
        reply_rules: ReplyRules | None = None,
        parameters: str = "",
    ) -> None:
        self._serving = serving
        self._extra_body = extra_body
        self._reply_rules = reply_rules
        self._parameters = parameters
        self.least_timeout_s = timeout_s
        """The time-out that a request needs; layers allow at least this."""
        self.most_at_once = serving.parallel
        """Concurrent requests. Any more would time out in the server's queue."""
        self._running: _Running | None = None
        self._starting = asyncio.Lock()  # two concurrent first requests would both start a child

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return JudgeIdentity(provider="llama", model=self._serving.path.name, parameters=self._parameters)

    @property
    def output_mode(self) -> OutputMode | None:
        """How the server accepts a schema; ``None`` until a request for JSON has succeeded."""
        return self._running.judge.output_mode if self._running else None

    @property
    def likelihoods(self) -> Likelihoods | None:
        """How the server returns log-probabilities; ``None`` until a request for them has succeeded."""
        return self._running.judge.likelihoods if self._running else None

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; the first one waits until the model is loaded.

        Raises:
            JudgeError: no usable answer; the subclass tells whether a retry may help.
        """
        running = await self._up()
        try:
            return await running.judge.ask(request)
        except JudgeUnavailable as exc:
            if ended := await running.process.ended_within(_CRASH_S):
                raise JudgeUnavailable(
                    f"judge llama: {self.identity.model} crashed while it answered: {ended}", usage=exc.usage
                ) from None
            raise

    async def aclose(self) -> None:
        """End the child."""
        async with self._starting:
            await self._down()

    async def _up(self) -> _Running:
        async with self._starting:
            if self._running is None or self._running.process.ended:
                await self._down()
                self._running = await self._start()
            return self._running

    async def _start(self) -> _Running:
        process = await LlamaProcess.start(self._serving)
        judge = OpenAICompatibleJudge(
            model=self.identity.model,
            api_key=process.api_key,
            base_url=f"{process.url}/v1",
            timeout_s=self.least_timeout_s,
            provider="llama",
            extra_body=self._extra_body,
            reply_rules=self._reply_rules,
            too_long_advice=f"it takes n_ctx={self._serving.n_ctx} tokens: raise it"
            f" (llama:PATH?n_ctx={2 * self._serving.n_ctx}), which costs memory",
        )
        return _Running(process=process, judge=judge)

    async def _down(self) -> None:
        running, self._running = self._running, None
        if running:
            try:
                await running.judge.aclose()
            finally:
                await running.process.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    process: LlamaProcess
    judge: OpenAICompatibleJudge


def open_llama(settings: JudgeSettings) -> Judge:
    """Open ``llama:PATH.gguf`` or ``llama:PATH.gguf?n_ctx=8192&threads=4&parallel=1``.

    Raises:
        ConfigError: the extra or the file is missing, it is not a GGUF file, or a setting is unknown.
    """
    if find_spec("xllamacpp") is None:
        raise ConfigError(f"the judge `llama` needs the extra of that name: {install_command('llama')}")
    serving = _serving(settings.argument)
    _check_file(serving.path)
    return LlamaJudge(
        serving,
        timeout_s=max(_LEAST_TIMEOUT_S, settings.timeout_s),
        extra_body=settings.extra_body,
        reply_rules=settings.reply_rules,
        parameters=settings.parameters,
    )


def _serving(argument: str) -> LlamaServer:
    path, _, query = argument.partition("?")
    if not path:
        raise ConfigError("the judge `llama` needs a model: write `llama:PATH.gguf`")
    given = {name: _positive(name, value) for name, value in parse_qsl(query, keep_blank_values=True)}
    return LlamaServer(
        path=Path(path).expanduser(),
        n_ctx=given.get("n_ctx", 8192),
        threads=given.get("threads", _cores()),
        parallel=given.get("parallel", 1),
    )


def _positive(name: str, value: str) -> int:
    if name not in _SETTINGS:
        raise ConfigError(f"the judge `llama` has no setting {name!r}: choose among {', '.join(_SETTINGS)}")
    if not (value.isascii() and value.isdigit() and 0 < int(value) <= 2**24):
        raise ConfigError(f"the judge `llama`: {name}={value!r} is not a whole number above 0")
    return int(value)


def _cores() -> int:
    """Return the cores to use; of many, half, since the others are mostly hyper-threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores <= 4 else cores // 2


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as exc:
        raise ConfigError(f"the judge's model {str(path)!r} cannot be read: {exc.strerror}") from exc
    if magic != _MAGIC:
        raise ConfigError(f"the judge's model {str(path)!r} is no GGUF file")
