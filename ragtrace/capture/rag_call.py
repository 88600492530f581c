"""The span of a whole RAG call: question in, answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, overload

from opentelemetry.trace import SpanKind

from ragtrace import semconv
from ragtrace.capture.answer import AnswerOf, AnswerText, answer_in
from ragtrace.capture.guard import guarded
from ragtrace.capture.messages import text_message
from ragtrace.capture.policy import Passage, cut, plain_text
from ragtrace.capture.recording import Recording
from ragtrace.capture.wrapping import Argument, Arguments, traced
from ragtrace.model import Part

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

__all__ = ["RagCall", "rag"]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_NAME = "rag"
QUESTION_NAMES = ("question", "query", "q", "user_input", "input", "prompt", "message", "text")
MAX_METADATA = 64
"""Below the SDK's limit of 128 attributes: the application's keys never push out ours."""


@overload
def rag(question: F, /) -> F: ...


@overload
def rag(
    question: str | None = None,
    *,
    name: str = DEFAULT_NAME,
    session_id: str | None = None,
    conversation_id: str | None = None,
    user_id: str | None = None,
    reference: str | None = None,
    metadata: Mapping[str, object] | None = None,
    answer: AnswerOf | None = None,
) -> RagCall: ...


def rag(
    question: F | str | None = None,
    *,
    name: str = DEFAULT_NAME,
    session_id: str | None = None,
    conversation_id: str | None = None,
    user_id: str | None = None,
    reference: str | None = None,
    metadata: Mapping[str, object] | None = None,
    answer: AnswerOf | None = None,
) -> F | RagCall:
    """Record a RAG call, as a context manager or as a decorator.

    As a context manager, tell it the answer::

        with ragtrace.rag(question=question) as call:
            call.answer = respond(question)

    As a decorator, of a function or generator, sync or async, the question is the parameter named by
    ``question`` (without it: ``question``, ``query`` and the like, else the first string) and the answer is
    what is returned, or all that is yielded::

        @ragtrace.rag
        def ask(question: str) -> Iterator[str]: ...

    Args:
        question: The question; above a function, the name of its parameter.
        name: Which pipeline this is: ``gen_ai.workflow.name``.
        reference: A reference ("ground truth") answer.
        metadata: Your own searchable keys, written as ``ragtrace.metadata.<key>``; at most 64.
        answer: Finds the text in what the function returns or yields, where that is no string.
    """
    options = _Options(name, session_id, conversation_id, user_id, reference, metadata, answer)
    if callable(question):
        return RagCall(None, options)(question)
    return RagCall(question, options)


class _Options(NamedTuple):
    name: str
    session_id: str | None
    conversation_id: str | None
    user_id: str | None
    reference: str | None
    metadata: Mapping[str, object] | None
    answer_of: AnswerOf | None


class RagCall(Recording):
    """A RAG call under way: made by [`rag`][ragtrace.capture.rag_call.rag]."""

    span_kind: ClassVar[SpanKind] = SpanKind.INTERNAL

    __slots__ = ("_answer", "_options", "_question", "_reference")

    def __init__(self, question: object, options: _Options) -> None:
        super().__init__()
        self._options = options
        self._question = question
        self._reference: object = options.reference
        self._answer = AnswerText()

    def __call__(self, function: F) -> F:
        """Decorate a function: each of its calls becomes a RAG call of its own."""
        wanted = self._question if isinstance(self._question, str) else None
        argument = Argument.of(function, wanted, QUESTION_NAMES)

        def begin(given: Arguments) -> Recording:
            return RagCall(_question_in(argument.value(given)), self._options)

        return traced(function, begin)

    @property
    def answer(self) -> str | None:
        """The answer as given so far."""
        value = self._answer.value()
        return value if isinstance(value, str) else None

    @answer.setter
    def answer(self, text: str | None) -> None:
        self._answer.set(text)

    def set_answer(self, text: str | None) -> None:
        """Tell the answer, whole."""
        self._answer.set(text)

    @guarded
    def add_answer(self, piece: str) -> None:
        """Tell the next piece of a streamed answer."""
        if self._passage is not None and isinstance(piece, str):
            self._streaming = True
            self._answer.add(piece, self._passage.policy.max_answer_bytes)

    def set_question(self, text: str | None) -> None:
        """Tell the question, if it was not known at the start."""
        self._question = text

    def set_reference(self, text: str | None) -> None:
        """Tell a reference answer."""
        self._reference = text

    @guarded
    def take(self, piece: object) -> None:
        """Note a piece of what a decorated function streams."""
        self._streaming = True
        text = answer_in(piece, self._options.answer_of)
        if text is not None:
            self.add_answer(text)

    @guarded
    def conclude(self, result: object) -> None:
        """Note what a decorated function returned."""
        self._answer.set(answer_in(result, self._options.answer_of))

    def _name(self) -> str:
        return f"{semconv.OP_INVOKE_WORKFLOW} {plain_text(self._options.name)}"

    def _at_start(self) -> dict[str, AttributeValue]:
        options = self._options
        attributes: dict[str, AttributeValue] = {
            semconv.OPERATION_NAME: semconv.OP_INVOKE_WORKFLOW,
            semconv.RAG_KIND: semconv.KIND_RAG,
            semconv.WORKFLOW_NAME: plain_text(options.name),
        }
        for key, value in (
            (semconv.CONVERSATION_ID, options.conversation_id),
            (semconv.SESSION_ID, options.session_id),
            (semconv.USER_ID, options.user_id),
        ):
            if value is not None:
                attributes[key] = plain_text(value)
        return attributes

    def _at_end(self, passage: Passage) -> dict[str, AttributeValue]:
        policy = passage.policy
        attributes = _metadata(self._options.metadata, passage) if self._options.metadata else {}
        question = passage.text(self._question, Part.QUESTION, policy.max_question_bytes)
        if question is not None:
            messages = attributes[semconv.INPUT_MESSAGES] = text_message("user", question)
            if _is_long(messages):
                attributes[semconv.RAG_QUESTION] = (question,)
        answer = passage.text(self._answer.value(), Part.ANSWER, policy.max_answer_bytes)
        if answer is not None:
            messages = attributes[semconv.OUTPUT_MESSAGES] = text_message("assistant", answer)
            if _is_long(messages):
                attributes[semconv.RAG_ANSWER] = (answer,)
        reference = passage.text(self._reference, Part.REFERENCE, policy.max_answer_bytes)
        if reference is not None:
            attributes[semconv.REFERENCE_ANSWER] = reference
        return attributes


def _question_in(value: object) -> str | None:
    """Find the question in an argument: a string, a request that holds one, or the last message of a chat."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return _question_in(value[-1]) if value else None
    for name in (*QUESTION_NAMES, "content"):
        held = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if isinstance(held, str):
            return held
    return None


def _is_long(text: str) -> bool:
    size = len(text)
    return size > semconv.SAFE_STRING_BYTES or (
        not text.isascii() and len(text.encode()) > semconv.SAFE_STRING_BYTES
    )


def _metadata(metadata: Mapping[str, object], passage: Passage) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    for key, value in metadata.items():
        if len(attributes) == MAX_METADATA:
            passage.truncated("metadata")
            break
        if value is not None:
            attributes[semconv.RAG_METADATA_PREFIX + plain_text(key)] = _scalar(value, passage)
    return attributes


def _scalar(value: object, passage: Passage) -> AttributeValue:
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _INT64):
        return value
    text, _, is_cut = cut(plain_text(value), semconv.SAFE_STRING_BYTES)
    if is_cut:
        passage.truncated("metadata")
    return text


_INT64 = 2**63
