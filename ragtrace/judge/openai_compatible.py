"""A judge behind any OpenAI-compatible endpoint: OpenAI, Azure, vLLM, Ollama, llama.cpp, gateways.

What the endpoint understands is probed by need and remembered (see `dialect`). Judge calls are not traced:
an application that instruments OpenAI or HTTP would otherwise find ragtrace's own calls in its traces, and
ragtrace would judge them. No error message carries a prompt, a reply or a key.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import BaseModel

from ragtrace.errors import ConfigError, JudgeCutOff, JudgeError, JudgeNonsense, JudgeRefused
from ragtrace.judge.dialect import Dialect, Rung
from ragtrace.judge.http import (
    OPENAI_URL,
    checked_url,
    failure_of,
    openai_client,
    openai_key,
    untraced,
    what_of,
)
from ragtrace.judge.opening import JudgeSettings
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply, reply_schema
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import Judge, JudgeReply, JudgeRequest

if TYPE_CHECKING:
    import openai
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion

__all__ = ["OpenAICompatibleJudge", "open_openai"]

ReplyT = TypeVar("ReplyT", bound=BaseModel)
Message: TypeAlias = tuple[str, str]
"""A role and a content."""

_TOO_LONG = re.compile(r"context[ _](?:length|size|window)", re.IGNORECASE)


class OpenAICompatibleJudge:
    """Asks a language model for JSON of a given form.

    Bound to the event loop in which it is first asked.
    """

    def __init__(
        self,
        *,
        model: str,
        api_key: str,
        base_url: str = OPENAI_URL,
        timeout_s: float = 60.0,
    ) -> None:
        self._client = openai_client(api_key=api_key, base_url=base_url, timeout_s=timeout_s)
        self._model = model
        self._where = f"{model} at {urlsplit(base_url).hostname}"
        limits = ("max_tokens", "max_completion_tokens")
        ours = base_url.startswith(OPENAI_URL)
        self._dialect = Dialect(token_limits=limits[::-1] if ours else limits)
        self._confirmed = False

    @property
    def identity(self) -> JudgeIdentity:
        """Who judges."""
        return JudgeIdentity(provider="openai", model=self._model)

    @property
    def rung(self) -> Rung | None:
        """How the endpoint takes a schema; ``None`` until a request succeeded."""
        return self._dialect.rung if self._confirmed else None

    async def probe(self) -> Rung:
        """Ask something small, and return the rung that worked.

        Raises:
            JudgeError: the endpoint gave no usable answer.
        """
        await self.ask(
            JudgeRequest(
                step="probe",
                system='Reply with the JSON object {"ready": true} and nothing else.',
                user="Are you ready?",
                reply_type=_Ready,
                inputs=_Ready(ready=True),
                max_output_tokens=64,
            )
        )
        return self._dialect.rung

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; ``usage.calls`` counts the requests that the endpoint answered.

        Raises:
            JudgeError: no usable answer; the subclass says whether asking later may help.
        """
        exchange = _Exchange(
            client=self._client,
            model=self._model,
            where=self._where,
            request=request,
            dialect=self._dialect,
            confirmed=self._confirmed,
        )
        with untraced():
            value = await exchange.run()
        self._dialect, self._confirmed = exchange.dialect, True
        return JudgeReply(value=value, usage=exchange.spent)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


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
    return OpenAICompatibleJudge(
        model=settings.argument,
        api_key=openai_key(settings, base_url),
        base_url=base_url,
        timeout_s=settings.timeout_s,
    )


class _Ready(BaseModel):
    ready: bool


@dataclass(slots=True, kw_only=True)
class _Exchange(Generic[ReplyT]):
    """One request on its way to an answer."""

    client: openai.AsyncOpenAI
    model: str
    where: str
    request: JudgeRequest[ReplyT]
    dialect: Dialect
    confirmed: bool
    """Whether the dialect has worked before."""
    spent: Usage = field(default_factory=Usage)
    correction: tuple[Message, ...] = ()

    async def run(self) -> ReplyT:
        while True:
            answer = await self._answer()
            if answer.finish_reason == "length":
                self._make_room(answer.usage)
                continue
            if answer.declined:
                raise self._error(
                    JudgeNonsense, "the model declined to reply, or a content filter stopped it"
                )
            try:
                return parse_reply(answer.text, self.request.reply_type)
            except NotJson as exc:
                if not self.confirmed and (lowered := self.dialect.lowered()):
                    self.dialect = lowered  # it took the parameter and ignored it
                else:
                    self._ask_to_correct(answer.text, exc)
            except InvalidReply as exc:
                self._ask_to_correct(answer.text, exc)

    async def _answer(self) -> _Answer:
        completion = await self._completion()
        try:
            answer = _Answer.of(completion)
        except (AttributeError, TypeError, IndexError):  # the client lets any JSON pass
            self.spent += Usage(calls=1)
            raise self._error(JudgeNonsense, "the reply is no chat completion") from None
        self.spent += answer.usage
        return answer

    async def _completion(self) -> ChatCompletion:
        import openai

        while True:
            try:
                completion: ChatCompletion = await self.client.chat.completions.create(
                    model=self.model,
                    messages=cast(Any, self._messages()),
                    **self.dialect.parameters(
                        self.request.step, self.request.reply_type, self.request.max_output_tokens
                    ),
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError) as exc:
                self.dialect = self._adapted(exc)
            except openai.APIError as exc:
                # the cause may quote the prompt or the key: it is not chained
                timeout_s = cast(float, self.client.timeout)
                raise failure_of(exc, where=self.where, timeout_s=timeout_s, usage=self.spent) from None
            except ValueError:
                raise self._error(JudgeNonsense, "the reply is no JSON document") from None
            else:
                return completion

    def _make_room(self, usage: Usage) -> None:
        roomier = self.dialect.with_room_to_reason(usage.reasoning_tokens)
        if roomier is None:
            raise self._error(JudgeCutOff, "the reply ended at the token limit")
        self.dialect = roomier

    def _messages(self) -> list[dict[str, str]]:
        system = self.request.system
        if self.dialect.rung in (Rung.JSON_OBJECT, Rung.TEXT):
            schema = json.dumps(reply_schema(self.request.reply_type))
            system = f"{system}\n\nThe JSON schema of the reply: {schema}"
        asked = [("system", system), ("user", self.request.user), *self.correction]
        return [{"role": role, "content": _encodable(content)} for role, content in asked]

    def _adapted(self, exc: openai.APIStatusError) -> Dialect:
        complaint = f"{exc.param} {exc.body if exc.body is not None else exc.message}"
        if exc.code == "content_filter":
            raise self._error(JudgeNonsense, "a content filter stopped the request") from None
        if _TOO_LONG.search(f"{exc.code} {complaint}"):
            raise self._error(
                JudgeNonsense, "the chunks are too long for it: serve the model with a larger context"
            ) from None
        adapted = self.dialect.after_rejection(complaint)
        if adapted is None:
            # what worked before is rejected now: then it is this request, not the endpoint
            kind = JudgeNonsense if self.confirmed else JudgeRefused
            raise self._error(kind, f"it rejects the request ({what_of(exc)})") from None
        return adapted

    def _ask_to_correct(self, text: str, fault: ValueError) -> None:
        if self.correction:
            raise self._error(JudgeNonsense, "the reply does not have the form that was asked for, twice")
        wish = f"Your reply is not valid: {fault}. Reply again with one complete, corrected JSON object."
        self.correction = (("assistant", text), ("user", wish))

    def _error(self, kind: type[JudgeError], what: str) -> JudgeError:
        return kind(f"judge {self.where}: {what}", usage=self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What matters of a chat completion."""

    text: str
    finish_reason: str
    declined: bool
    usage: Usage

    @classmethod
    def of(cls, completion: ChatCompletion) -> _Answer:
        choice = completion.choices[0]
        calls = [call for call in choice.message.tool_calls or () if call.type == "function"]
        return cls(
            text=calls[0].function.arguments if calls else choice.message.content or "",
            finish_reason=choice.finish_reason,
            declined=choice.finish_reason == "content_filter" or bool(choice.message.refusal),
            usage=_usage(completion.usage),
        )


def _usage(usage: CompletionUsage | None) -> Usage:
    if usage is None:
        return Usage(calls=1)
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        calls=1,
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=(prompt.cached_tokens if prompt else None) or 0,
        reasoning_tokens=(completion.reasoning_tokens if completion else None) or 0,
    )


def _encodable(text: str) -> str:
    # lone surrogates have no UTF-8
    return text.encode("utf-8", "replace").decode()
