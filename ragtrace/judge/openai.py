"""Judges and embedders behind any OpenAI-compatible endpoint: OpenAI, Azure, your own, gateways.

Servers differ in how they accept a schema (the output mode), how they return log-probabilities, and which
parameters they know. A rejected request tells what to try next; the first dialect that works is kept. A reply
of the wrong form is sent back with its fault. Judge calls are not traced: ragtrace would judge them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from ragtrace.errors import (
    JudgeContextCut,
    JudgeCutOff,
    JudgeDeclined,
    JudgeError,
    JudgeNonsense,
    JudgeRefused,
    JudgeUnable,
)
from ragtrace.judge.endpoint import Access, Endpoint, RequestRejected, azure_access, openai_access
from ragtrace.judge.layers import CallRequest, JudgeCall, UsageDoubts, fewest_tokens, made
from ragtrace.judge.phrases import declines
from ragtrace.judge.replies import InvalidReply, NotJson, parse_reply, reply_schema
from ragtrace.judge.spec import JudgeSettings
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.plugins import load_plugin
from ragtrace.ports import (
    Embedder,
    Embeddings,
    FreeText,
    Judge,
    JudgeReply,
    JudgeRequest,
    SamplingParameters,
    YesProbability,
)

ReplyT = TypeVar("ReplyT", bound=BaseModel)
Likely: TypeAlias = Mapping[str, float]
"""Log-probabilities of the likeliest tokens at one position of a reply."""

_BATCHES: Final = EntryPoint("batches", "ragtrace.judge.batch:open_batch_judge", "ragtrace.judges")
_BOUND_WORDS: Final = re.compile(r"max_?length|max_?items|minimum|maximum|input_schema", re.IGNORECASE)
_TOO_LONG: Final = re.compile(r"prompt is too long|context[ _](?:length|size|window)", re.IGNORECASE)
_NO_CREDIT: Final = re.compile(r"credit balance", re.IGNORECASE)
_PARAMETERS: Final = ("temperature", "top_p", "seed", "cache_control")
_SEED: Final = 20_240_501
_MAX_REASONING_ROOM: Final = 32_768
_LONG_OPENING: Final = 8
_LEAST_CONTEXT: Final = 256
"""No server's context is smaller; a count below it is no count of the prompt."""
_FAR_BELOW: Final = 0.8
_OPENING_CHARS: Final = 400
_MOST_ECHOED_CHARS: Final = 20_000
_ORNAMENT: Final = re.compile(r"[\W_]+")
"""Blanks, quotes, markup."""
_LEAST_MASS: Final = 0.01
"""The least P(yes) + P(no): below it the model says something else, and the ratio of the two is noise."""
_TEXTS_A_CALL: Final = 128
_MOST_VECTOR_BYTES: Final = 32 << 20
"""The size limit of one reply: a full batch of vectors with 8,192 numbers."""


class OutputMode(StrEnum):
    """Ways to request JSON of a given schema, best first."""

    JSON_SCHEMA = "json_schema"
    TOOLS = "tools"
    JSON_OBJECT = "json_object"
    TEXT = "text"


class Likelihoods(StrEnum):
    """Ways to request the log-probabilities of the likeliest tokens, best first."""

    TOP_20 = "top_logprobs=20"
    TOP_5 = "top_logprobs=5"
    """Some servers return no more than this."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of a chat completion."""
        return {"logprobs": True, "top_logprobs": int(self.value.rpartition("=")[2])}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a server accepts."""

    modes: tuple[OutputMode, ...] = tuple(OutputMode)
    """That were not refused; the first is used."""
    token_limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    """Parameter names of the output limit that were not refused; the first is used."""
    refused: frozenset[str] = frozenset()
    """What is left out: of ``_PARAMETERS``; ``system``, a message of its own for instructions, which then
    begin the user's; ``bounds``, lengths and ranges in a schema; ``json_object`` for free text."""
    reasoning_room: int = 0
    """Tokens to add to the limit for models that reason before they answer."""
    likelihoods: tuple[Likelihoods, ...] = tuple(Likelihoods)
    """Ways to request log-probabilities that were not refused; the first is used."""
    opening_tokens: int = 1
    """Tokens to read until *yes* or *no*: some models begin with a blank."""

    def after_rejection(self, rejected: RequestRejected, request: JudgeRequest[Any]) -> Self | None:
        """Return the dialect to try after a rejection, or ``None`` if none is left."""
        complaint, kind = rejected.complaint, ReplyKind.of(request.reply_type)
        if "system" not in self.refused and rejected.is_of_the_system_role:
            return self.without("system")
        for name in _PARAMETERS:
            if name not in self.refused and re.search(rf"\b{name}\b", complaint):
                return self.without(name)
        if self.token_limits and self.token_limits[0] in complaint:
            return replace(self, token_limits=self.token_limits[1:])
        if kind is ReplyKind.YES:
            return self.with_other_likelihoods()
        if kind is ReplyKind.TEXT:
            return self.without("json_object") if self._asks_for_json(request.sampling) else None
        has_schema = self.modes[0] in (OutputMode.JSON_SCHEMA, OutputMode.TOOLS)
        if self.has_bounds and has_schema and _BOUND_WORDS.search(complaint):
            return self.without("bounds")
        return self.lowered()

    def without(self, name: str) -> Self:
        """Return the dialect that leaves something out."""
        return replace(self, refused=self.refused | {name})

    @property
    def has_bounds(self) -> bool:
        """Whether the schema may carry lengths and ranges."""
        return "bounds" not in self.refused

    def lowered(self) -> Self | None:
        """Return the dialect with the next weaker output mode."""
        return replace(self, modes=self.modes[1:]) if self.modes[1:] else None

    def with_other_likelihoods(self) -> Self | None:
        """Return the dialect with the next way to request log-probabilities."""
        return replace(self, likelihoods=self.likelihoods[1:]) if self.likelihoods[1:] else None

    def with_room_to_reason(self, reasoning_tokens: int) -> Self | None:
        """Return a dialect with a higher limit if reasoning used up the limit of a truncated reply."""
        if reasoning_tokens == 0 or self.reasoning_room >= _MAX_REASONING_ROOM:
            return None
        room = min(_MAX_REASONING_ROOM, max(4 * reasoning_tokens, 2 * self.reasoning_room))
        return replace(self, reasoning_room=room)

    def sampling(self, request: JudgeRequest[Any]) -> Mapping[str, float]:
        """Return what the request prescribes (another tool's), else the most repeatable sampling."""
        prescribed = request.sampling
        chosen: dict[str, float | None] = {"temperature": 0, "seed": _SEED}
        if prescribed is not None:
            chosen = {"temperature": prescribed.temperature, "top_p": prescribed.top_p}
        return {
            name: value for name, value in chosen.items() if value is not None and name not in self.refused
        }

    def parameters(self, request: JudgeRequest[Any]) -> Mapping[str, Any]:
        """Return the parameters of a chat completion except model and messages."""
        kind = ReplyKind.of(request.reply_type)
        parameters = {**self._form(request, kind), **self.sampling(request)}
        if self.token_limits:
            room = request.max_output_tokens + self.reasoning_room
            parameters[self.token_limits[0]] = self.opening_tokens if kind is ReplyKind.YES else room
        return parameters

    def _form(self, request: JudgeRequest[Any], kind: ReplyKind) -> Mapping[str, Any]:
        if kind is ReplyKind.YES:
            return self.likelihoods[0].parameters
        json_object = {"response_format": {"type": "json_object"}}
        if kind is ReplyKind.TEXT:
            return json_object if self._asks_for_json(request.sampling) else {}
        form_type: type[BaseModel] = request.reply_type
        name, schema = request.step, reply_schema(form_type, bounded=self.has_bounds)
        match self.modes[0]:
            case OutputMode.JSON_SCHEMA:
                form = {"name": name, "schema": schema, "strict": True}
                return {"response_format": {"type": "json_schema", "json_schema": form}}
            case OutputMode.TOOLS:
                function = {"name": name, "parameters": schema}
                choice = {"type": "function", "function": {"name": name}}
                return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
            case OutputMode.JSON_OBJECT:
                return json_object
            case OutputMode.TEXT:
                return {}

    def _asks_for_json(self, sampling: SamplingParameters | None) -> bool:
        return "json_object" not in self.refused and sampling is not None and sampling.json_object


Post: TypeAlias = Callable[[str, JudgeCall], Awaitable[Any]]
"""Posts a request to a path and returns the JSON of its reply, as `Endpoint.post` does."""


class LanguageModelJudge:
    """Asks a language model for JSON of a given form, for free text, or for the probability of a *yes*.

    Bound to the event loop that asks it first.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        access: Access,
        *,
        dialect: Dialect | None = None,
        exchange: type[Exchange[Any]] | None = None,
        instead: Post | None = None,
    ) -> None:
        """Open an endpoint, unless requests are posted by ``instead``; ``exchange`` speaks its API.

        Raises:
            ConfigError: the environment's proxy cannot be used.
        """
        self.identity = JudgeIdentity(
            provider=access.sdk, model=settings.argument, parameters=settings.parameters
        )
        self.who = f"judge {settings.argument} at {access.host}"
        self.extra_body = settings.extra_body
        self._endpoint: Endpoint | None = None
        if instead is None:
            self._endpoint = Endpoint(access, timeout_s=settings.timeout_s, who=self.who)
            instead = self._endpoint.post
        self.post = instead
        self.doubts = UsageDoubts(self.who)
        limits = Dialect().token_limits  # OpenAI's own endpoint takes the newer name
        is_openai = access.host == "api.openai.com"
        self._dialect = dialect or Dialect(token_limits=limits[::-1] if is_openai else limits)
        self._exchange = exchange or Exchange
        self._confirmed: frozenset[ReplyKind] = frozenset()

    @property
    def output_mode(self) -> OutputMode | None:
        """How the endpoint accepts a schema; ``None`` until a request for JSON has succeeded."""
        return self._dialect.modes[0] if ReplyKind.JSON in self._confirmed else None

    @property
    def likelihoods(self) -> Likelihoods | None:
        """How the endpoint returns log-probabilities; ``None`` until a request for them has succeeded."""
        ways = self._dialect.likelihoods
        return ways[0] if ways and ReplyKind.YES in self._confirmed else None

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; ``usage.calls`` counts the requests that left the process.

        Raises:
            JudgeError: no usable answer; the subclass tells whether a retry may help.
        """
        before, kind = self._dialect, ReplyKind.of(request.reply_type)
        exchange = self._exchange(
            judge=self, request=request, kind=kind, dialect=before, confirmed=kind in self._confirmed
        )
        try:
            value = await exchange.run()
        except JudgeError as failed:
            failed.usage = exchange.spent
            if isinstance(failed, JudgeUnable):
                self._dialect = replace(self._dialect, likelihoods=())
            raise
        if exchange.dialect is not before:  # what a concurrent request learned is learned again
            self._dialect = exchange.dialect
        self._confirmed |= {kind}
        return JudgeReply(value=value, usage=exchange.spent)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._endpoint is not None:
            await self._endpoint.aclose()


@dataclass(slots=True, kw_only=True)
class Exchange(Generic[ReplyT]):
    """One judge request until there is an answer: what it has used, and what it taught about the endpoint."""

    path: ClassVar[str] = "/chat/completions"
    judge: LanguageModelJudge
    request: JudgeRequest[ReplyT]
    kind: ReplyKind
    dialect: Dialect
    confirmed: bool
    """Whether the dialect has already worked for requests of this kind."""
    spent: Usage = field(default_factory=Usage)
    correction: tuple[tuple[str, str], ...] = ()
    """Roles and contents that follow the request."""

    async def run(self) -> ReplyT:
        """Ask until there is a value.

        Raises:
            JudgeError: no usable answer.
        """
        if self.kind is ReplyKind.YES and not self.dialect.likelihoods:
            raise self._unable()
        read: Callable[[Completion], ReplyT | None]
        read = {
            ReplyKind.JSON: self._read_json,
            ReplyKind.TEXT: self._read_text,
            ReplyKind.YES: self._read_probability,
        }[self.kind]
        while True:
            answer = await self._answer()
            if answer.declined:
                raise self._declined()
            value = read(answer)
            if value is not None:
                return value

    async def _answer(self) -> Completion:
        while True:
            asked = CallRequest.by(
                self.body(), output_tokens=self.request.max_output_tokens + self.dialect.reasoning_room
            )
            async with made(asked, self.judge.doubts) as call:
                try:
                    reply = await self.judge.post(self.path, call)
                except RequestRejected as exc:
                    rejected = exc
                else:
                    answer = self.completion(reply, call)
                    self._check_seen(call)
                    return answer
                finally:
                    self.spent += call.spent
            self.adapt(rejected)

    def body(self) -> dict[str, Any]:
        """Return the next request, in the present dialect."""
        system, user = self.request.system, self.request.user
        if self.kind is ReplyKind.JSON and self.dialect.modes[0] in ("json_object", "text"):
            schema = json.dumps(reply_schema(self.request.reply_type))
            system = f"{system}\n\nThe JSON schema of the reply: {schema}"
        if system and "system" in self.dialect.refused:
            system, user = "", f"{system}\n\n{user}"
        asked = [*([("system", system)] if system else []), ("user", user), *self.correction]
        return {
            "model": self.judge.identity.model,
            "messages": [{"role": role, "content": content} for role, content in asked],
            **self.dialect.parameters(self.request),
            **self.judge.extra_body,
        }

    def adapt(self, rejected: RequestRejected) -> None:
        """Choose another dialect after a rejection.

        Raises:
            JudgeError: none is left, or the fault is in the request.
        """
        if rejected.code == "content_filter":
            raise self.error(JudgeDeclined, "its content filter stopped the request")
        if _NO_CREDIT.search(rejected.complaint):
            raise self.error(JudgeRefused, f"the credit is used up: check the account ({rejected.what})")
        if _TOO_LONG.search(f"{rejected.code} {rejected.complaint}"):
            raise self.error(
                JudgeNonsense, "the chunks are too long for it: serve the model with a larger context"
            )
        adapted = self.dialect.after_rejection(rejected, self.request)
        if adapted is None and self.kind is ReplyKind.YES and not self.confirmed:
            raise self._unable()
        if adapted is None or (self.confirmed and adapted.modes != self.dialect.modes):
            # if a dialect has worked before, the fault is in this request
            kind = JudgeNonsense if self.confirmed else JudgeRefused
            raise self.error(kind, f"it rejects the request ({rejected.what})")
        self.dialect = adapted

    def completion(self, reply: Any, call: JudgeCall) -> Completion:
        """Read a reply, which may be any JSON; ``call`` records its usage.

        Raises:
            JudgeNonsense: it is not of the API.
        """
        _note_usage(reply, call)
        try:
            return Completion.of(reply, call.usage)
        except (AttributeError, TypeError, IndexError, ValueError):  # the client does not validate the JSON
            raise self.error(JudgeNonsense, "the reply is not a chat completion") from None

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

    def _read_text(self, answer: Completion) -> ReplyT | None:
        cut_off = answer.finish_reason == "length"
        if cut_off and not answer.text and self._finds_room(answer.usage):
            return None
        return self.request.reply_type.model_validate({"text": answer.text, "cut_off": cut_off})

    def _read_probability(self, answer: Completion) -> ReplyT | None:
        if answer.likely is None:
            other = self.dialect.with_other_likelihoods()
            if other is None:
                raise self._unable()
            self.dialect = other
            return None
        p_yes = _yes_probability(answer.likely)
        if p_yes is not None:
            return self.request.reply_type.model_validate({"p_yes": p_yes})
        if answer.text.strip() or self.dialect.opening_tokens >= _LONG_OPENING:
            if answer.thinks:
                told = "it reasons before it answers, so its first token is no yes or no"
                raise self.error(JudgeUnable, told)
            raise self.error(JudgeNonsense, "neither yes nor no is among the likeliest tokens")
        self.dialect = replace(self.dialect, opening_tokens=_LONG_OPENING)
        return None

    def _read_json(self, answer: Completion) -> ReplyT | None:
        if answer.finish_reason == "length":
            if not self._finds_room(answer.usage):
                raise self.error(JudgeCutOff, "the reply ended at the token limit")
            return None
        text = answer.text
        try:
            return parse_reply(text, self.request.reply_type)
        except NotJson as exc:
            if declines(text[:_OPENING_CHARS]):
                raise self._declined() from None
            lowered = None if self.confirmed else self.dialect.lowered()
            if lowered is not None:  # it accepted the parameter and ignored it
                self.dialect = lowered
                return None
            fault: ValueError = exc
        except InvalidReply as exc:
            fault = exc
        if self.correction:
            raise self.error(JudgeNonsense, "the reply does not have the form that was asked for, twice")
        wish = f"Your reply is not valid: {fault}. Reply again with one complete, corrected JSON object."
        # an assistant's turn that is empty or ends in a blank is refused by some
        echoed = text[:_MOST_ECHOED_CHARS].strip() or "{}"
        self.correction = (("assistant", echoed), ("user", wish))
        return None

    def _finds_room(self, usage: Usage) -> bool:
        roomier = self.dialect.with_room_to_reason(usage.reasoning_tokens)
        self.dialect = roomier or self.dialect
        return roomier is not None

    def _declined(self) -> JudgeError:
        told = "the model declined to judge this answer, or a content filter stopped it"
        return self.error(JudgeDeclined, told)

    def _unable(self) -> JudgeError:
        return self.error(JudgeUnable, "it gives no log-probabilities")

    def error(self, kind: type[JudgeError], what: str) -> JudgeError:
        """Return an error of this request."""
        return kind(f"{self.judge.who}: {what}", usage=self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The first choice of a chat completion."""

    text: str
    finish_reason: str
    declined: bool
    likely: tuple[Likely, ...] | None
    """By token; ``None`` if the reply has no log-probabilities."""
    usage: Usage

    @property
    def thinks(self) -> bool:
        """Whether the model reasons before it answers."""
        opening = _likeliest(self.likely[0]) if self.likely else self.text
        return self.usage.reasoning_tokens > 0 or opening.lstrip().startswith("<think")

    @classmethod
    def of(cls, completion: Any, usage: Usage) -> Completion:
        """Read a completion. It may be any JSON: the client does not validate it.

        Raises:
            AttributeError, TypeError, IndexError, ValueError: it is no chat completion.
        """
        choice = completion.choices[0]
        message = choice.message
        calls = [call for call in message.tool_calls or () if call.type == "function"]
        said = _text(calls[0].function.arguments if calls else message.content)
        return cls(
            # a server that takes all that is said for reasoning
            text=said if said.strip() else _text(message.reasoning_content or message.reasoning),
            finish_reason=choice.finish_reason,
            declined=choice.finish_reason in ("content_filter", "refusal") or bool(message.refusal),
            likely=_likely(choice.logprobs),
            usage=usage,
        )


def _note_usage(completion: Any, call: JudgeCall) -> None:
    """Record who answered and the usage, as a completion reports it; the completion may be any JSON."""
    call.came_from(getattr(completion, "model", None), getattr(completion, "system_fingerprint", None))
    usage = getattr(completion, "usage", None)
    if isinstance(usage, Mapping):
        sent, came = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        call.took(
            input_tokens=usage.get("prompt_tokens"),
            output_tokens=usage.get("completion_tokens"),
            cached_tokens=sent.get("cached_tokens") if isinstance(sent, Mapping) else 0,
            reasoning_tokens=came.get("reasoning_tokens") if isinstance(came, Mapping) else 0,
        )
    elif usage is not None:
        call.took_nonsense()


def _text(content: Any) -> str:
    """Read a message: a text, or a list of parts (some servers)."""
    if isinstance(content, Mapping):  # the arguments of a call, as an object instead of its text
        return json.dumps(content)
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError("a message must be a text or a list of parts")
    return content or ""


def _likely(logprobs: Any) -> tuple[Likely, ...] | None:
    """Read log-probabilities in the form of chat completions."""
    content = getattr(logprobs, "content", None) or ()
    places = [{str(top.token): float(top.logprob) for top in place.top_logprobs or ()} for place in content]
    numbers = ({k: v for k, v in place.items() if not math.isnan(v)} for place in places)
    return tuple(numbers) if any(places) else None


def _yes_probability(likely: Sequence[Likely]) -> float | None:
    """Return P(yes) / (P(yes) + P(no)) at the first token with a letter or digit.

    All spellings of the two count (``Yes``, `` yes``, ``YES``, ``"no``). ``None`` if the model says
    something else.
    """
    first = next((place for place in likely if _word(_likeliest(place))), None)
    if first is None:
        return None
    yes, no = (
        math.fsum(math.exp(min(0.0, value)) for token, value in first.items() if _word(token) == word)
        for word in ("yes", "no")
    )
    return yes / (yes + no) if yes + no >= _LEAST_MASS else None


def _likeliest(place: Likely) -> str:
    return max(place, key=place.__getitem__, default="")


def _word(token: str) -> str:
    # raw vocabularies mark a leading blank with ▁ (no word character) or Ġ (a word character)
    return _ORNAMENT.sub("", token.removeprefix("Ġ")).casefold()


class OpenAICompatibleEmbedder:
    """Asks ``/embeddings`` of an OpenAI-compatible endpoint, in batches.

    Bound to the event loop that asks it first.
    """

    def __init__(self, settings: JudgeSettings, access: Access) -> None:
        self.identity = JudgeIdentity(provider="openai", model=settings.argument)
        self._who = f"embedder {settings.argument} at {access.host}"
        self._doubts = UsageDoubts(self._who)
        self._endpoint = Endpoint(
            access, timeout_s=settings.timeout_s, who=self._who, most_bytes=_MOST_VECTOR_BYTES
        )

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text.

        Raises:
            JudgeError: no usable answer; the subclass tells whether a retry may help.
        """
        vectors: list[tuple[float, ...]] = []
        spent = Usage()
        try:
            for start in range(0, len(texts), _TEXTS_A_CALL):
                some = list(texts[start : start + _TEXTS_A_CALL])
                body = {"model": self.identity.model, "input": some, "encoding_format": "float"}
                async with made(CallRequest.by(body, output_tokens=0), self._doubts) as call:
                    try:
                        vectors += self._checked(await self._create(call), len(some))
                    finally:
                        spent += call.spent
            if len({len(vector) for vector in vectors}) > 1:
                raise self._error("its vectors differ in length")
        except JudgeError as failed:
            failed.usage = spent
            raise
        return Embeddings(vectors=tuple(vectors), usage=spent)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    async def _create(self, call: JudgeCall) -> Any:
        try:
            answer = await self._endpoint.post("/embeddings", call)
        except RequestRejected as exc:
            raise self._error(f"it rejects the texts ({exc.what})") from None
        usage = getattr(answer, "usage", None)
        if isinstance(usage, Mapping):
            call.took(input_tokens=usage.get("prompt_tokens"))
        elif usage is not None:
            call.took_nonsense()
        return answer

    def _checked(self, answer: Any, expected: int) -> list[tuple[float, ...]]:
        try:
            by_index = {item.index: tuple(map(float, item.embedding)) for item in answer.data}
            vectors = [by_index[index] for index in range(max(expected, len(answer.data)))]
        except (AttributeError, TypeError, ValueError, OverflowError, KeyError):
            raise self._error("the reply is not a list of embeddings, numbered as the texts are") from None
        if not all(vector and all(map(math.isfinite, vector)) for vector in vectors):
            raise self._error("a vector is empty, or not of finite numbers")
        return vectors

    def _error(self, what: str) -> JudgeError:
        return JudgeNonsense(f"{self._who}: {what}")


def open_openai(settings: JudgeSettings) -> Judge:
    """Open ``openai:MODEL`` with the key and the base URL from the settings or the environment.

    Raises:
        ConfigError: the model, the key or a usable URL is missing.
    """
    access = openai_access(settings, "judge")
    if settings.batches is not None:
        judge: Judge = load_plugin(_BATCHES)(settings, access)
        return judge
    return LanguageModelJudge(settings, access)


def open_azure(settings: JudgeSettings) -> Judge:
    """Open the judge ``azure:DEPLOYMENT``.

    Raises:
        ConfigError: the deployment, the address or the credential is missing, or two settings contradict.
    """
    return LanguageModelJudge(settings, azure_access(settings, "judge"))


def open_openai_embedder(settings: JudgeSettings) -> Embedder:
    """Open the embedder ``openai:MODEL`` with the key and the base URL of the settings or the environment.

    Raises:
        ConfigError: the model, the key or a usable URL is missing.
    """
    return OpenAICompatibleEmbedder(settings, openai_access(settings, "embedder"))


def open_azure_embedder(settings: JudgeSettings) -> Embedder:
    """Open the embedder ``azure:DEPLOYMENT``.

    Raises:
        ConfigError: the deployment, the address or the credential is missing, or two settings contradict.
    """
    return OpenAICompatibleEmbedder(settings, azure_access(settings, "embedder"))
