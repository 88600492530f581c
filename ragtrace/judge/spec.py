"""The settings of a judge or an embedder, from whichever source they come: YAML, options or Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from ragtrace.http.tls import ClientTls
from ragtrace.judge._cache_file import CacheSettings
from ragtrace.judge.base_url import secrets_in, sibling_url
from ragtrace.judge.batch_settings import BatchSettings
from ragtrace.judge.cascade import ScreenSpec, screened
from ragtrace.judge.embedding import open_embedder
from ragtrace.judge.factory import OPENAI_KEY, OWN_KEYS, judge_named_by, key_variable, open_judge
from ragtrace.judge.replies import ReplyRules
from ragtrace.ports import Embedder, Judge

_SECRETS: Final = (*OWN_KEYS.values(), "AZURE_OPENAI_AD_TOKEN")
_ADDRESSES: Final = ("OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT", "ANTHROPIC_BASE_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """Which judge is asked, and how it is reached. `sibling` gives a second model with the same settings."""

    use: str
    """``lexical``, ``openai:MODEL``, ``anthropic:MODEL``, …: what `open_judge` takes."""
    screen: ScreenSpec | None = None
    """Decides the claims that it is sure of, so that this judge sees the others only."""
    base_url: str | None = None
    api_key_env: str = OPENAI_KEY
    api_key: str | None = field(default=None, repr=False)
    """The key itself, in place of an environment variable."""
    tls: ClientTls | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """They may hold keys."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0
    max_concurrency: int = 8
    cache: CacheSettings | None = None
    batches: BatchSettings | None = None
    max_retries: int = 2
    """Retries after ``JudgeUnavailable`` only."""
    reply_rules: ReplyRules = field(default_factory=ReplyRules)

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
        urls = (self.base_url, *(os.environ.get(name) for name in _ADDRESSES))
        logins = (secret for url in urls for secret in secrets_in(url))
        keys = (os.environ.get(name, "") for name in (self.api_key_env, *_SECRETS))
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
        base = self if self.kind == use.partition(":")[0] else self._without_endpoint()
        shared: dict[str, Any] = {} if base_url is None else {"headers": {}, "extra_body": {}}
        url = base_url or sibling_url(base.base_url, use, os.environ)
        if own.get("api_key_env") and "api_key" not in own:
            own["api_key"] = None
        return replace(base, **{"screen": None, **shared, **own, "use": use, "base_url": url})

    def _without_endpoint(self) -> JudgeSpec:
        return replace(
            self, base_url=None, api_key_env=OPENAI_KEY, api_key=None, headers={}, extra_body={}, batches=None
        )

    def open(self, around: Callable[[Judge], Judge] | None = None) -> Judge:
        """Open the judge; ``around`` puts one more layer around every attempt to ask it, not its screen.

        Raises:
            ConfigError: there is no such judge or screen, or it lacks a setting.
        """
        judge = self._open_asked(around)
        return screened(judge, open_judge(self.screen.use), self.screen) if self.screen else judge

    def _open_asked(self, around: Callable[[Judge], Judge] | None) -> Judge:
        return open_judge(
            self.use,
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            max_concurrency=self.max_concurrency,
            cache=self.cache,
            around=around,
            environ=self._environ(),
            tls=self.tls,
            batches=self.batches,
            headers=self.headers,
            extra_body=self.extra_body,
            max_retries=self.max_retries,
            reply_rules=self.reply_rules,
        )

    def open_embedder(self, around: Callable[[Embedder], Embedder] | None = None) -> Embedder:
        """Open it as an embedder, which takes neither a cache nor body parameters.

        Raises:
            ConfigError: there is no such embedder, or it lacks a setting.
        """
        return open_embedder(
            self.use,
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            max_concurrency=self.max_concurrency,
            around=around,
            environ=self._environ(),
            tls=self.tls,
            headers=self.headers,
        )

    def _environ(self) -> Mapping[str, str]:
        """Return where judges look for their keys, including these settings."""
        if self.api_key is None:
            return os.environ
        return {**os.environ, **dict.fromkeys((self.api_key_env, *OWN_KEYS.values()), self.api_key)}
