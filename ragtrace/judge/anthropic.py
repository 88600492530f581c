"""A judge behind Anthropic's Messages API (extra ``anthropic``).

The model must call a tool whose input schema is the form of the reply. If an endpoint does not support that,
the schema is in the instructions. Anthropic's routes for OpenAI's protocol are not used: they cache no
prompts, ignore forms, and are not meant for production.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeNonsense
from ragtrace.extras import install_command
from ragtrace.http import ClientTls, client_options
from ragtrace.judge.endpoint import (
    SDK_WRITES,
    Access,
    RequestRejected,
    checked_url,
    key_in,
    says_who_asks,
    unusable_proxy,
)
from ragtrace.judge.layers import JudgeCall
from ragtrace.judge.openai import Completion, Dialect, Exchange, LanguageModelJudge, OutputMode, ReplyKind
from ragtrace.judge.replies import reply_schema
from ragtrace.judge.spec import BaseUrl, JudgeSettings, key_variable
from ragtrace.ports import Judge, JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)

ANTHROPIC_URL: Final = "https://api.anthropic.com"
_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")


def open_anthropic(settings: JudgeSettings) -> Judge:
    """Open ``anthropic:MODEL`` with ``ANTHROPIC_API_KEY``, or the key that the settings name.

    Raises:
        ConfigError: the model, the key, a usable URL or the extra is missing.
    """
    if not settings.argument:
        raise ConfigError("the judge `anthropic` needs a model: write `anthropic:MODEL`")
    variable = key_variable("anthropic", settings.api_key_env)
    key, url = key_in(settings, variable), checked_url(settings, "ANTHROPIC_BASE_URL", ANTHROPIC_URL)
    if says_who_asks(settings, url):
        key = ""
    elif not key:
        raise ConfigError(f"the judge needs a key: set the environment variable {variable}")
    access = MessagesAccess(place=BaseUrl.of(url), credential=key, headers=settings.headers, tls=settings.tls)
    return LanguageModelJudge(settings, access, provider="anthropic", dialect=_Dialect(), exchange=_Exchange)


class MessagesAccess(Access):
    """Where an endpoint with the Messages API is, and who asks."""

    def open(self, *, timeout_s: float, most_bytes: int) -> tuple[Any, Any]:
        """Open the client of Anthropic's SDK and the HTTP client beneath it, as `Access.open` does.

        Raises:
            ConfigError: the SDK is not installed, or the environment's proxy cannot be used.
        """
        try:
            import anthropic  # takes a second
        except ImportError as exc:
            message = "the judge `anthropic` needs its SDK, which is not installed"
            raise ConfigError(f"{message}: {install_command('anthropic')}") from exc
        key = str(self.credential)
        headers: dict[str, Any] = {
            # the SDK sends a key in either, and takes one from the environment
            **({} if key else dict.fromkeys(("authorization", "x-api-key"), anthropic.Omit())),
            **self.place.authorization(""),
            **{name.lower(): value for name, value in self.headers.items()},
        }
        try:
            http = anthropic.DefaultAsyncHttpxClient(
                **client_options(most_bytes),
                verify=(self.tls or ClientTls()).context(),
                timeout=anthropic.Timeout(None, connect=5.0),
            )
        except (ImportError, ValueError):  # not chained: it quotes the proxy's URL, which may hold a password
            raise ConfigError(unusable_proxy()) from None
        sdk = anthropic.AsyncAnthropic(
            api_key=key or "none",
            base_url=self.place.url,
            default_headers={SDK_WRITES.get(name, name): value for name, value in headers.items()},
            default_query=dict(parse_qsl(self.place.query, keep_blank_values=True)),
            http_client=http,
            max_retries=0,
            timeout=timeout_s,
        )
        return sdk, http


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect(Dialect):
    output_mode: OutputMode = OutputMode.TOOLS
    system_role: bool = False
    """Instructions have a parameter of their own."""
    seed: bool = False
    json_mode: bool = False
    token_limits: tuple[str, ...] = ()
    likelihoods: None = None
    cache_marks: bool = True

    def after_rejection(self, rejected: RequestRejected, request: JudgeRequest[Any]) -> Dialect | None:
        if self.cache_marks and "cache_control" in rejected.complaint:
            return replace(self, cache_marks=False)
        return Dialect.after_rejection(self, rejected, request)

    def lowered(self) -> Dialect | None:
        return replace(self, output_mode=OutputMode.TEXT) if self.output_mode is OutputMode.TOOLS else None

    def with_room_to_reason(self, reasoning_tokens: int) -> None:
        """Return nothing: a request that lets the model think sets its limit itself."""

    def sampling(self, request: JudgeRequest[Any]) -> Mapping[str, float]:
        """Return the sampling parameters; by default, those of the likeliest reply."""
        wanted = request.sampling
        chosen = {
            "temperature": (wanted.temperature if wanted else 0.0) if self.temperature else None,
            "top_p": wanted.top_p if wanted and self.top_p else None,
        }
        return {name: value for name, value in chosen.items() if value is not None}


class _Exchange(Exchange[ReplyT]):
    path = "/v1/messages"
    dialect: _Dialect

    def body(self) -> dict[str, Any]:
        request, system = self.request, self.request.system
        form: dict[str, Any] = {}
        if self.kind is ReplyKind.JSON and self.dialect.output_mode is OutputMode.TOOLS:
            schema = reply_schema(request.reply_type, bounded=self.dialect.bounded)
            told = "Takes the whole of the reply."
            form["tools"] = [{"name": request.step, "description": told, "input_schema": schema}]
            form["tool_choice"] = {"type": "tool", "name": request.step}
        elif self.kind is ReplyKind.JSON:
            described = json.dumps(reply_schema(request.reply_type))
            system = f"{system}\n\nReply with one JSON object. Its JSON schema: {described}"
        if system:  # a prefix that the provider can cache
            mark = {"cache_control": {"type": "ephemeral"}} if self.dialect.cache_marks else {}
            form["system"] = [{"type": "text", "text": system, **mark}]
        asked = [("user", request.user), *self.correction]
        return {
            "model": self.judge.identity.model,
            "max_tokens": request.max_output_tokens,
            "messages": [{"role": role, "content": content} for role, content in asked],
            **form,
            **self.dialect.sampling(request),
            **self.judge.extra_body,
        }

    def adapt(self, rejected: RequestRejected) -> None:
        mode = self.dialect.output_mode
        super().adapt(rejected)
        if self.confirmed and self.dialect.output_mode is not mode:  # tools have worked before
            raise self.error(JudgeNonsense, f"it rejects the request ({rejected.what})")

    def completion(self, reply: Any, call: JudgeCall) -> Completion:
        _note_usage(reply, call)
        try:
            called = [json.dumps(block.input) for block in reply.content if block.type == "tool_use"]
            written = [block.text for block in reply.content if block.type == "text"]
            return Completion(
                text=called[0] if called else "".join(written),
                finish_reason="length" if reply.stop_reason in _CUT_OFF else reply.stop_reason,
                declined=reply.stop_reason == "refusal",
                likely=None,
                usage=call.usage,
            )
        except (AttributeError, TypeError, ValueError):  # it may be any JSON
            raise self.error(JudgeNonsense, "the reply is not a message of the API") from None


def _note_usage(message: Any, call: JudgeCall) -> None:
    """Record who answered and the usage, as a message reports it; it may be any JSON."""
    call.came_from(getattr(message, "model", None))
    usage = getattr(message, "usage", None)
    if isinstance(usage, Mapping):
        read, written = (usage.get(f"cache_{way}_input_tokens") or 0 for way in ("read", "creation"))
        thought = usage.get("output_tokens_details")
        call.took(
            input_tokens=_sum(usage.get("input_tokens"), read, written),
            output_tokens=usage.get("output_tokens"),
            cached_tokens=read,
            reasoning_tokens=(thought.get("thinking_tokens") or 0) if isinstance(thought, Mapping) else 0,
        )
    elif usage is not None:
        call.took_nonsense()


def _sum(*parts: object) -> object:
    """Sum the counts that the API splits; return a value that is not a number unchanged."""
    total: int | float = 0
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | float) or part < 0:
            return part
        total += part
    return total
