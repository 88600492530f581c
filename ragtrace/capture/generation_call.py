"""The span of a generation: messages in, answer out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from opentelemetry.trace import Span, SpanKind

from ragtrace import semconv
from ragtrace.capture._guard import active, guarded
from ragtrace.capture._recording import AnsweredRecording, AnswerOf, Recording
from ragtrace.capture._wrapping import Arguments, finder, traced
from ragtrace.capture.privacy.policy import ContentFilter, ContentPolicy
from ragtrace.capture.values.messages import prompt_messages, text_message
from ragtrace.capture.values.names import identity, name, whole_number

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


F = TypeVar("F", bound=Callable[..., Any])

MAX_REASONS = 64


@overload
def generation(function: F, /) -> F: ...


@overload
def generation(
    function: str | None = None,
    /,
    *,
    model: str | None = None,
    provider: str | None = None,
    messages: object = None,
    prompt: str | None = None,
    parent: Recording | Span | None = None,
    answer: AnswerOf | None = None,
) -> GenerationCall: ...


def generation(
    function: F | str | None = None,
    /,
    *,
    model: str | None = None,
    provider: str | None = None,
    messages: object = None,
    prompt: str | None = None,
    parent: Recording | Span | None = None,
    answer: AnswerOf | None = None,
) -> F | GenerationCall:
    """Record a call of a language model, as a context manager or as a decorator.

    As a context manager, set the results::

        with ragtrace.generation(model="gpt-5-mini", provider="openai", messages=messages) as chat:
            reply = client.chat.completions.create(model="gpt-5-mini", messages=messages)
            chat.set_answer(reply.choices[0].message.content)
            chat.set_usage(input_tokens=reply.usage.prompt_tokens)

    As a decorator, the messages are the parameter named by ``messages`` or ``prompt`` (without it: a
    parameter of that name, else the first string) and the answer is what is returned, or all that is yielded.

    Args:
        model: The name of the requested model; also accepted as a positional argument.
        provider: ``openai``, ``anthropic``, …: ``gen_ai.provider.name``.
        messages: The model's input, a list of ``{"role", "content"}``; in a decorator, the name of the
            parameter.
        prompt: The same as one string.
        parent: The RAG call, or any OpenTelemetry span, that this is part of, if it is not the current one.
        answer: Extracts the text from the returned or yielded values, if they are not strings.
    """
    given = messages if messages is not None else prompt
    asked = model if function is None or callable(function) else function
    call = GenerationCall(given, asked, provider, parent, answer)
    return call(function) if callable(function) else call


class GenerationCall(AnsweredRecording):
    """A model call in progress, made by [`generation`][ragtrace.capture.generation_call.generation]."""

    span_kind: ClassVar[SpanKind] = SpanKind.CLIENT

    _finish_reason: str | None = None
    _facts: dict[str, AttributeValue] | None = None
    _started = 0.0

    def __init__(
        self,
        messages: object,
        model: str | None,
        provider: str | None,
        parent: Recording | Span | None,
        answer_of: AnswerOf | None,
    ) -> None:
        self._messages = messages
        self._model = model
        self._provider = provider
        self._parent = parent
        self._answer_of = answer_of

    def __call__(self, function: F) -> F:
        """Decorate a function: each call becomes a generation."""
        find = finder(function, self._messages, first=("messages", "prompt", "input"))

        def begin(given: Arguments) -> Recording:
            call = copy(self)
            call.set_messages(find(given))
            return call

        return traced(function, begin, self)

    @guarded
    def set_messages(self, messages: object) -> None:
        """Set the model's input, if it was unknown at the start."""
        self._messages = messages

    @guarded
    def set_usage(
        self,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        """Set the token counts: input includes cached tokens, output includes reasoning tokens."""
        if active() is None:
            return
        for key, given in (
            (semconv.USAGE_INPUT_TOKENS, input_tokens),
            (semconv.USAGE_OUTPUT_TOKENS, output_tokens),
            (semconv.USAGE_CACHE_READ_TOKENS, cached_tokens),
            (semconv.USAGE_REASONING_TOKENS, reasoning_tokens),
        ):
            count = whole_number(given, "number of tokens")
            if count is not None:
                self._note(key, count)

    @guarded
    def set_response(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the provider's word
        model: str | None = None,
        finish_reasons: str | Sequence[str] | None = None,
    ) -> None:
        """Set the provider's metadata of its reply."""
        for key, text in (
            (semconv.RESPONSE_ID, identity(id, "response id")),
            (semconv.RESPONSE_MODEL, name(model, "model")),
        ):
            if text is not None:
                self._note(key, text)
        if finish_reasons:
            listed = [finish_reasons] if isinstance(finish_reasons, str) else finish_reasons
            named = (name(reason, "finish reason") for reason in islice(listed, MAX_REASONS))
            reasons = [reason for reason in named if reason]
            self._note(semconv.RESPONSE_FINISH_REASONS, reasons)
            self._finish_reason = reasons[0] if reasons else None

    def _on_first_piece(self) -> None:
        self._note(semconv.REQUEST_STREAM, True)
        self._note(semconv.TIME_TO_FIRST_CHUNK, time.monotonic() - self._started)

    def _note(self, key: str, value: AttributeValue) -> None:
        if self._facts is None:
            self._facts = {}
        self._facts[key] = value

    def _name(self, attributes: Mapping[str, AttributeValue], policy: ContentPolicy) -> str:
        model = attributes.get(semconv.REQUEST_MODEL)
        return semconv.OP_CHAT if model is None else f"{semconv.OP_CHAT} {model}"

    def _at_start(self, policy: ContentPolicy) -> dict[str, AttributeValue]:
        self._started = time.monotonic()
        attributes = {
            semconv.OPERATION_NAME: semconv.OP_CHAT,
            semconv.RAG_KIND: semconv.KIND_GENERATION,
            semconv.PROVIDER_NAME: name(self._provider, "provider"),
            semconv.REQUEST_MODEL: name(self._model, "model"),
        }
        return {key: text for key, text in attributes.items() if text is not None}

    def _at_end(self, content_filter: ContentFilter) -> dict[str, AttributeValue]:
        attributes = self._facts or {}
        messages = prompt_messages(self._messages, content_filter)
        if messages is not None:
            attributes[semconv.INPUT_MESSAGES] = messages
        answer = self._answer_within(content_filter)
        if answer is not None:
            attributes[semconv.OUTPUT_MESSAGES] = text_message(
                "assistant",
                answer,
                self._finish_reason and content_filter.policy.identifier(self._finish_reason),
            )
        return attributes
