"""The span of a whole RAG call: question in, answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, overload

from opentelemetry.trace import SpanKind

from ragtrace import semconv
from ragtrace.capture._answer import AnsweredRecording, AnswerOf
from ragtrace.capture._guard import count_unread, guarded, note_unread
from ragtrace.capture._hints import hint
from ragtrace.capture._recording import Recording
from ragtrace.capture._wrapping import Arguments, called, finder, traced
from ragtrace.capture.privacy.policy import METADATA, ContentFilter, ContentPolicy, cut
from ragtrace.capture.values.messages import text_message
from ragtrace.capture.values.names import identity, name
from ragtrace.capture.values.questions import is_request, question_in
from ragtrace.model import Part

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


F = TypeVar("F", bound=Callable[..., Any])
QuestionOf = Callable[..., object]
"""Finds the question in the arguments of the decorated function, before it runs."""

DEFAULT_NAME = "rag"
MAX_METADATA = 64
"""Below the SDK's limit of 128 attributes, so that the application's keys never displace ours."""


@overload
def rag(function: F, /) -> F: ...


@overload
def rag(
    question: str | None,
    /,
    *,
    name: str = DEFAULT_NAME,
    session_id: str | None = None,
    conversation_id: str | None = None,
    user_id: str | None = None,
    reference: str | None = None,
    metadata: Mapping[str, object] | None = None,
    answer: AnswerOf | None = None,
) -> RagCall: ...


@overload
def rag(
    *,
    question: str | QuestionOf | None = None,
    name: str = DEFAULT_NAME,
    session_id: str | None = None,
    conversation_id: str | None = None,
    user_id: str | None = None,
    reference: str | None = None,
    metadata: Mapping[str, object] | None = None,
    answer: AnswerOf | None = None,
) -> RagCall: ...


def rag(
    function: F | str | None = None,
    /,
    *,
    question: str | QuestionOf | None = None,
    name: str = DEFAULT_NAME,
    session_id: str | None = None,
    conversation_id: str | None = None,
    user_id: str | None = None,
    reference: str | None = None,
    metadata: Mapping[str, object] | None = None,
    answer: AnswerOf | None = None,
) -> F | RagCall:
    """Record a RAG call, as a context manager or as a decorator.

    As a context manager, set the answer::

        with ragtrace.rag(question=question) as call:
            call.answer = respond(question)

    As a decorator, of a function or generator, sync or async, the question is the parameter named by
    ``question`` (default: ``question``, ``query`` and the like, else the first string), and the answer is the
    return value, or all yielded pieces::

        @ragtrace.rag
        def ask(question: str) -> Iterator[str]: ...

    Args:
        question: The question; in a decorator, the name of the parameter, or a function that finds the
            question in the arguments (for a Flask route: ``lambda: flask.request.json["question"]``).
        name: The name of the pipeline: ``gen_ai.workflow.name``.
        reference: A reference ("ground truth") answer.
        metadata: Your own searchable keys, written as ``ragtrace.metadata.<key>``; at most 64.
        answer: Extracts the text from the returned or yielded values, if ragtrace does not find it.
    """
    asked = question if function is None or callable(function) else function
    call = RagCall(asked, name, session_id, conversation_id, user_id, reference, metadata, answer)
    return call(function) if callable(function) else call


class RagCall(AnsweredRecording):
    """A RAG call in progress, made by [`rag`][ragtrace.capture.rag_call.rag]."""

    span_kind: ClassVar[SpanKind] = SpanKind.INTERNAL

    def __init__(
        self,
        question: object,
        workflow: str,
        session_id: str | None,
        conversation_id: str | None,
        user_id: str | None,
        reference: str | None,
        metadata: Mapping[str, object] | None,
        answer_of: AnswerOf | None,
    ) -> None:
        self._question = question
        self._workflow = workflow
        self._session_id = session_id
        self._conversation_id = conversation_id
        self._user_id = user_id
        self._reference: object = reference
        self._metadata = metadata
        self._answer_of = answer_of

    def __call__(self, function: F) -> F:
        """Decorate a function: each call becomes a RAG call."""
        find = finder(function, self._question)

        def begin(given: Arguments) -> Recording:
            call = copy(self)
            asked = question_in(find(given))
            call.set_question(asked if asked is not None else _Unasked(called(function), given))
            return call

        return traced(function, begin, self)

    def set_question(self, question: object) -> None:
        """Set the question, if it was unknown at the start: a string, or a request that contains one."""
        self._question = question

    def set_reference(self, text: str | None) -> None:
        """Set a reference answer."""
        self._reference = text

    def _name(self, attributes: Mapping[str, AttributeValue]) -> str:
        return f"{semconv.OP_INVOKE_WORKFLOW} {attributes.get(semconv.WORKFLOW_NAME)}"

    def _at_start(self, policy: ContentPolicy) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            semconv.OPERATION_NAME: semconv.OP_INVOKE_WORKFLOW,
            semconv.RAG_KIND: semconv.KIND_RAG,
            semconv.WORKFLOW_NAME: policy.identifier(name(self._workflow, "name") or DEFAULT_NAME),
        }
        for key, value in (
            (semconv.CONVERSATION_ID, identity(self._conversation_id, "conversation id")),
            (semconv.SESSION_ID, identity(self._session_id, "session id")),
            (semconv.USER_ID, identity(self._user_id, "user id")),
        ):
            if value is not None:
                attributes[key] = policy.identifier(value)
        return attributes

    def _at_end(self, content_filter: ContentFilter) -> dict[str, AttributeValue]:
        policy = content_filter.policy
        attributes = (None if self._metadata is None else _metadata(self._metadata, content_filter)) or {}
        question = content_filter.text(_asked(self._question), Part.QUESTION, policy.max_question_bytes)
        if question is not None:
            messages = attributes[semconv.INPUT_MESSAGES] = text_message("user", question)
            if _is_long(messages):
                attributes[semconv.RAG_QUESTION] = (question,)
        answer = self._answer_within(content_filter)
        if answer is not None:
            messages = attributes[semconv.OUTPUT_MESSAGES] = text_message("assistant", answer)
            if _is_long(messages):
                attributes[semconv.RAG_ANSWER] = (answer,)
        reference = content_filter.text(self._reference, Part.REFERENCE, policy.max_reference_bytes)
        if reference is not None:
            attributes[semconv.REFERENCE_ANSWER] = reference
        return attributes


@guarded
def _asked(question: object) -> str | None:
    if question is None or type(question) is str:
        return question
    if isinstance(question, _Unasked):
        return _asked_meanwhile(question)
    text = question_in(question)
    if text is None:
        note_unread("question", question)
    return text


class _Unasked(NamedTuple):
    """A call whose question was not found when it began."""

    function: str
    given: Arguments


def _asked_meanwhile(call: _Unasked) -> str | None:
    """Search a request again: Starlette's has a body only after the function has read it."""
    given = (*call.given.args, *call.given.kwargs.values())
    text = next((text for value in given if is_request(value) and (text := question_in(value))), None)
    if text is None:
        count_unread()
        hint(
            f"question of {call.function}",
            f"no argument of {call.function} is surely the question, so none is recorded: name it with "
            "@ragtrace.rag(question=…), as a parameter's name or a function of the arguments",
        )
    return text


def _is_long(text: str) -> bool:
    size = len(text)
    return size > semconv.SAFE_STRING_BYTES or (
        not text.isascii() and len(text.encode()) > semconv.SAFE_STRING_BYTES
    )


@guarded
def _metadata(metadata: Mapping[str, object], content_filter: ContentFilter) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    budget = content_filter.policy.max_metadata_bytes
    for number, (key, value) in enumerate(content_filter.metadata(metadata).items()):
        called, scalar = (
            content_filter.metadata_value(key, Part.QUESTION, METADATA),
            _scalar(value, content_filter),
        )
        budget -= len(f"{called}{scalar}".encode())
        if len(attributes) == MAX_METADATA or number == 2 * MAX_METADATA or budget < 0:
            content_filter.truncated(METADATA)
            break
        if called is not None and scalar is not None:
            attributes[semconv.RAG_METADATA_PREFIX + _short(called, content_filter)] = (
                _short(scalar, content_filter) if isinstance(scalar, str) else scalar
            )
    return attributes


@guarded
def _scalar(value: object, content_filter: ContentFilter) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) and abs(value) < content_filter.longest_number:
        return int(value)
    return content_filter.metadata_value(value, Part.QUESTION, METADATA)


def _short(text: str, content_filter: ContentFilter) -> str:
    kept, _, is_cut = cut(text, semconv.SAFE_STRING_BYTES)
    if is_cut:
        content_filter.truncated(METADATA)
    return kept
