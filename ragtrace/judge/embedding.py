"""Embedders by name: built-in ones, plug-ins (entry points ``ragtrace.embedders``), and addresses
(``./my_embedder.py:open_it`` or ``module:open_it``)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from ragtrace.http.tls import ClientTls
from ragtrace.judge.factory import OPENAI_KEY, JudgeSettings, check_headers
from ragtrace.judge.retry import Backoff, retried
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.plugins import PluginKind
from ragtrace.ports import Embedder, Embeddings

GROUP: Final = "ragtrace.embedders"
_EMBEDDERS: Final = PluginKind(
    what="embedder",
    group=GROUP,
    built_in={
        "azure": "ragtrace.judge.openai.azure:open_azure_embedder",
        "openai": "ragtrace.judge.openai.embedder:open_openai_embedder",
        "wordllama": "ragtrace.judge.wordllama:open_wordllama",
    },
    choices="`openai:MODEL`, `azure:DEPLOYMENT` or `wordllama`",
    members=("identity", "embed", "aclose"),
    port="ragtrace.ports.Embedder",
)
EmbedderFactory: TypeAlias = Callable[[JudgeSettings], Embedder]
"""The type of the group's entry points."""


def open_embedder(
    spec: str,
    *,
    base_url: str | None = None,
    api_key_env: str = OPENAI_KEY,
    timeout_s: float = 60.0,
    max_retries: int = 2,
    max_concurrency: int = 8,
    around: Callable[[Embedder], Embedder] | None = None,
    environ: Mapping[str, str] | None = None,
    tls: ClientTls | None = None,
    headers: Mapping[str, str] | None = None,
) -> Embedder:
    """Open an embedder.

    ``spec`` is ``openai:MODEL``, ``azure:DEPLOYMENT``, ``wordllama``, ``PLUGIN:ARGUMENT`` or an address.
    ``around`` adds one more layer, which sees every attempt.

    Raises:
        ConfigError: no such embedder, or a setting is missing; the message names it.
    """
    make, argument = _EMBEDDERS.factory(spec)
    settings = JudgeSettings(
        argument=argument,
        base_url=base_url,
        api_key_env=api_key_env,
        timeout_s=timeout_s,
        environ=os.environ if environ is None else environ,
        tls=tls,
        headers=headers or {},
    )
    check_headers(settings.headers)
    embedder = _EMBEDDERS.open(make, settings, spec)
    return _Careful(
        around(embedder) if around else embedder, Backoff(max_retries=max_retries), max_concurrency
    )


class _Careful:
    """Adds retries and a concurrency limit to an embedder."""

    def __init__(self, embedder: Embedder, backoff: Backoff, max_concurrency: int) -> None:
        self.inner = embedder
        self._backoff = backoff
        self._slots = asyncio.Semaphore(max_concurrency)

    @property
    def identity(self) -> JudgeIdentity:
        return self.inner.identity

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        if not texts:
            return Embeddings(vectors=(), usage=Usage())
        async with self._slots:
            return await retried(lambda: self.inner.embed(texts), self._backoff)

    async def aclose(self) -> None:
        await self.inner.aclose()
