"""Embeddings without a key, a download or a network: wordllama's averaged word vectors (extra ``local``).

They capture related words, but neither word order nor negation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ragtrace.errors import ConfigError
from ragtrace.extras import install_command
from ragtrace.judge.spec import JudgeSettings
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Embedder, Embeddings

_MODEL: Final = "l2_supercat"


class WordLlamaEmbedder:
    """Averages the vectors of a text's words. The first request loads 19 MB in a thread."""

    identity = JudgeIdentity(provider="wordllama", model=f"{_MODEL}-256", computes=True)

    def __init__(self) -> None:
        self._model: Any = None
        self._loading = asyncio.Lock()  # two concurrent first requests would both load it

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text; a text without a known word has the zero vector."""
        async with self._loading:
            if self._model is None:
                self._model = await asyncio.to_thread(_load)
        vectors = await asyncio.to_thread(_embed, self._model, list(texts))
        return Embeddings(vectors=vectors, usage=Usage(calls=1))

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


def open_wordllama(settings: JudgeSettings) -> Embedder:
    """Open ``wordllama``.

    Raises:
        ConfigError: the extra is not installed.
    """
    try:
        with _root_logger_kept():
            import wordllama  # noqa: F401
    except ImportError as exc:
        raise ConfigError(
            f"the embedder `wordllama` needs the extra `local`: {install_command('local')}"
        ) from exc
    return WordLlamaEmbedder()


def _load() -> Any:
    with _root_logger_kept():
        import wordllama
    # the package's folder as the cache: it contains the weights and the tokenizer
    return wordllama.WordLlama.load(_MODEL, cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def _embed(model: Any, texts: list[str]) -> tuple[tuple[float, ...], ...]:
    known = [text.encode("utf-8", "replace").decode() for text in texts]  # lone surrogates have no UTF-8
    return tuple(tuple(vector) for vector in model.embed(known, return_np=False))


@contextmanager
def _root_logger_kept() -> Iterator[None]:
    # importing wordllama configures the root logger
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    guard = logging.NullHandler()
    root.addHandler(guard)
    try:
        yield
    finally:
        root.handlers, root.level = handlers, level
