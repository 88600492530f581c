"""Judges and embedders by name, and their settings from whichever source they come: YAML, options or Python.

Built-in ones, plug-ins (entry points ``ragtrace.judges`` and ``ragtrace.embedders``), and addresses
(``./my_judge.py:open_it`` or ``module:open_it``).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

from ragtrace.errors import ConfigError
from ragtrace.http import Backoff, ClientTls
from ragtrace.judge.cache import CacheFile, cached
from ragtrace.judge.layers import Paced, Retrying, ScreenSpec, retried, screened
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.plugins import PluginKind
from ragtrace.ports import Embedder, Embeddings, Judge

DEFAULT_MODEL: Final = "gpt-4o-mini"
OPENAI_KEY: Final = "OPENAI_API_KEY"
"""The default variable of the key; judges of other providers use their own variable instead."""
OWN_KEYS: Final = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
"""The variables of these, by kind."""
MOST_REQUESTS: Final = 50_000
"""In a batch, at OpenAI."""
_SECRETS: Final = (*OWN_KEYS.values(), "AZURE_OPENAI_AD_TOKEN")
_ADDRESSES: Final = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "azure": "AZURE_OPENAI_ENDPOINT",
    "openai": "OPENAI_BASE_URL",
}
_WHOLE_ASK: Final = 5
"""A judge request, with its dialect steps and correction, may take this many times the time-out of one."""
_WITHOUT_ENDPOINT: Final = ("lexical", "nli", "scripted")
_OURS: Final = ("model", "messages", "stream", "n")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_JUDGES: Final = PluginKind(
    what="judge",
    group="ragtrace.judges",
    built_in={
        "anthropic": "ragtrace.judge.anthropic:open_anthropic",
        "azure": "ragtrace.judge.openai:open_azure",
        "lexical": "ragtrace.judge.lexical:open_lexical",
        "nli": "ragtrace.judge.nli:open_nli",
        "openai": "ragtrace.judge.openai:open_openai",
        "scripted": "ragtrace.judge.scripted:open_scripted",
    },
    choices=(
        "`lexical`, `openai:MODEL`, `azure:DEPLOYMENT`, `anthropic:MODEL`, `nli:FOLDER` or `scripted:PATH`"
    ),
    members=("identity", "ask", "aclose"),
    port="ragtrace.ports.Judge",
)
_EMBEDDERS: Final = PluginKind(
    what="embedder",
    group="ragtrace.embedders",
    built_in={
        "azure": "ragtrace.judge.openai:open_azure_embedder",
        "openai": "ragtrace.judge.openai:open_openai_embedder",
        "wordllama": "ragtrace.judge.wordllama:open_wordllama",
    },
    choices="`openai:MODEL`, `azure:DEPLOYMENT` or `wordllama`",
    members=("identity", "embed", "aclose"),
    port="ragtrace.ports.Embedder",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """Settings of batched requests, within OpenAI's limits
    (https://platform.openai.com/docs/api-reference/batch/create)."""

    path: Path
    """The file that maps requests to batches; each judge adds its own suffix to the name."""
    poll_s: float = 30.0
    """Seconds between polls. A batch is sent after this long without a new request (5 s at most)."""
    most_requests: int = MOST_REQUESTS
    """Requests in a batch."""
    most_bytes: int = 200_000_000
    """Size of its file."""
    tell: Callable[[str], None] = lambda _: None
    """Receives progress messages: batches that are sent, continue or end."""

    def path_of(self, judge: str) -> Path:
        """Return the path for one judge, so that judges never share replies."""
        part = hashlib.sha256(judge.encode()).hexdigest()[:8]
        return self.path.with_name(f"{self.path.stem}.{part}.batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The settings that open a judge or an embedder: what a plug-in's factory gets."""

    argument: str
    """The part after the colon: the model of ``openai:MODEL``, the file of ``scripted:PATH``."""
    base_url: str | None = None
    """The endpoint, for judges that have one."""
    api_key_env: str = OPENAI_KEY
    """The environment variable that holds the key."""
    timeout_s: float = 60.0
    """For one request; an answer may take several."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    tls: ClientTls | None = None
    """Replaces the system's certificates."""
    batches: BatchSettings | None = None
    """If set, requests are sent in batches, at half the price and in hours. Only `openai:MODEL` can."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to each request; they override ragtrace's own headers. They may hold keys."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Extra body parameters; they override ours, and are part of the evaluator's version."""

    @property
    def parameters(self) -> str:
        """A digest of the extra body parameters; empty if there are none."""
        if not self.extra_body:
            return ""
        text = json.dumps(self.extra_body, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def open_judge(spec: str, *, around: Callable[[Judge], Judge] | None = None, **settings: Any) -> Judge:
    """Open the judge with this name.

    Args:
        spec: ``lexical``, ``openai:MODEL``, ``nli:FOLDER``, ``PLUGIN:ARGUMENT``, …: see docs/judges.md.
        around: One more layer, which sees every attempt.
        settings: Fields of `JudgeSpec`.

    Raises:
        ConfigError: no such judge, or a setting is missing.
    """
    return JudgeSpec(use=spec, **settings).open(around)


def open_embedder(
    spec: str, *, around: Callable[[Embedder], Embedder] | None = None, **settings: Any
) -> Embedder:
    """Open an embedder: ``openai:MODEL``, ``azure:DEPLOYMENT``, ``wordllama``, ``PLUGIN:ARGUMENT`` or an
    address.

    ``around`` adds one more layer, which sees every attempt; ``settings`` are fields of `JudgeSpec`.

    Raises:
        ConfigError: no such embedder, or a setting is missing; the message names it.
    """
    return JudgeSpec(use=spec, **settings).open_embedder(around)


class _CarefulEmbedder:
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


def check_headers(headers: Mapping[str, str]) -> None:
    """Check that headers can be sent.

    Raises:
        ConfigError: one cannot. The message does not quote it, since headers hold keys.
    """
    for number, (name, value) in enumerate(headers.items(), 1):
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"header {number} cannot be sent: write printable ASCII, on one line")


def login_of(url: SplitResult) -> str:
    """Return the ``authorization`` header for the user and password of a URL; empty if it has none."""
    if url.username is None:
        return ""
    words = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


def key_variable(kind: str, named: str) -> str:
    """Return the variable with the key of a kind of judge: the named one, or its own if none was named."""
    return OWN_KEYS.get(kind, OPENAI_KEY) if named == OPENAI_KEY else named


def judge_named_by(environ: Mapping[str, str]) -> str:
    """Return the name of the environment's judge for `open_judge`, ``lexical`` by default.

    ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` names one; its model is ``RAGTRACE_JUDGE_MODEL``.
    """
    if environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"):
        return f"openai:{environ.get('RAGTRACE_JUDGE_MODEL') or DEFAULT_MODEL}"
    return "lexical"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec(JudgeSettings):
    """Which judge is asked, and how it is reached. `sibling` gives a second model with the same settings."""

    use: str
    """``lexical``, ``openai:MODEL``, ``anthropic:MODEL``, …: what `open_judge` takes."""
    argument: str = ""
    """Not set: it is part of ``use``."""
    screen: ScreenSpec | None = None
    """Decides the claims that it is sure of, so that this judge sees the others only."""
    api_key: str | None = field(default=None, repr=False)
    """The key itself, in place of an environment variable."""
    max_concurrency: int = 8
    cache: Path | None = None
    """The file with replies (content on disk). Judges that compute need none."""
    max_retries: int = 2
    """Retries after ``JudgeUnavailable`` only."""

    @classmethod
    def of_environment(cls, **settings: Any) -> Self:
        """Return the judge that the environment names, ``lexical`` by default, with further settings."""
        return cls(use=judge_named_by(os.environ), **settings)

    @property
    def kind(self) -> str:
        """The part of ``use`` before the colon."""
        return self.use.partition(":")[0]

    @property
    def key_place(self) -> str:
        """Where the key is read from, for messages; empty if the judge needs none."""
        if self.kind not in ("openai", *OWN_KEYS):
            return ""
        return "`judge.api_key`" if self.api_key else key_variable(self.kind, self.api_key_env)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets that must not be printed, even if a server repeats them."""
        urls = (self.base_url, *(self.environ.get(name) for name in _ADDRESSES.values()))
        keys = (self.environ.get(name, "") for name in (self.api_key_env, *_SECRETS))
        found = [self.api_key or "", *keys, *self.headers.values()]
        for url in map(urlsplit, filter(None, urls)):
            if url.password is not None:
                found += url.password, unquote(url.password), login_of(url).removeprefix("Basic ")
        return tuple(found)

    def sibling(self, use: str, *, base_url: str | None = None, **own: Any) -> JudgeSpec:
        """Return the settings of another model for the same answers.

        A setting that is not given is as of this judge. But a model of another kind takes neither its
        endpoint nor its key, and headers and body parameters go to the same endpoint only: they may hold
        keys. It has no screen: it is asked where the first judge is not believed.

        Args:
            use: The other model.
            base_url: Its endpoint, if that is another one.
            own: Other settings of its own.
        """
        base = self
        elsewhere: dict[str, Any] = {"headers": {}, "extra_body": {}}
        if self.kind != use.partition(":")[0]:
            base = replace(
                self, base_url=None, api_key_env=OPENAI_KEY, api_key=None, batches=None, **elsewhere
            )
        shared = {} if base_url is None else elsewhere
        if own.get("api_key_env") and "api_key" not in own:
            own["api_key"] = None
        url = base_url or base.base_url
        return replace(base, **{"screen": None, **shared, **own, "use": use, "base_url": url})

    def open(self, around: Callable[[Judge], Judge] | None = None) -> Judge:
        """Open the judge; ``around`` puts one more layer around every attempt to ask it, not its screen.

        Raises:
            ConfigError: there is no such judge or screen, or it lacks a setting.
        """
        kind, limit = self.kind, self.max_concurrency
        if self.batches is not None and kind != "openai":
            raise ConfigError(
                f"the judge {self.use!r} cannot be asked in batches: only `openai:MODEL` can, where there is"
                " OpenAI's Batch API"
            )
        if kind in _WITHOUT_ENDPOINT and (self.headers or self.extra_body):
            raise ConfigError(f"the judge `{kind}` has no endpoint: leave out `headers` and `extra_body`")
        if ours := next((name for name in _OURS if name in self.extra_body), None):
            raise ConfigError(f"`extra_body` cannot set {ours!r}: ragtrace sets it")
        judge: Judge = self._opened(_JUDGES)
        # a judge may set limits of its own
        timeout_s = _WHOLE_ASK * max(self.timeout_s, getattr(judge, "least_timeout_s", 0.0))
        limit = MOST_REQUESTS if self.batches else min(limit, getattr(judge, "most_at_once", limit))
        judge = Paced(judge, limit, timeout_s)
        if around:
            judge = around(judge)
        judge = Retrying(judge, Backoff(max_retries=self.max_retries), max_concurrency=limit)
        if self.cache and not judge.identity.computes:
            # elsewhere the same name may be another model
            judge = cached(judge, CacheFile(self.cache), place=f"{self.use} {self._endpoint}")
        return screened(judge, open_judge(self.screen.use), self.screen) if self.screen else judge

    def open_embedder(self, around: Callable[[Embedder], Embedder] | None = None) -> Embedder:
        """Open it as an embedder, which takes neither a cache nor body parameters.

        Raises:
            ConfigError: there is no such embedder, or it lacks a setting.
        """
        embedder: Embedder = self._opened(_EMBEDDERS)
        backoff = Backoff(max_retries=self.max_retries)
        return _CarefulEmbedder(around(embedder) if around else embedder, backoff, self.max_concurrency)

    def _opened(self, kind: PluginKind) -> Any:
        check_headers(self.headers)
        make, argument = kind.factory(self.use)
        keys = dict.fromkeys((self.api_key_env, *OWN_KEYS.values()), self.api_key) if self.api_key else {}
        environ = {**self.environ, **keys} if keys else self.environ
        return kind.open(make, replace(self, argument=argument, environ=environ), self.use)

    @property
    def _endpoint(self) -> str:
        """Host, port and path of the endpoint, without user and password."""
        variable = _ADDRESSES.get(self.kind, f"{self.kind.upper()}_BASE_URL")
        url = urlsplit(self.base_url or self.environ.get(variable) or "")
        return f"{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"
