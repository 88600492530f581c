"""Embedders behind OpenAI's API, and every server that speaks it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from ragtrace.errors import ConfigError, JudgeError, JudgeNonsense
from ragtrace.http.tls import ClientTls
from ragtrace.judge._http import OPENAI_URL, checked_url, openai_headers, untraced
from ragtrace.judge.base_url import BaseUrl
from ragtrace.judge.calls import CallRequest, JudgeCall, UsageDoubts, made
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.openai._client import Access, Credential
from ragtrace.judge.openai._credentials import openai_credential
from ragtrace.judge.openai._endpoint import Endpoint, RequestRejected
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Embedder, Embeddings

_TEXTS_A_CALL: Final = 128
_MOST_BYTES: Final = 32 << 20
"""The size limit of one reply: a full batch of vectors with 8,192 numbers."""

Vector: TypeAlias = tuple[float, ...]


class OpenAICompatibleEmbedder:
    """Asks ``/embeddings`` of an OpenAI-compatible endpoint, in batches.

    Bound to the event loop that asks it first.
    """

    def __init__(
        self,
        *,
        model: str,
        api_key: Credential,
        base_url: str = OPENAI_URL,
        timeout_s: float = 60.0,
        headers: Mapping[str, str] | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._model = model
        self._who = f"embedder {model} at {urlsplit(base_url).hostname}"
        self._doubts = UsageDoubts(self._who)
        access = Access(place=BaseUrl.of(base_url), credential=api_key, headers=headers or {}, tls=tls)
        self._endpoint = Endpoint(access, timeout_s=timeout_s, who=self._who, most_bytes=_MOST_BYTES)

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return JudgeIdentity(provider="openai", model=self._model)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text.

        Raises:
            JudgeError: no usable answer; the subclass tells whether a retry may help.
        """
        vectors: list[Vector] = []
        spent = Usage()
        try:
            for start in range(0, len(texts), _TEXTS_A_CALL):
                batch = texts[start : start + _TEXTS_A_CALL]
                async with made(self._asked(batch), self._doubts) as call:
                    try:
                        vectors += self._checked(await self._create(call), len(batch))
                    finally:
                        spent += call.spent
            if len({len(vector) for vector in vectors}) > 1:
                raise self._error("its vectors differ in length")
        except JudgeError as failed:
            failed.usage = spent
            raise
        return Embeddings(vectors=tuple(vectors), usage=spent)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    def _asked(self, texts: Sequence[str]) -> CallRequest:
        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        return CallRequest.by(body, output_tokens=0)

    async def _create(self, call: JudgeCall) -> Any:
        try:
            with untraced():
                answer = await self._endpoint.post("/embeddings", call)
        except RequestRejected as exc:
            raise self._error(f"it rejects the texts ({exc.what})") from None
        usage = getattr(answer, "usage", None)
        if isinstance(usage, Mapping):
            call.took(input_tokens=usage.get("prompt_tokens"))
        elif usage is not None:
            call.took_nonsense()
        return answer

    def _checked(self, answer: Any, expected: int) -> list[Vector]:
        try:
            by_index = {item.index: tuple(map(float, item.embedding)) for item in answer.data}
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise self._error("the reply is not a list of embeddings") from None
        if len(answer.data) != expected or set(by_index) != set(range(expected)):
            raise self._error("its vectors are not numbered as the texts are")
        vectors = [by_index[index] for index in range(expected)]
        if not all(vector and all(map(math.isfinite, vector)) for vector in vectors):
            raise self._error("a vector is empty, or not of finite numbers")
        return vectors

    def _error(self, what: str) -> JudgeError:
        return JudgeNonsense(f"{self._who}: {what}")


def open_openai_embedder(settings: JudgeSettings) -> Embedder:
    """Open ``openai:MODEL`` with the key and the base URL from the settings or the environment.

    Raises:
        ConfigError: the model, the key or a usable URL is missing.
    """
    if not settings.argument:
        raise ConfigError(
            "the embedder `openai` needs a model: write `openai:MODEL`,"
            " such as `openai:text-embedding-3-small`"
        )
    base_url = checked_url(settings, "OPENAI_BASE_URL", OPENAI_URL)
    return OpenAICompatibleEmbedder(
        model=settings.argument,
        api_key=openai_credential(settings, base_url),
        base_url=base_url,
        timeout_s=settings.timeout_s,
        headers=openai_headers(settings),
        tls=settings.tls,
    )
