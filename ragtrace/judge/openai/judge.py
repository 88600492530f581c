"""A judge behind any OpenAI-compatible endpoint: OpenAI, Azure, vLLM, Ollama, llama.cpp, gateways.

The judge learns on demand which parameters the endpoint accepts (see `dialect`). Judge calls are not traced:
if the application instruments OpenAI or HTTP, they would appear in its traces and ragtrace would judge them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeUnable
from ragtrace.http.tls import ClientTls
from ragtrace.judge._http import OPENAI_URL, checked_url, openai_headers, untraced
from ragtrace.judge.base_url import BaseUrl
from ragtrace.judge.calls import UsageDoubts
from ragtrace.judge.factory import JudgeSettings
from ragtrace.judge.openai._client import Access, Credential
from ragtrace.judge.openai._credentials import openai_credential
from ragtrace.judge.openai._endpoint import Endpoint, Transport
from ragtrace.judge.openai._exchange import Exchange, ReplyKind
from ragtrace.judge.openai.dialect import Dialect, Likelihoods, OutputMode
from ragtrace.judge.replies import ReplyRules
from ragtrace.model import JudgeIdentity
from ragtrace.plugins import load_plugin
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

_BATCHES = EntryPoint("batches", "ragtrace.judge.openai.batch:open_batch_judge", "ragtrace.judges")


class OpenAICompatibleJudge:
    """Asks a language model for JSON of a given form, for free text, or for the probability of a *yes*.

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
        extra_body: Mapping[str, Any] | None = None,
        reply_rules: ReplyRules | None = None,
        parameters: str = "",
        instead: Transport | None = None,
    ) -> None:
        """Take an endpoint, or ``instead`` of it another transport.

        Raises:
            ConfigError: the environment's proxy or the SDK's version cannot be used.
        """
        self._identity = JudgeIdentity(provider="openai", model=model, parameters=parameters)
        self._where = f"{model} at {urlsplit(base_url).hostname}"
        access = Access(place=BaseUrl.of(base_url), credential=api_key, headers=headers or {}, tls=tls)
        self._endpoint = instead or Endpoint(access, timeout_s=timeout_s, who=f"judge {self._where}")
        self._doubts = UsageDoubts(f"judge {self._where}")
        self._extra_body = extra_body or {}
        self._reply_rules = reply_rules or ReplyRules()
        limits = ("max_tokens", "max_completion_tokens")
        ours = base_url.startswith(OPENAI_URL)
        self._dialect = Dialect(token_limits=limits[::-1] if ours else limits)
        self._confirmed: frozenset[ReplyKind] = frozenset()

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return self._identity

    @property
    def output_mode(self) -> OutputMode | None:
        """How the endpoint accepts a schema; ``None`` until a request for JSON has succeeded."""
        return self._dialect.output_mode if ReplyKind.JSON in self._confirmed else None

    @property
    def likelihoods(self) -> Likelihoods | None:
        """How the endpoint returns log-probabilities; ``None`` until a request for them has succeeded."""
        return self._dialect.likelihoods if ReplyKind.YES in self._confirmed else None

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; ``usage.calls`` counts the requests that left the process.

        Raises:
            JudgeError: no usable answer; the subclass tells whether a retry may help.
        """
        kind = ReplyKind.of(request.reply_type)
        before = self._dialect
        exchange = Exchange(
            endpoint=self._endpoint,
            where=self._where,
            model=self._identity.model,
            request=request,
            kind=kind,
            dialect=before,
            confirmed=kind in self._confirmed,
            doubts=self._doubts,
            extra_body=self._extra_body,
            reply_rules=self._reply_rules,
        )
        try:
            with untraced():
                value = await exchange.run()
        except JudgeUnable:
            self._dialect = replace(self._dialect, likelihoods=None)
            raise
        if exchange.dialect is not before:
            self._dialect = self._dialect.learning(before, exchange.dialect)
        self._confirmed |= {kind}
        return JudgeReply(value=value, usage=exchange.spent)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def open_openai(settings: JudgeSettings) -> Judge:
    """Open ``openai:MODEL`` with the key and the base URL from the settings or the environment.

    Raises:
        ConfigError: the model, the key or a usable URL is missing.
    """
    if not settings.argument:
        raise ConfigError(
            "the judge `openai` needs a model: write `openai:MODEL`, such as `openai:gpt-4o-mini`"
        )
    base_url = checked_url(settings, "OPENAI_BASE_URL", OPENAI_URL)
    if settings.batches is not None:
        judge: Judge = load_plugin(_BATCHES)(settings, settings.batches, base_url)
        return judge
    return OpenAICompatibleJudge(
        model=settings.argument,
        api_key=openai_credential(settings, base_url),
        base_url=base_url,
        timeout_s=settings.timeout_s,
        headers=openai_headers(settings),
        tls=settings.tls,
        extra_body=settings.extra_body,
        reply_rules=settings.reply_rules,
        parameters=settings.parameters,
    )
