"""The judge and the embedder that options name, and what is said about them on stderr."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import click

from ragtrace.cli.options import EMBEDDING_MODEL
from ragtrace.cli.render import many, talk
from ragtrace.clock import SystemClock
from ragtrace.http.tls import ClientTls
from ragtrace.judge import (
    CacheSettings,
    Prices,
    default_cache_path,
    judge_named_by,
    load_prices,
    open_embedder,
    open_judge,
    spent_by,
)
from ragtrace.judge.base_url import secrets_in, sibling_url
from ragtrace.judge.batch_settings import BatchSettings
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Clock, Embedder, Judge

_ADDRESSES = ("OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT", "ANTHROPIC_BASE_URL")
_KEYS = ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "ANTHROPIC_API_KEY")

Around: TypeAlias = Callable[[Judge], Judge]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeChoice:
    """The judge that options name, or else the environment."""

    spec: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    cache: CacheSettings | None = None
    prices: Prices = field(default_factory=load_prices)
    batches: BatchSettings | None = None
    """It is asked in batches, if this is set."""
    tls: ClientTls | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def open(self, *, max_concurrency: int, around: Around | None = None) -> Judge:
        """Open the judge; ``around`` puts one more layer around every attempt to ask it.

        Raises:
            ConfigError: there is no such judge, or it lacks a setting.
            UsageError: an endpoint is named, but no model.
        """
        if self.spec is None and self.base_url is not None:
            raise click.UsageError("--base-url needs --judge openai:MODEL: which model is to judge?")
        return open_judge(
            self.spec or judge_named_by(os.environ),
            base_url=self.base_url,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            max_concurrency=max_concurrency,
            cache=self.cache,
            around=around,
            batches=self.batches,
            tls=self.tls,
            headers=self.headers,
            extra_body=self.extra_body,
        )

    def open_second(
        self, spec: str | None, *, max_concurrency: int, around: Around | None = None
    ) -> Judge | None:
        """Open a second judge, if one is named: one of the same kind is at the same endpoint.

        Raises:
            ConfigError: there is no such judge, or it lacks a setting.
        """
        if spec is None:
            return None
        other = JudgeChoice(spec=spec, timeout_s=self.timeout_s, cache=self.cache, prices=self.prices)
        at_the_same = replace(self, spec=spec, base_url=sibling_url(self.base_url, spec, os.environ))
        chosen = at_the_same if self.spec is not None and self.is_like(spec) else other
        return chosen.open(max_concurrency=max_concurrency, around=around)

    def is_like(self, spec: str) -> bool:
        """Whether a judge or embedder is of the same kind: then it is at the same endpoint."""
        named = self.spec or judge_named_by(os.environ)
        return named.partition(":")[0] == spec.partition(":")[0]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets that must not be printed, even if a server repeats them."""
        urls = (self.base_url, *(os.environ.get(name) for name in _ADDRESSES))
        logins = (secret for url in urls for secret in secrets_in(url))
        keys = (os.environ.get(name, "") for name in (self.api_key_env, *_KEYS))
        return (*keys, *self.headers.values(), *logins)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderChoice:
    """The embedder that an option names, or else the judge's endpoint."""

    spec: str | None

    def open(self, judge: JudgeChoice) -> Embedder | None:
        """Open the embedder; ``None`` if none is named and the judge's endpoint has none.

        Raises:
            ConfigError: there is no such embedder, or it lacks a setting.
        """
        spec = self.spec or self._beside(judge.spec or judge_named_by(os.environ))
        if spec is None:
            return None
        return open_embedder(
            spec,
            base_url=sibling_url(judge.base_url, spec, os.environ),
            api_key_env=judge.api_key_env,
            timeout_s=judge.timeout_s,
            tls=judge.tls,
            headers=judge.headers if judge.is_like(spec) else {},  # they may hold keys
        )

    def _beside(self, judge: str) -> str | None:
        return f"openai:{EMBEDDING_MODEL}" if judge.startswith("openai:") else None


def report_usage(judge: Judge, prices: Prices) -> None:
    """Say on stderr what a judge that costs anything was asked, and what that comes to."""
    spent = spent_by(judge)
    if judge.identity.computes:
        return
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    tokens = f"{spent.input_tokens:,}{cached} + {spent.output_tokens:,} tokens"
    cost = prices.cost_usd(spent, judge.identity)
    dollars = "cost unknown" if cost is None else f"${cost:.4f} at the prices of {prices.as_of}"
    talk(f"{many(spent.calls, 'call')} to {judge.identity.model}: {tokens}, {dollars}")
    warn_of_old_prices(prices, judge.identity)


def warn_of_old_prices(prices: Prices, who: JudgeIdentity, *, clock: Clock | None = None) -> None:
    """Say on stderr, once a run, that a price was looked up long ago."""
    warning = prices.too_old(who, now_ns=(clock or SystemClock()).now_ns())
    context = click.get_current_context(silent=True)
    said = context.find_root().meta.setdefault("ragtrace.old_prices", set()) if context else set()
    if warning and warning not in said:
        said.add(warning)
        talk(f"warning: {warning}")


def introduce(judge: Judge) -> None:
    """Say on stderr who judges, and how much that is worth where it is a heuristic."""
    talk(f"judge: {judge.identity.provider} ({judge.identity.model})")
    if judge.identity.provider == "lexical":
        talk(
            "  a heuristic of numbers, names and wording: it leaves many claims unjudged.\n"
            "  Do not base an alert on it alone. Use a model with --judge openai:MODEL."
        )


def cache_settings(use: bool | None, path: str | None) -> CacheSettings | None:
    """Return where replies are kept, if they are."""
    if use is False or (use is None and path is None):
        return None
    return CacheSettings(path=path or default_cache_path())


def is_free(choice: JudgeChoice, judges: Sequence[Judge | None]) -> bool:
    """Say whether judging costs nothing: by code, by a model that ragtrace serves itself, at a price of 0, or
    at an endpoint of this machine without a price."""
    return all(_is_free(choice, judge.identity) for judge in judges if judge is not None)


def _is_free(choice: JudgeChoice, who: JudgeIdentity) -> bool:
    if who.computes or who.provider == "llama":
        return True
    price = choice.prices.price_of(who)
    if price is not None:
        return price.input == price.output == 0
    return _is_here(_endpoint(choice, who))


def _endpoint(choice: JudgeChoice, who: JudgeIdentity) -> str:
    provider = (choice.spec or judge_named_by(os.environ)).partition(":")[0]
    named = choice.base_url if provider == who.provider else None
    return named or os.environ.get(f"{who.provider.upper()}_BASE_URL", "")


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
