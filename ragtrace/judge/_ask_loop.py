"""Asks a language model until there is an answer: what judges behind HTTP APIs share.

If the endpoint rejects or ignores a parameter, another dialect is tried. A reply of the wrong form is sent
back once with its fault. No error message contains a prompt, a reply or a key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.errors import JudgeContextCut, JudgeDeclined, JudgeError, JudgeNonsense, JudgeRefused
from ragtrace.judge._http import RequestRejected
from ragtrace.judge.calls import CallRequest, JudgeCall, UsageDoubts, fewest_tokens, made
from ragtrace.judge.refusals import declines
from ragtrace.judge.replies import InvalidReply, NotJson, ReplyRules, parse_reply
from ragtrace.model import Usage
from ragtrace.off_loop import off_loop
from ragtrace.ports import JudgeRequest

ReplyT = TypeVar("ReplyT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", bound="Written")
DialectT = TypeVar("DialectT", bound="Lowerable")
Turn: TypeAlias = tuple[str, str]
"""A role and a content."""
_TIMES = {1: "", 2: ", twice"}
_LEAST_CONTEXT: Final = 256
"""No server's context is smaller; a count below it is no count of the prompt."""
_FAR_BELOW: Final = 0.8
_OPENING_CHARS: Final = 400
_MOST_ECHOED_CHARS: Final = 20_000


class Written(Protocol):
    """An answer of a model."""

    @property
    def text(self) -> str:
        """What it wrote."""
        ...


class Lowerable(Protocol):
    """What a server accepts."""

    def lowered(self) -> Self | None:
        """Return the next weaker way to ask for JSON, or ``None`` if there is none."""
        ...


@dataclass(slots=True, kw_only=True)
class AskLoop(ABC, Generic[ReplyT, AnswerT, DialectT]):
    """One judge request, and what it has used. A subclass knows the API."""

    dialect: DialectT
    """What the server accepts, as far as that is known."""
    model: str
    where: str
    request: JudgeRequest[ReplyT]
    confirmed: bool
    """Whether the dialect has already worked for requests of this kind."""
    doubts: UsageDoubts
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Extra body parameters; they override ours."""
    reply_rules: ReplyRules = field(default_factory=ReplyRules)
    spent: Usage = field(default_factory=Usage)
    correction: tuple[Turn, ...] = ()
    corrected: int = 0

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

    @abstractmethod
    def reading(self) -> Callable[[AnswerT], ReplyT | None]:
        """Return what reads an answer: its value, or ``None`` if the endpoint must be asked again."""

    @abstractmethod
    def asking(self) -> CallRequest:
        """Return the next request, in the present dialect."""

    @abstractmethod
    async def send(self, call: JudgeCall) -> AnswerT:
        """Send a request; ``call`` records the outcome.

        Raises:
            RequestRejected: the status is 400 or 422.
            JudgeError: there is no answer.
        """

    @abstractmethod
    def check(self, answer: AnswerT) -> None:
        """Check that the model did answer.

        Raises:
            JudgeDeclined: it declined to.
        """

    @abstractmethod
    def adapt(self, rejected: RequestRejected) -> None:
        """Choose another dialect after a rejection.

        Raises:
            JudgeError: none is left, or the fault is in the request.
        """

    def lower(self) -> bool:
        """Choose the next weaker way to ask for JSON; tell whether there was one."""
        lowered = self.dialect.lowered()
        self.dialect = lowered or self.dialect
        return lowered is not None

    def turned_down(self, rejected: RequestRejected) -> JudgeError:
        """Return the error if no dialect is left. If one has worked before, the fault is in this request."""
        kind = JudgeNonsense if self.confirmed else JudgeRefused
        return self.error(kind, f"it rejects the request ({rejected.what})")

    def read_json(self, text: str) -> ReplyT | None:
        """Read a reply; ``None`` if it must be asked for again."""
        try:
            return parse_reply(text, self.request.reply_type, strict=self.reply_rules.strict_json)
        except NotJson as exc:
            if declines(text[:_OPENING_CHARS]):
                raise self.declined() from None
            if self.confirmed or not self.lower():  # otherwise it accepted the parameter and ignored it
                self._ask_to_correct(text, exc)
        except InvalidReply as exc:
            self._ask_to_correct(text, exc)
        return None

    def declined(self) -> JudgeError:
        """Return the error if the model, or a content filter, refuses."""
        return self.error(
            JudgeDeclined, "the model declined to judge this answer, or a content filter stopped it"
        )

    def error(self, kind: type[JudgeError], what: str) -> JudgeError:
        """Return an error of this request."""
        return kind(f"judge {self.where}: {what}", usage=self.spent)

    async def _run(self) -> ReplyT:
        read = self.reading()
        while True:
            answer = await self._answer()
            self.check(answer)
            value = await off_loop(len(answer.text), read, answer)
            if value is not None:
                return value

    async def _answer(self) -> AnswerT:
        while True:
            async with made(self.asking(), self.doubts) as call:
                try:
                    answer = await self.send(call)
                except RequestRejected as exc:
                    rejected = exc
                else:
                    self._check_seen(call)
                    return answer
                finally:
                    self.spent += call.spent
            self.adapt(rejected)

    def _check_seen(self, call: JudgeCall) -> None:
        """Check that the judge read what was sent: some servers cut a prompt without a word of it.

        Raises:
            JudgeContextCut: by its own count it read far less.
        """
        turns = (self.request.system, self.request.user, *(text for _, text in self.correction))
        sent, read = sum(map(fewest_tokens, turns)), call.usage.input_tokens
        if _LEAST_CONTEXT <= read < _FAR_BELOW * sent:
            what = (
                f"its server cut the prompt: it read {read:,} of at least {sent:,} tokens. Serve the model"
                " with a larger context (Ollama: num_ctx; llama.cpp: --ctx-size; vLLM: --max-model-len)"
            )
            raise self.error(JudgeContextCut, what)

    def _ask_to_correct(self, text: str, fault: ValueError) -> None:
        if self.corrected == self.reply_rules.max_corrections:
            times = _TIMES.get(self.corrected + 1, f", {self.corrected + 1} times")
            raise self.error(JudgeNonsense, f"the reply does not have the form that was asked for{times}")
        self.corrected += 1
        wish = f"Your reply is not valid: {fault}. Reply again with one complete, corrected JSON object."
        self.correction = (("assistant", text[:_MOST_ECHOED_CHARS]), ("user", wish))
