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
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ragtrace.errors import ConfigError
from ragtrace.http import Backoff, ClientTls
from ragtrace.judge.cache import CacheFile, CacheSettings, cached
from ragtrace.judge.layers import (
    AdaptivelyLimited,
    Limited,
    Metered,
    Retrying,
    ScreenSpec,
    Timed,
    retried,
    screened,
)
from ragtrace.judge.replies import ReplyRules
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.plugins import PluginKind
from ragtrace.ports import Embedder, Embeddings, Judge

_ROUTE: Final = re.compile(r"/(?:chat/completions|embeddings)$")
"""Paths at the end of URLs copied from a portal. They are removed: requests add the path."""
_DEPLOYMENT: Final = re.compile(r"(/openai/deployments/)([^/?#]+)(?:/(?:chat/completions|embeddings))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUrl:
    """A parsed base URL: its public and its secret parts."""

    url: str
    """Without user, password, query and slash at the end."""
    query: str = field(default="", repr=False)
    """Added to each request, for example Azure's ``api-version``."""
    login: str | None = field(default=None, repr=False)
    """The ``authorization`` header for the user and password of the URL."""

    @classmethod
    def of(cls, base_url: str) -> BaseUrl:
        """Parse a base URL."""
        url = urlsplit(base_url)
        path = _ROUTE.sub("", url.path.rstrip("/"))
        host = url.netloc.rpartition("@")[2]
        return cls(url=f"{url.scheme}://{host}{path}", query=url.query, login=_login(url))

    @property
    def is_deployment(self) -> bool:
        """Whether it is the classic address of an Azure deployment, which takes the key in another header."""
        return bool(re.search(r"/openai/deployments/[^/]+$", self.url))

    def authorization(self, api_key: str) -> Mapping[str, str]:
        """Return the authentication header: the login of the URL, else the key, else none."""
        if self.login is not None:
            return {"authorization": self.login}
        if not api_key:
            return {}
        return {"api-key": api_key} if self.is_deployment else {"authorization": f"Bearer {api_key}"}


def _login(url: SplitResult) -> str | None:
    if url.username is None:
        return None
    words = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


def secrets_in(base_url: str | None) -> tuple[str, ...]:
    """Return the secrets of a base URL, in every form in which an error message may repeat them."""
    url = urlsplit(base_url or "")
    if url.password is None:
        return ()
    return (url.password, unquote(url.password), (_login(url) or "").removeprefix("Basic "))


def sibling_url(base_url: str | None, spec: str, environ: Mapping[str, str]) -> str | None:
    """Return the base URL for a second model at the same endpoint.

    It is the same URL, except if it names an Azure deployment: then the deployment is replaced by the one
    with the model's name. The first deployment would answer with its own model.
    """
    kind, _, model = spec.partition(":")
    url = base_url or (environ.get("OPENAI_BASE_URL") if kind == "openai" else None)
    if not url or not model or not _DEPLOYMENT.search(url):
        return base_url
    return _DEPLOYMENT.sub(lambda found: f"{found[1]}{quote(model, safe='')}", url, count=1)


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
    gone={
        "llama": "serve the GGUF file with llama.cpp or Ollama, and name it `openai:MODEL` with the base URL"
        " of that server (docs/judges.md)"
    },
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
    reply_rules: ReplyRules = field(default_factory=ReplyRules)
    """Whether replies are repaired, and how often one is sent back."""

    @property
    def parameters(self) -> str:
        """A digest of the extra body parameters; empty if there are none."""
        if not self.extra_body:
            return ""
        text = json.dumps(self.extra_body, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


JudgeFactory: TypeAlias = Callable[[JudgeSettings], Judge]
"""The type of the entry points ``ragtrace.judges``."""
EmbedderFactory: TypeAlias = Callable[[JudgeSettings], Embedder]
"""The type of the entry points ``ragtrace.embedders``."""


def open_judge(
    spec: str,
    *,
    max_retries: int = 2,
    max_concurrency: int = 8,
    cache: CacheSettings | None = None,
    around: Callable[[Judge], Judge] | None = None,
    **settings: Any,
) -> Judge:
    """Open the judge with this name.

    Args:
        spec: ``lexical``, ``openai:MODEL``, ``nli:FOLDER``, ``PLUGIN:ARGUMENT``, …: see docs/judges.md.
        max_retries: After ``JudgeUnavailable`` only, with exponential back-off.
        max_concurrency: Concurrent requests; fewer while the endpoint is overloaded.
        cache: The cache of replies (content on disk). Judges that compute get none.
        around: One more layer, which sees every attempt.
        settings: Fields of `JudgeSettings`.

    Raises:
        ConfigError: no such judge, or a setting is missing.
    """
    make, argument = _JUDGES.factory(spec)
    given = _settings_of(argument, settings)
    _check_settings(spec, given)
    judge: Judge = _JUDGES.open(make, given, spec)
    timeout_s = given.timeout_s
    max_concurrency = max_concurrency if given.batches is None else MOST_REQUESTS
    # a judge may set limits of its own
    timeout_s = max(timeout_s, getattr(judge, "least_timeout_s", timeout_s))
    max_concurrency = min(max_concurrency, getattr(judge, "most_at_once", max_concurrency))
    judge = Timed(judge, _WHOLE_ASK * timeout_s)
    if given.batches is None:  # else the provider queues them
        judge = AdaptivelyLimited(judge, max_concurrency)
    if around:
        judge = around(judge)
    judge = Metered(Limited(Retrying(judge, Backoff(max_retries=max_retries)), max_concurrency))
    if cache and not judge.identity.computes:
        # elsewhere the same name may be another model; a strict judge must not find what another one repaired
        place = f"{spec} {_endpoint(spec, given)}{' strict' if given.reply_rules.strict_json else ''}"
        judge = cached(judge, CacheFile(cache), place=place)
    return judge


def open_embedder(
    spec: str,
    *,
    max_retries: int = 2,
    max_concurrency: int = 8,
    around: Callable[[Embedder], Embedder] | None = None,
    **settings: Any,
) -> Embedder:
    """Open an embedder: ``openai:MODEL``, ``azure:DEPLOYMENT``, ``wordllama``, ``PLUGIN:ARGUMENT`` or an
    address.

    ``around`` adds one more layer, which sees every attempt; ``settings`` are fields of `JudgeSettings`.

    Raises:
        ConfigError: no such embedder, or a setting is missing; the message names it.
    """
    make, argument = _EMBEDDERS.factory(spec)
    given = _settings_of(argument, settings)
    check_headers(given.headers)
    embedder: Embedder = _EMBEDDERS.open(make, given, spec)
    backoff = Backoff(max_retries=max_retries)
    return _CarefulEmbedder(around(embedder) if around else embedder, backoff, max_concurrency)


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


def _settings_of(argument: str, given: Mapping[str, Any]) -> JudgeSettings:
    return JudgeSettings(
        argument=argument, **{name: value for name, value in given.items() if value is not None}
    )


def _check_settings(spec: str, settings: JudgeSettings) -> None:
    kind = spec.partition(":")[0]
    if settings.batches is not None and kind != "openai":
        raise ConfigError(
            f"the judge {spec!r} cannot be asked in batches: only `openai:MODEL` can, at OpenAI or at an"
            " endpoint that has its Batch API"
        )
    if kind in _WITHOUT_ENDPOINT and (settings.headers or settings.extra_body):
        raise ConfigError(f"the judge `{kind}` has no endpoint: leave out `headers` and `extra_body`")
    if ours := next((name for name in _OURS if name in settings.extra_body), None):
        raise ConfigError(f"`extra_body` cannot set {ours!r}: ragtrace sets it")
    check_headers(settings.headers)


def check_headers(headers: Mapping[str, str]) -> None:
    """Check that headers can be sent.

    Raises:
        ConfigError: one cannot. The message does not quote it, since headers hold keys.
    """
    for number, (name, value) in enumerate(headers.items(), 1):
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"header {number} cannot be sent: write printable ASCII, on one line")


def _endpoint(spec: str, settings: JudgeSettings) -> str:
    """Return host, port and path of the endpoint, without user and password."""
    kind = spec.partition(":")[0]
    variable = _ADDRESSES.get(kind, f"{kind.upper()}_BASE_URL")
    url = urlsplit(settings.base_url or settings.environ.get(variable) or "")
    return f"{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"


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
    cache: CacheSettings | None = None
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
        logins = (secret for url in urls for secret in secrets_in(url))
        keys = (self.environ.get(name, "") for name in (self.api_key_env, *_SECRETS))
        return (self.api_key or "", *keys, *self.headers.values(), *logins)

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
        url = base_url or sibling_url(base.base_url, use, self.environ)
        if own.get("api_key_env") and "api_key" not in own:
            own["api_key"] = None
        return replace(base, **{"screen": None, **shared, **own, "use": use, "base_url": url})

    def open(self, around: Callable[[Judge], Judge] | None = None) -> Judge:
        """Open the judge; ``around`` puts one more layer around every attempt to ask it, not its screen.

        Raises:
            ConfigError: there is no such judge or screen, or it lacks a setting.
        """
        judge = open_judge(
            self.use, cache=self.cache, around=around, max_retries=self.max_retries, **self._shared()
        )
        return screened(judge, open_judge(self.screen.use), self.screen) if self.screen else judge

    def open_embedder(self, around: Callable[[Embedder], Embedder] | None = None) -> Embedder:
        """Open it as an embedder, which takes neither a cache nor body parameters.

        Raises:
            ConfigError: there is no such embedder, or it lacks a setting.
        """
        return open_embedder(self.use, around=around, **self._shared())

    def _shared(self) -> Mapping[str, Any]:
        given = {each.name: getattr(self, each.name) for each in fields(JudgeSettings)}
        del given["argument"]
        keys = dict.fromkeys((self.api_key_env, *OWN_KEYS.values()), self.api_key) if self.api_key else {}
        environ = {**self.environ, **keys} if keys else self.environ
        return {**given, "environ": environ, "max_concurrency": self.max_concurrency}
