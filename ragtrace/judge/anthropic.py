"""A judge behind Anthropic's Messages API (extra ``anthropic``).

The model must call a tool whose input schema is the form of the reply. If an endpoint does not support that,
the schema is in the instructions. Parameters that a model refuses (temperature, bounds in schemas, cache
marks) are left out from then on. The calls are not traced. No error message contains a prompt, a reply or a
key.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel

from ragtrace.errors import (
    ConfigError,
    JudgeCutOff,
    JudgeError,
    JudgeNonsense,
    JudgeOversized,
    JudgeRefused,
    JudgeTimeout,
    JudgeUnable,
    JudgeUnavailable,
)
from ragtrace.extras import install_command
from ragtrace.http import BodyTooLarge, UnreadableBody, client_options
from ragtrace.http.tls import ClientTls
from ragtrace.judge._ask_loop import AskLoop
from ragtrace.judge._http import (
    MOST_REPLY_BYTES,
    RequestRejected,
    certificate_fault,
    checked_url,
    key_in,
    never_left,
    raise_error_within,
    says_who_asks,
    status_failure,
    untraced,
)
from ragtrace.judge.base_url import BaseUrl
from ragtrace.judge.calls import CallRequest, JudgeCall, UsageDoubts, was_turned_down
from ragtrace.judge.factory import JudgeSettings, key_variable
from ragtrace.judge.replies import ReplyRules, reply_schema
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import FreeText, Judge, JudgeReply, JudgeRequest, SamplingParameters, YesProbability

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import Message


ReplyT = TypeVar("ReplyT", bound=BaseModel)

ANTHROPIC_URL: Final = "https://api.anthropic.com"
_BOUND_WORDS: Final = re.compile(r"max_?length|max_?items|minimum|maximum|input_schema", re.IGNORECASE)
_TOO_LONG: Final = re.compile(r"too long|context[ _](?:length|size|window)", re.IGNORECASE)
_NO_CREDIT: Final = re.compile(r"credit balance", re.IGNORECASE)
_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")


class AnthropicJudge:
    """Asks a Claude model for JSON of a given form, or for free text. It has no log-probabilities.

    Bound to the event loop that asks it first.
    """

    def __init__(
        self,
        *,
        model: str,
        api_key: str,
        base_url: str = ANTHROPIC_URL,
        timeout_s: float = 60.0,
        tls: ClientTls | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        reply_rules: ReplyRules | None = None,
        parameters: str = "",
    ) -> None:
        self._client = _client(
            api_key=api_key, place=BaseUrl.of(base_url), timeout_s=timeout_s, tls=tls, headers=headers or {}
        )
        self._extra_body = extra_body or {}
        self._reply_rules = reply_rules or ReplyRules()
        self._parameters = parameters
        self._timeout_s = timeout_s
        self._model = model
        self._where = f"{model} at {urlsplit(base_url).hostname}"
        self._doubts = UsageDoubts(f"judge {self._where}")
        self._dialect = _Dialect()
        self._confirmed = False

    @property
    def identity(self) -> JudgeIdentity:
        """Provider and model."""
        return JudgeIdentity(provider="anthropic", model=self._model, parameters=self._parameters)

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request; ``usage.calls`` counts the requests that left the process.

        Raises:
            JudgeError: no usable answer; the subclass tells whether a retry may help.
        """
        if issubclass(request.reply_type, YesProbability):
            raise JudgeUnable(f"judge {self._where}: it gives no log-probabilities", usage=Usage())
        exchange = _Exchange(
            client=self._client,
            model=self._model,
            where=self._where,
            timeout_s=self._timeout_s,
            request=request,
            dialect=self._dialect,
            confirmed=self._confirmed,
            doubts=self._doubts,
            extra_body=self._extra_body,
            reply_rules=self._reply_rules,
        )
        with untraced():
            value = await exchange.run()
        self._dialect = self._dialect.learning(exchange.dialect)
        self._confirmed |= not issubclass(request.reply_type, FreeText)
        return JudgeReply(value=value, usage=exchange.spent)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def open_anthropic(settings: JudgeSettings) -> Judge:
    """Open ``anthropic:MODEL`` with ``ANTHROPIC_API_KEY``, or the key that the settings name.

    Raises:
        ConfigError: the model, the key, a usable URL or the extra is missing.
    """
    if not settings.argument:
        raise ConfigError("the judge `anthropic` needs a model: write `anthropic:MODEL`")
    variable = key_variable("anthropic", settings.api_key_env)
    key = key_in(settings, variable)
    base_url = checked_url(settings, "ANTHROPIC_BASE_URL", ANTHROPIC_URL)
    if not key and not says_who_asks(settings, base_url):
        raise ConfigError(f"the judge needs a key: set the environment variable {variable}")
    return AnthropicJudge(
        model=settings.argument,
        api_key=key,
        base_url=base_url,
        timeout_s=settings.timeout_s,
        tls=settings.tls,
        headers=settings.headers,
        extra_body=settings.extra_body,
        reply_rules=settings.reply_rules,
        parameters=settings.parameters,
    )


def _client(
    *, api_key: str, place: BaseUrl, timeout_s: float, tls: ClientTls | None, headers: Mapping[str, str]
) -> anthropic.AsyncAnthropic:
    try:
        import anthropic  # the import takes a second
    except ImportError as exc:
        raise ConfigError(
            f"the judge `anthropic` needs its SDK, which is not installed: {install_command('anthropic')}"
        ) from exc
    trust: dict[str, Any] = {"verify": tls.context()} if tls else {}
    options: dict[str, Any] = {
        "max_retries": 0,
        "http_client": anthropic.DefaultAsyncHttpxClient(**client_options(MOST_REPLY_BYTES), **trust),
        "default_query": dict(parse_qsl(place.query)),
        "default_headers": _credentials(api_key, place, headers, absent=anthropic.Omit()),
    }
    if "open_telemetry" in inspect.signature(anthropic.AsyncAnthropic.__init__).parameters:
        options["open_telemetry"] = {"traces": False, "propagation": False}  # newer SDKs trace by default
    return anthropic.AsyncAnthropic(
        api_key=api_key or "none", base_url=place.url, timeout=timeout_s, **options
    )


def _credentials(
    api_key: str, place: BaseUrl, headers: Mapping[str, str], *, absent: Any
) -> Mapping[str, Any]:
    """Return the headers; a login in the URL or a configured header replaces the key."""
    complete: dict[str, Any] = {_SDK_WRITES.get(name.lower(), name): value for name, value in headers.items()}
    if place.login is not None:
        complete.setdefault("Authorization", place.login)
    if place.login is not None or not api_key:  # the SDK sends the key in either header
        for name in _SDK_WRITES.values():
            complete.setdefault(name, absent)
    return complete


_SDK_WRITES: Final = {"authorization": "Authorization", "x-api-key": "X-Api-Key"}
"""Spelled as in the SDK: with another case, both headers would be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """What the endpoint and the model accept."""

    forced_tool: bool = True
    bounded: bool = True
    """Whether the schema may carry lengths and ranges."""
    temperature: bool = True
    top_p: bool = True
    cache_marks: bool = True

    def after_rejection(self, complaint: str) -> _Dialect | None:
        """Return the dialect to try after a 400 with this complaint, or ``None`` if none is left."""
        if self.top_p and "top_p" in complaint:
            return replace(self, top_p=False)
        if self.temperature and "temperature" in complaint:
            return replace(self, temperature=False)
        if self.cache_marks and "cache_control" in complaint:
            return replace(self, cache_marks=False)
        if self.bounded and self.forced_tool and _BOUND_WORDS.search(complaint):
            return replace(self, bounded=False)
        return self.lowered()

    def lowered(self) -> _Dialect | None:
        """Return the dialect without a tool."""
        return replace(self, forced_tool=False) if self.forced_tool else None

    def learning(self, other: _Dialect) -> _Dialect:
        """Return the parameters that neither of two exchanges found refused."""
        return _Dialect(
            **{
                field_.name: getattr(self, field_.name) and getattr(other, field_.name)
                for field_ in fields(self)
            }
        )

    def system(self, instructions: str, reply_type: type[BaseModel]) -> list[dict[str, Any]]:
        """Return the instructions, marked as a prefix that the provider can cache."""
        if not self.forced_tool and not issubclass(reply_type, FreeText):
            schema = json.dumps(reply_schema(reply_type))
            instructions = f"{instructions}\n\nReply with one JSON object. Its JSON schema: {schema}"
        if not instructions:
            return []
        mark = {"cache_control": {"type": "ephemeral"}} if self.cache_marks else {}
        return [{"type": "text", "text": _encodable(instructions), **mark}]

    def form(self, name: str, reply_type: type[BaseModel]) -> dict[str, Any]:
        """Return the parameters that request the form."""
        if not self.forced_tool or issubclass(reply_type, FreeText):
            return {}
        tool = {
            "name": name,
            "description": "Takes the whole of the reply.",
            "input_schema": reply_schema(reply_type, bounded=self.bounded),
        }
        return {"tools": [tool], "tool_choice": {"type": "tool", "name": name}}

    def sampling(self, wanted: SamplingParameters | None) -> Mapping[str, float]:
        """Return the sampling parameters; by default, those of the likeliest reply."""
        temperature = wanted.temperature if wanted else 0.0
        chosen = {
            "temperature": temperature if self.temperature else None,
            "top_p": wanted.top_p if wanted and self.top_p else None,
        }
        return {name: value for name, value in chosen.items() if value is not None}


@dataclass(slots=True, kw_only=True)
class _Exchange(AskLoop[ReplyT, "_Answer", _Dialect]):
    """One judge request, until there is an answer."""

    client: anthropic.AsyncAnthropic
    timeout_s: float

    def reading(self) -> Callable[[_Answer], ReplyT | None]:
        return self._read_text if issubclass(self.request.reply_type, FreeText) else self._read_form

    def asking(self) -> CallRequest:
        parameters = self._parameters()
        body = {**parameters, **parameters.get("extra_body", {})}
        return CallRequest.by(body, output_tokens=self.request.max_output_tokens)

    async def send(self, call: JudgeCall) -> _Answer:
        return self._read(await self._message(self._parameters(), call), call)

    def check(self, answer: _Answer) -> None:
        if answer.stop_reason == "refusal":
            raise self.declined()

    def adapt(self, rejected: RequestRejected) -> None:
        if _NO_CREDIT.search(rejected.complaint):
            raise self.error(JudgeRefused, f"the credit is used up: check the account ({rejected.what})")
        if _TOO_LONG.search(rejected.complaint):
            raise self.error(JudgeNonsense, f"the chunks are too long for it ({rejected.what})")
        adapted = self.dialect.after_rejection(rejected.complaint)
        if adapted is None or (self.confirmed and not adapted.forced_tool and self.dialect.forced_tool):
            raise self.turned_down(rejected)
        self.dialect = adapted

    def _read_text(self, answer: _Answer) -> ReplyT:
        values = {"text": answer.text, "cut_off": answer.stop_reason in _CUT_OFF}
        return self.request.reply_type.model_validate(values)

    def _read_form(self, answer: _Answer) -> ReplyT | None:
        if answer.stop_reason in _CUT_OFF:
            raise self.error(JudgeCutOff, "the reply ended at the token limit")
        return self.read_json(answer.text)

    def _read(self, message: Message, call: JudgeCall) -> _Answer:
        if error := getattr(message, "error", None):  # with the status 200, as some gateways do
            raise_error_within(error, who=f"judge {self.where}", call=call)
        _note_usage(message, call)
        try:
            return _Answer.of(message)
        except (AttributeError, TypeError, ValueError):  # the client does not validate the JSON
            raise self.error(JudgeNonsense, "the reply is not a message of the API") from None

    async def _message(self, parameters: Mapping[str, Any], call: JudgeCall) -> Message:
        import anthropic

        create = cast("Callable[..., Any]", self.client.messages.create)
        try:
            async with asyncio.timeout(self.timeout_s):  # the SDK's time-out is for each read
                message: Message = await create(**parameters, timeout=self.timeout_s)
        except TimeoutError:
            raise self._too_late() from None
        except (anthropic.BadRequestError, anthropic.UnprocessableEntityError) as exc:
            said = exc.body if exc.body is not None else exc.message
            raise RequestRejected(exc.status_code, said) from None
        except anthropic.APIError as exc:
            _note_failure(exc, call)
            # not chained: the cause may quote the prompt or the key
            raise self._failure(exc) from None
        except ValueError:
            raise self.error(JudgeNonsense, "the reply is not a JSON document") from None
        return message

    def _parameters(self) -> dict[str, Any]:
        # the API refuses an assistant's turn that is empty or ends in a blank
        turns = [
            (role, text.strip() or "{}") if role == "assistant" else (role, text)
            for role, text in self.correction
        ]
        asked = [("user", self.request.user), *turns]
        parameters: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.request.max_output_tokens,
            "messages": [{"role": role, "content": _encodable(content)} for role, content in asked],
            **self.dialect.form(self.request.step, self.request.reply_type),
        }
        if system := self.dialect.system(self.request.system, self.request.reply_type):
            parameters["system"] = system
        # as extra body: the newest clients no longer have the sampling parameters
        if further := {**self.dialect.sampling(self.request.sampling), **self.extra_body}:
            parameters["extra_body"] = further
        return parameters

    def _failure(self, exc: anthropic.APIError) -> JudgeError:
        import anthropic

        if isinstance(exc, anthropic.APITimeoutError):
            return self._too_late()
        if isinstance(exc.__cause__, UnreadableBody):
            kind = JudgeOversized if isinstance(exc.__cause__, BodyTooLarge) else JudgeNonsense
            return self.error(kind, f"the reply cannot be read: {exc.__cause__}")
        if fault := certificate_fault(exc):
            return self.error(JudgeRefused, fault)
        if isinstance(exc, anthropic.APIConnectionError):
            return self.error(JudgeUnavailable, "no connection: is the endpoint up, and the base URL right?")
        if not isinstance(exc, anthropic.APIStatusError):
            return self.error(JudgeNonsense, "the reply is not of the API's form")
        headers = exc.response.headers
        return status_failure(
            exc.status_code, _code_of(exc), headers, who=f"judge {self.where}", usage=self.spent
        )

    def _too_late(self) -> JudgeError:
        what = f"no answer within {self.timeout_s:g} s: is the model busy, or too slow?"
        return self.error(JudgeTimeout, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The relevant parts of a message."""

    text: str
    """The input of the tool call as JSON, else the text."""
    stop_reason: str | None

    @classmethod
    def of(cls, message: Message) -> _Answer:
        """Read a message. It may be any JSON: the client does not validate it.

        Raises:
            AttributeError, TypeError, ValueError: it is not a message.
        """
        called = [json.dumps(block.input) for block in message.content if block.type == "tool_use"]
        written = [block.text for block in message.content if block.type == "text"]
        return cls(
            text=called[0] if called else "".join(written),
            stop_reason=message.stop_reason,
        )


def _code_of(exc: anthropic.APIStatusError) -> str:
    error = exc.body.get("error") if isinstance(exc.body, Mapping) else None
    return str(error.get("type") or "") if isinstance(error, Mapping) else ""


def _note_failure(exc: anthropic.APIError, call: JudgeCall) -> None:
    import anthropic

    if isinstance(exc, anthropic.APIStatusError):
        if was_turned_down(exc.status_code):
            call.turned_down()
    elif never_left(exc):
        call.stayed()


def _note_usage(message: Message, call: JudgeCall) -> None:
    call.came_from(getattr(message, "model", None))
    spent = getattr(message, "usage", None)
    if spent is not None and not hasattr(spent, "input_tokens"):
        call.took_nonsense()
        return
    details = getattr(spent, "output_tokens_details", None)
    read = getattr(spent, "cache_read_input_tokens", None) or 0
    written = getattr(spent, "cache_creation_input_tokens", None) or 0
    call.took(
        input_tokens=_sum(getattr(spent, "input_tokens", None), read, written),
        output_tokens=getattr(spent, "output_tokens", None),
        cached_tokens=read,
        reasoning_tokens=getattr(details, "thinking_tokens", None) or 0,
    )


def _sum(*parts: object) -> object:
    """Sum the counts that the API splits; return a value that is not a number unchanged."""
    total: int | float = 0
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | float) or part < 0:
            return part
        total += part
    return total


def _encodable(text: str) -> str:
    # lone surrogates cannot be encoded as UTF-8
    return text.encode("utf-8", "replace").decode()
