"""Judges by name: built-in ones, plug-ins (entry points ``ragtrace.judges``), and addresses
(``./my_judge.py:open_it`` or ``module:open_it``)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from ragtrace.errors import ConfigError
from ragtrace.http.tls import ClientTls
from ragtrace.judge._adaptive_limit import adaptively_limited
from ragtrace.judge._cache_file import CacheFile, CacheSettings
from ragtrace.judge._usage import metered
from ragtrace.judge.batch_settings import MOST_REQUESTS, BatchSettings
from ragtrace.judge.cache import cached
from ragtrace.judge.layers import limited, timed
from ragtrace.judge.replies import ReplyRules
from ragtrace.judge.retry import Backoff, retrying
from ragtrace.plugins import PluginKind
from ragtrace.ports import Judge

GROUP = "ragtrace.judges"
_WHOLE_ASK = 5
"""A judge request, with its dialect steps and correction, may take this many times the time-out of one."""
DEFAULT_MODEL = "gpt-4o-mini"
OPENAI_KEY = "OPENAI_API_KEY"
"""The default variable of the key; judges of other providers use their own variable instead."""
OWN_KEYS: Final = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
"""The variables of these, by kind."""
_TAKES_BATCHES = "openai"
_WITHOUT_ENDPOINT: Final = ("lexical", "nli", "scripted")
_OURS: Final = ("model", "messages", "stream", "n")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_JUDGES = PluginKind(
    what="judge",
    group=GROUP,
    built_in={
        "anthropic": "ragtrace.judge.anthropic:open_anthropic",
        "azure": "ragtrace.judge.openai.azure:open_azure",
        "lexical": "ragtrace.judge.lexical:open_lexical",
        "nli": "ragtrace.judge.nli.judge:open_nli",
        "openai": "ragtrace.judge.openai.judge:open_openai",
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


def key_variable(kind: str, named: str) -> str:
    """Return the variable with the key of a kind of judge: the named one, or its own if none was named."""
    return OWN_KEYS.get(kind, OPENAI_KEY) if named == OPENAI_KEY else named


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """The settings that open a judge."""

    argument: str
    """The part after the colon: the model of ``openai:MODEL``, the file of ``scripted:PATH``."""
    base_url: str | None = None
    api_key_env: str = OPENAI_KEY
    """The environment variable that holds the key."""
    timeout_s: float = 60.0
    """For one request."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    tls: ClientTls | None = None
    """Replaces the system's certificates."""
    batches: BatchSettings | None = None
    """If set, requests are sent in batches."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to each request; they override ragtrace's own headers. They may hold keys."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Extra body parameters; they override ours."""
    reply_rules: ReplyRules = field(default_factory=ReplyRules)

    @property
    def parameters(self) -> str:
        """A digest of the extra body parameters; empty if there are none."""
        if not self.extra_body:
            return ""
        text = json.dumps(self.extra_body, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@runtime_checkable
class SelfLimited(Protocol):
    """A judge that sets its own limits: its time-out is a minimum, its concurrency a maximum."""

    least_timeout_s: float
    """For one request."""
    most_at_once: int


JudgeFactory: TypeAlias = Callable[[JudgeSettings], Judge]
"""The type of the group's entry points."""


def open_judge(
    spec: str,
    *,
    base_url: str | None = None,
    api_key_env: str = OPENAI_KEY,
    timeout_s: float = 60.0,
    max_retries: int = 2,
    max_concurrency: int = 8,
    cache: CacheSettings | None = None,
    around: Callable[[Judge], Judge] | None = None,
    environ: Mapping[str, str] | None = None,
    tls: ClientTls | None = None,
    batches: BatchSettings | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    reply_rules: ReplyRules | None = None,
) -> Judge:
    """Open the judge with this name.

    Args:
        spec: ``lexical``, ``openai:MODEL``, ``nli:FOLDER``, ``PLUGIN:ARGUMENT``, …: see docs/judges.md.
        base_url: The endpoint, for judges that have one.
        api_key_env: The environment variable with the key.
        timeout_s: For one HTTP request; an answer may take several.
        max_retries: After ``JudgeUnavailable`` only, with exponential back-off.
        max_concurrency: Concurrent requests; fewer while the endpoint is overloaded.
        cache, around: The cache of replies, and one more layer, which sees every attempt.
        environ, tls: Replace the process environment and the system's certificates.
        batches: Send requests in batches, at half the price and in hours. Only `openai:MODEL` can.
        headers: Added to each request, before ragtrace's own. They may hold keys.
        extra_body: Body parameters, part of the evaluator's version and of the cache's keys.
        reply_rules: Whether replies are repaired, and how often one is sent back.

    Raises:
        ConfigError: no such judge, or a setting is missing.
    """
    make, argument = _JUDGES.factory(spec)
    settings = JudgeSettings(
        argument=argument,
        base_url=base_url,
        api_key_env=api_key_env,
        timeout_s=timeout_s,
        environ=os.environ if environ is None else environ,
        tls=tls,
        batches=batches,
        headers=headers or {},
        extra_body=extra_body or {},
        reply_rules=reply_rules or ReplyRules(),
    )
    _check_settings(spec, settings)
    layers = JudgeLayers(
        timeout_s=timeout_s,
        backoff=Backoff(max_retries=max_retries),
        max_concurrency=max_concurrency if batches is None else MOST_REQUESTS,
        cache=cache,
        place=_cache_place(spec, settings),
        around=around,
        is_adaptive=batches is None,
    )
    return layered(_JUDGES.open(make, settings, spec), layers)


def _cache_place(spec: str, settings: JudgeSettings) -> str:
    # a strict judge must not find what another one repaired
    strict = " strict" if settings.reply_rules.strict_json else ""
    return f"{spec} {_endpoint(spec, settings)}{strict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLayers:
    """The layers around a judge."""

    timeout_s: float
    """For one HTTP request; an answer may take several."""
    backoff: Backoff
    max_concurrency: int
    """Concurrent requests; a request that waits for its retry counts."""
    cache: CacheSettings | None = None
    """The cache of replies (content on disk). Local judges that compute get none."""
    place: str = ""
    """The judge's endpoint, for the cache: elsewhere the same name may be another model."""
    around: Callable[[Judge], Judge] | None = None
    """One more layer, which sees every attempt."""
    is_adaptive: bool = True
    """Send an overloaded endpoint fewer concurrent requests; not for batches: the provider queues them."""


def layered(judge: Judge, layers: JudgeLayers) -> Judge:
    """Add the layers: cache ← usage ← limit ← retry ← custom ← adaptive limit ← time-out ← judge."""
    timeout_s, max_concurrency = layers.timeout_s, layers.max_concurrency
    if isinstance(judge, SelfLimited):
        timeout_s = max(timeout_s, judge.least_timeout_s)
        max_concurrency = min(max_concurrency, judge.most_at_once)
    judge = timed(judge, _WHOLE_ASK * timeout_s)
    if layers.is_adaptive:
        judge = adaptively_limited(judge, max_concurrency)
    if layers.around:
        judge = layers.around(judge)
    judge = retrying(judge, layers.backoff)
    judge = limited(judge, max_concurrency)
    judge = metered(judge)
    if layers.cache and not judge.identity.computes:
        judge = cached(judge, CacheFile(layers.cache), place=layers.place)
    return judge


def _check_settings(spec: str, settings: JudgeSettings) -> None:
    _check_batches(spec, settings.batches)
    _check_further(spec.partition(":")[0], settings)


def _check_batches(spec: str, batches: BatchSettings | None) -> None:
    if batches is not None and spec.partition(":")[0] != _TAKES_BATCHES:
        raise ConfigError(
            f"the judge {spec!r} cannot be asked in batches: only `openai:MODEL` can, at OpenAI or at an"
            " endpoint that has its Batch API"
        )


def _check_further(kind: str, settings: JudgeSettings) -> None:
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
    variable = "AZURE_OPENAI_ENDPOINT" if kind == "azure" else f"{kind.upper()}_BASE_URL"
    url = urlsplit(settings.base_url or settings.environ.get(variable) or "")
    return f"{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"


def judge_named_by(environ: Mapping[str, str]) -> str:
    """Return the name of the environment's judge for `open_judge`, ``lexical`` by default.

    ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` names one; its model is ``RAGTRACE_JUDGE_MODEL``.
    """
    if environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"):
        return f"openai:{environ.get('RAGTRACE_JUDGE_MODEL') or DEFAULT_MODEL}"
    return "lexical"
