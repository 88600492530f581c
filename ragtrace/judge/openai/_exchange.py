"""One judge request to an OpenAI-compatible endpoint, until there is an answer.

If the endpoint rejects or ignores a parameter, another dialect is tried (see `dialect`). A reply of the wrong
form is sent back once with its fault. No error message contains a prompt, a reply or a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeError, JudgeNonsense, JudgeRefused, JudgeUnable
from ragtrace.judge.calls import CallRequest, JudgeCall, UsageDoubts, made
from ragtrace.judge.openai._completion import Completion, note_usage, yes_probability
from ragtrace.judge.openai._endpoint import RequestRejected, Transport
from ragtrace.judge.openai.dialect import Dialect, OutputMode
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply, reply_schema
from ragtrace.model import Usage
from ragtrace.ports import FreeText, JudgeRequest, YesProbability

ReplyT = TypeVar("ReplyT", bound=BaseModel)
Message: TypeAlias = tuple[str, str]
"""A role and a content."""
Reading: TypeAlias = Callable[[Completion], ReplyT | None]
"""Returns the value of an answer, or ``None`` if the endpoint must be asked again."""

_TOO_LONG = re.compile(r"context[ _](?:length|size|window)", re.IGNORECASE)


class ReplyKind(StrEnum):
    """The part of a completion that a reply is read from."""

    JSON = "json"
    TEXT = "text"
    YES = "yes"
    """Log-probabilities."""

    @classmethod
    def of(cls, reply_type: type[BaseModel]) -> ReplyKind:
        """Return the kind of a reply type."""
        if issubclass(reply_type, FreeText):
            return cls.TEXT
        return cls.YES if issubclass(reply_type, YesProbability) else cls.JSON


@dataclass(slots=True, kw_only=True)
class Exchange(Generic[ReplyT]):
    """One request, and what it taught about the endpoint."""

    endpoint: Transport
    model: str
    where: str
    too_long_advice: str
    request: JudgeRequest[ReplyT]
    kind: ReplyKind
    """How its reply is read."""
    dialect: Dialect
    confirmed: bool
    """Whether the dialect has already worked for requests of this kind."""
    doubts: UsageDoubts
    spent: Usage = field(default_factory=Usage)
    correction: tuple[Message, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Extra body parameters; they override ours."""

    async def run(self) -> ReplyT:
        """Ask until there is a value.

        Raises:
            JudgeError: no usable answer; its usage covers all requests.
        """
        try:
            return await self._run()
        except JudgeError as failed:
            failed.usage = self.spent
            raise

    async def _run(self) -> ReplyT:
        if self.kind is ReplyKind.YES and self.dialect.likelihoods is None:
            raise self._unable()
        read = self._reading()
        while True:
            answer = await self._answer()
            if answer.declined:
                raise self._error(
                    JudgeNonsense, "the model declined to reply, or a content filter stopped it"
                )
            value = read(answer)
            if value is not None:
                return value

    def _reading(self) -> Reading[ReplyT]:
        match self.kind:
            case ReplyKind.JSON:
                return self._read_json
            case ReplyKind.TEXT:
                return self._read_text
            case ReplyKind.YES:
                return self._read_probability

    def _read_text(self, answer: Completion) -> ReplyT | None:
        cut_off = answer.finish_reason == "length"
        if cut_off and not answer.text and self._finds_room(answer.usage):
            return None
        return self.request.reply_type.model_validate({"text": answer.text, "cut_off": cut_off})

    def _read_probability(self, answer: Completion) -> ReplyT | None:
        if answer.likely is None:
            self.dialect = self._other_likelihoods()
            return None
        p_yes = yes_probability(answer.likely)
        if p_yes is not None:
            return self.request.reply_type.model_validate({"p_yes": p_yes})
        longer = None if answer.text.strip() else self.dialect.with_longer_opening()
        if longer is None and answer.thinks:
            raise self._error(JudgeUnable, "it reasons before it answers, so its first token is no yes or no")
        if longer is None:
            raise self._error(JudgeNonsense, "neither yes nor no is among the likeliest tokens")
        self.dialect = longer
        return None

    def _read_json(self, answer: Completion) -> ReplyT | None:
        if answer.finish_reason == "length":
            if not self._finds_room(answer.usage):
                raise self._error(JudgeCutOff, "the reply ended at the token limit")
            return None
        try:
            return parse_reply(answer.text, self.request.reply_type)
        except NotJson as exc:
            if not self.confirmed and (lowered := self.dialect.lowered()):
                self.dialect = lowered  # it accepted the parameter and ignored it
            else:
                self._ask_to_correct(answer.text, exc)
        except InvalidReply as exc:
            self._ask_to_correct(answer.text, exc)
        return None

    def _finds_room(self, usage: Usage) -> bool:
        roomier = self.dialect.with_room_to_reason(usage.reasoning_tokens)
        self.dialect = roomier or self.dialect
        return roomier is not None

    def _ask_to_correct(self, text: str, fault: ValueError) -> None:
        if self.correction:
            raise self._error(JudgeNonsense, "the reply does not have the form that was asked for, twice")
        wish = f"Your reply is not valid: {fault}. Reply again with one complete, corrected JSON object."
        self.correction = (("assistant", text), ("user", wish))

    async def _answer(self) -> Completion:
        while True:
            asked = CallRequest.by(self._body(), output_tokens=self._room)
            async with made(asked, self.doubts) as call:
                try:
                    return self._read(await self.endpoint.post("/chat/completions", call), call)
                except RequestRejected as exc:
                    rejected = exc
                finally:
                    self.spent += call.usage
            self.dialect = self._adapted(rejected)

    def _read(self, completion: Any, call: JudgeCall) -> Completion:
        note_usage(completion, call)
        try:
            return Completion.of(completion, call.usage)
        except (AttributeError, TypeError, IndexError, ValueError):  # the client does not validate the JSON
            raise self._error(JudgeNonsense, "the reply is not a chat completion") from None

    @property
    def _room(self) -> int:
        return self.request.max_output_tokens + self.dialect.reasoning_room

    def _body(self) -> dict[str, Any]:
        asked = self.request
        parameters = self.dialect.parameters(
            asked.step, asked.reply_type, asked.max_output_tokens, asked.sampling
        )
        return {"model": self.model, "messages": self._messages(), **parameters, **self.extra_body}

    def _messages(self) -> list[dict[str, str]]:
        system = self.request.system
        if self.kind is ReplyKind.JSON and self.dialect.output_mode in (
            OutputMode.JSON_OBJECT,
            OutputMode.TEXT,
        ):
            schema = json.dumps(reply_schema(self.request.reply_type))
            system = f"{system}\n\nThe JSON schema of the reply: {schema}"
        instructions = [("system", system)] if system else []
        asked = [*instructions, ("user", self.request.user), *self.correction]
        return [{"role": role, "content": content} for role, content in asked]

    def _adapted(self, exc: RequestRejected) -> Dialect:
        if exc.code == "content_filter":
            raise self._error(JudgeNonsense, "a content filter stopped the request") from None
        if _TOO_LONG.search(f"{exc.code} {exc.complaint}"):
            raise self._error(
                JudgeNonsense, f"the chunks are too long for it: {self.too_long_advice}"
            ) from None
        adapted = self.dialect.after_rejection(exc.complaint, self.request.reply_type, self.request.sampling)
        if adapted is not None:
            return adapted
        if self.kind is ReplyKind.YES and not self.confirmed:
            raise self._unable() from None
        # the dialect has worked before, so the fault is in this request, not in the endpoint
        kind = JudgeNonsense if self.confirmed else JudgeRefused
        raise self._error(kind, f"it rejects the request ({exc.what})") from None

    def _other_likelihoods(self) -> Dialect:
        other = self.dialect.with_other_likelihoods()
        if other is None:
            raise self._unable()
        return other

    def _unable(self) -> JudgeError:
        return self._error(JudgeUnable, "it gives no log-probabilities")

    def _error(self, kind: type[JudgeError], what: str) -> JudgeError:
        return kind(f"judge {self.where}: {what}", usage=self.spent)
