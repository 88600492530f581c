"""Judges by name: the built-in ones, those of installed plug-ins (entry points ``ragtrace.judges``), and what
an address names (``./my_judge.py:open_it`` or ``module:open_it``)."""

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
from ragtrace.judge.retry import Backoff, retrying
from ragtrace.plugins import PluginKind
from ragtrace.ports import Judge

GROUP = "ragtrace.judges"
_WHOLE_ASK = 5
"""A request with its ladder and correction may take this many times the time-out of one."""
DEFAULT_MODEL = "gpt-4o-mini"
OPENAI_KEY = "OPENAI_API_KEY"
"""Where the key is unless one says otherwise; a judge of another provider takes its own variable instead."""
_TAKES_BATCHES = "openai"
_WITHOUT_ENDPOINT: Final = ("lexical", "scripted")
_OURS: Final = ("model", "messages", "stream", "n")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_JUDGES = PluginKind(
    what="judge",
    group=GROUP,
    built_in={
        "anthropic": "ragtrace.judge.anthropic:open_anthropic",
        "lexical": "ragtrace.judge.lexical:open_lexical",
        "llama": "ragtrace.judge.llama:open_llama",
        "openai": "ragtrace.judge.openai_compatible:open_openai",
        "scripted": "ragtrace.judge.scripted:open_scripted",
    },
    choices="`lexical`, `openai:MODEL`, `anthropic:MODEL`, `llama:PATH.gguf` or `scripted:PATH`",
    members=("identity", "ask", "aclose"),
    port="ragtrace.ports.Judge",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """What a judge is opened with."""

    argument: str
    """What stands behind the colon: the model of ``openai:MODEL``, the file of ``scripted:PATH``."""
    base_url: str | None = None
    api_key_env: str = OPENAI_KEY
    """The environment variable that holds the key."""
    timeout_s: float = 60.0
    """For one request."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    tls: ClientTls | None = None
    """Instead of the system's certificates."""
    batches: BatchSettings | None = None
    """Requests are sent in batches, if this is set."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Go along with each request, before our own. They may hold keys."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """What else each request says, over what we would say."""

    @property
    def parameters(self) -> str:
        """A digest of what else each request says; empty for nothing."""
        if not self.extra_body:
            return ""
        told = json.dumps(self.extra_body, sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@runtime_checkable
class SelfLimited(Protocol):
    """A judge that knows its own pace: it gets no less time, and no more requests at once."""

    least_timeout_s: float
    """For one request."""
    most_at_once: int


JudgeFactory: TypeAlias = Callable[[JudgeSettings], Judge]
"""What an entry point of the group gives."""


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
) -> Judge:
    """Open the judge that ``lexical``, ``openai:MODEL``, ``anthropic:MODEL``, ``llama:PATH.gguf``,
    ``scripted:PATH`` or ``PLUGIN:ARGUMENT`` names.

    Args:
        spec: Who.
        base_url: The endpoint, for judges that have one.
        api_key_env: The environment variable that holds the key.
        timeout_s: For one request; the whole of an answer may take several.
        max_retries: After ``JudgeUnavailable`` alone, with growing pauses.
        max_concurrency: Requests at once; fewer while the endpoint is overloaded.
        cache: Where replies are kept, if they are to be.
        around: Puts one more layer around the judge, which every single attempt passes.
        environ: Instead of the process's own environment.
        tls: Instead of the system's certificates.
        batches: Send its requests in batches, for half the price: `openai:MODEL` alone can. Its answers take
            hours.
        headers: Go along with each request, before our own. They may hold keys.
        extra_body: What else each request says: parameters of the server's own. They are part of the
            evaluator's version and of the cache's keys.

    Raises:
        ConfigError: no such judge, or it lacks a setting; the message names what to set.
    """
    make, argument = _JUDGES.factory(spec)
    if batches is not None and spec.partition(":")[0] != _TAKES_BATCHES:
        raise ConfigError(
            f"the judge {spec!r} cannot be asked in batches: only `openai:MODEL` can, at OpenAI or at an"
            " endpoint that has its Batch API"
        )
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
    )
    _check_further(spec.partition(":")[0], settings)
    layers = JudgeLayers(
        timeout_s=timeout_s,
        backoff=Backoff(max_retries=max_retries),
        max_concurrency=max_concurrency if batches is None else MOST_REQUESTS,
        cache=cache,
        place=f"{spec} {_endpoint(spec, settings)}",
        around=around,
        keeps_pace=batches is None,
    )
    return layered(_JUDGES.open(make, settings, spec), layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLayers:
    """What stands around a judge."""

    timeout_s: float
    """For one request of the judge; it may need several of them for one answer."""
    backoff: Backoff
    max_concurrency: int
    """Requests at once; one that waits for its retry keeps its place."""
    cache: CacheSettings | None = None
    """Where its replies are kept: content, on disk. A judge that computes needs none and gets none."""
    place: str = ""
    """Where the judge is, for the cache: the same model name means another model elsewhere."""
    around: Callable[[Judge], Judge] | None = None
    """One more layer, which every attempt passes."""
    keeps_pace: bool = True
    """Fewer requests at once while the endpoint is overloaded; a batch has a queue of its own there."""


def layered(judge: Judge, layers: JudgeLayers) -> Judge:
    """Put the layers around a judge: cache ← usage ← limit ← retry ← one's own ← pace ← time-out ← judge."""
    timeout_s, max_concurrency = layers.timeout_s, layers.max_concurrency
    if isinstance(judge, SelfLimited):
        timeout_s = max(timeout_s, judge.least_timeout_s)
        max_concurrency = min(max_concurrency, judge.most_at_once)
    judge = timed(judge, _WHOLE_ASK * timeout_s)
    if layers.keeps_pace:
        judge = adaptively_limited(judge, max_concurrency)
    if layers.around:
        judge = layers.around(judge)
    judge = retrying(judge, layers.backoff)
    judge = limited(judge, max_concurrency)
    judge = metered(judge)
    if layers.cache and not judge.identity.computes:
        judge = cached(judge, CacheFile(layers.cache), place=layers.place)
    return judge


def _check_further(kind: str, settings: JudgeSettings) -> None:
    if kind in _WITHOUT_ENDPOINT and (settings.headers or settings.extra_body):
        raise ConfigError(f"the judge `{kind}` has no endpoint: leave out `headers` and `extra_body`")
    if kind == "llama" and settings.headers:
        raise ConfigError("the judge `llama` is served by ragtrace itself: leave out `headers`")
    if ours := next((name for name in _OURS if name in settings.extra_body), None):
        raise ConfigError(f"`extra_body` cannot say {ours!r}: ragtrace itself does")
    check_headers(settings.headers)


def check_headers(headers: Mapping[str, str]) -> None:
    """See that headers can be sent.

    Raises:
        ConfigError: one cannot; it is not quoted, since headers hold keys.
    """
    for number, (name, value) in enumerate(headers.items(), 1):
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"header {number} cannot be sent: write printable ASCII, on one line")


def _endpoint(spec: str, settings: JudgeSettings) -> str:
    """Return host, port and path of the endpoint, without the user and password that a URL may carry."""
    variable = f"{spec.partition(':')[0].upper()}_BASE_URL"
    url = urlsplit(settings.base_url or settings.environ.get(variable) or "")
    return f"{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"


def judge_named_by(environ: Mapping[str, str]) -> str:
    """Return what `open_judge` takes for the judge that the environment names, ``lexical`` if none.

    ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` names one; its model is ``RAGTRACE_JUDGE_MODEL``.
    """
    if environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"):
        return f"openai:{environ.get('RAGTRACE_JUDGE_MODEL') or DEFAULT_MODEL}"
    return "lexical"
