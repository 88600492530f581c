"""One judge request to an OpenAI-compatible endpoint, until there is an answer (see `dialect`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeCutOff, JudgeDeclined, JudgeError, JudgeNonsense, JudgeUnable
from ragtrace.judge._ask_loop import AskLoop
from ragtrace.judge._http import RequestRejected
from ragtrace.judge.calls import CallRequest, JudgeCall
from ragtrace.judge.openai._completion import Completion, note_usage, yes_probability
from ragtrace.judge.openai._endpoint import Transport
from ragtrace.judge.openai.dialect import Dialect, OutputMode
from ragtrace.judge.replies import reply_schema
from ragtrace.model import Usage
from ragtrace.ports import FreeText, YesProbability

ReplyT = TypeVar("ReplyT", bound=BaseModel)
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
class Exchange(AskLoop[ReplyT, Completion, Dialect]):
    """One request, and what it taught about the endpoint."""

    endpoint: Transport
    kind: ReplyKind
    """How its reply is read."""

    def reading(self) -> Reading[ReplyT]:
        """Return what reads an answer of this kind."""
        if self.kind is ReplyKind.YES and self.dialect.likelihoods is None:
            raise self._unable()
        match self.kind:
            case ReplyKind.JSON:
                return self._read_json
            case ReplyKind.TEXT:
                return self._read_text
            case ReplyKind.YES:
                return self._read_probability

    def asking(self) -> CallRequest:
        """Return the next request."""
        room = self.request.max_output_tokens + self.dialect.reasoning_room
        return CallRequest.by(self._body(), output_tokens=room)

    async def send(self, call: JudgeCall) -> Completion:
        """Send a request, and read its usage and its first choice."""
        return self._read(await self.endpoint.post("/chat/completions", call), call)

    def check(self, answer: Completion) -> None:
        """Check that the model did answer."""
        if answer.declined:
            raise self.declined()

    def adapt(self, rejected: RequestRejected) -> None:
        """Choose another dialect after a rejection."""
        if rejected.code == "content_filter":
            raise self.error(JudgeDeclined, "its content filter stopped the request")
        if _TOO_LONG.search(f"{rejected.code} {rejected.complaint}"):
            raise self.error(
                JudgeNonsense, "the chunks are too long for it: serve the model with a larger context"
            )
        if self.dialect.system_role and rejected.is_of_the_system_role:
            self.dialect = replace(self.dialect, system_role=False)
            return
        adapted = self.dialect.after_rejection(
            rejected.complaint, self.request.reply_type, self.request.sampling
        )
        if adapted is None and self.kind is ReplyKind.YES and not self.confirmed:
            raise self._unable()
        if adapted is None:
            raise self.turned_down(rejected)
        self.dialect = adapted

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
            raise self.error(JudgeUnable, "it reasons before it answers, so its first token is no yes or no")
        if longer is None:
            raise self.error(JudgeNonsense, "neither yes nor no is among the likeliest tokens")
        self.dialect = longer
        return None

    def _read_json(self, answer: Completion) -> ReplyT | None:
        if answer.finish_reason == "length":
            if not self._finds_room(answer.usage):
                raise self.error(JudgeCutOff, "the reply ended at the token limit")
            return None
        return self.read_json(answer.text)

    def _finds_room(self, usage: Usage) -> bool:
        roomier = self.dialect.with_room_to_reason(usage.reasoning_tokens)
        self.dialect = roomier or self.dialect
        return roomier is not None

    def _read(self, completion: Any, call: JudgeCall) -> Completion:
        note_usage(completion, call)
        try:
            return Completion.of(completion, call.usage)
        except (AttributeError, TypeError, IndexError, ValueError):  # the client does not validate the JSON
            raise self.error(JudgeNonsense, "the reply is not a chat completion") from None

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
        user = self.request.user
        if system and not self.dialect.system_role:
            system, user = "", f"{system}\n\n{user}"
        asked = [*([("system", system)] if system else []), ("user", user), *self.correction]
        return [{"role": role, "content": content} for role, content in asked]

    def _other_likelihoods(self) -> Dialect:
        other = self.dialect.with_other_likelihoods()
        if other is None:
            raise self._unable()
        return other

    def _unable(self) -> JudgeError:
        return self.error(JudgeUnable, "it gives no log-probabilities")
