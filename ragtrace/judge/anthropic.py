"""A judge behind Anthropic's Messages API (extra ``anthropic``).

The model must call a tool whose input schema is the form of the reply. If an endpoint does not support that,
the schema is in the instructions. Anthropic's routes for OpenAI's protocol are not used: they cache no
prompts, ignore forms, and are not meant for production.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeNonsense
from ragtrace.extras import install_command
from ragtrace.judge.endpoint import Access, checked_url, key_in, says_who_asks
from ragtrace.judge.layers import JudgeCall
from ragtrace.judge.openai import Completion, Dialect, Exchange, LanguageModelJudge, OutputMode, ReplyKind
from ragtrace.judge.replies import reply_schema
from ragtrace.judge.spec import JudgeSettings, key_variable
from ragtrace.ports import Judge

ReplyT = TypeVar("ReplyT", bound=BaseModel)

ANTHROPIC_URL: Final = "https://api.anthropic.com"
_DIALECT: Final = Dialect(
    modes=(OutputMode.TOOLS, OutputMode.TEXT),
    refused=frozenset({"system", "seed", "json_object"}),  # instructions have a parameter of their own
    token_limits=(),
    likelihoods=(),
)
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
    is_told = says_who_asks(settings, url)
    if not key and not is_told:
        raise ConfigError(f"the judge needs a key: set the environment variable {variable}")
    if find_spec("anthropic") is None:
        raise ConfigError(
            f"the judge `anthropic` needs its SDK, which is not installed: {install_command('anthropic')}"
        )
    headers = settings.headers if is_told else {"x-api-key": key, **settings.headers}
    access = Access.to(url, headers, tls=settings.tls, sdk="anthropic")
    return LanguageModelJudge(settings, access, dialect=_DIALECT, exchange=_Exchange)


class _Exchange(Exchange[ReplyT]):
    path = "/v1/messages"

    def body(self) -> dict[str, Any]:
        request, system = self.request, self.request.system
        form: dict[str, Any] = {}
        if self.kind is ReplyKind.JSON and self.dialect.modes[0] is OutputMode.TOOLS:
            schema = reply_schema(request.reply_type, bounded=self.dialect.has_bounds)
            told = "Takes the whole of the reply."
            form["tools"] = [{"name": request.step, "description": told, "input_schema": schema}]
            form["tool_choice"] = {"type": "tool", "name": request.step}
        elif self.kind is ReplyKind.JSON:
            described = json.dumps(reply_schema(request.reply_type))
            system = f"{system}\n\nReply with one JSON object. Its JSON schema: {described}"
        if system:  # a prefix that the provider can cache
            block: dict[str, Any] = {"type": "text", "text": system}
            if "cache_control" not in self.dialect.refused:
                block["cache_control"] = {"type": "ephemeral"}
            form["system"] = [block]
        asked = [("user", request.user), *self.correction]
        return {
            "model": self.judge.identity.model,
            "max_tokens": request.max_output_tokens,
            "messages": [{"role": role, "content": content} for role, content in asked],
            **form,
            **self.dialect.sampling(request),
            **self.judge.extra_body,
        }

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
        read = usage.get("cache_read_input_tokens") or 0
        counted = (usage.get("input_tokens"), read, usage.get("cache_creation_input_tokens"))
        thought = usage.get("output_tokens_details")
        call.took(
            input_tokens=sum(each for each in counted if isinstance(each, int)),
            output_tokens=usage.get("output_tokens"),
            cached_tokens=read,
            reasoning_tokens=(thought.get("thinking_tokens") or 0) if isinstance(thought, Mapping) else 0,
        )
    elif usage is not None:
        call.took_nonsense()
