"""The calls that an application records: a RAG call, its retrieval and generation; feedback on an answer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_ID,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from ragtrace import semconv
from ragtrace.capture._guard import (
    Recorder,
    active,
    counts,
    first_time,
    guarded,
    hint,
    log,
    note_unread,
)
from ragtrace.capture._recording import AnsweredRecording, AnswerOf, Recording, enclosing
from ragtrace.capture._wrapping import Arguments, Parameters, called, finder, traced
from ragtrace.capture.documents import (
    MAX_CHUNKS,
    ChunkDocuments,
    chunk_documents,
    documents_in,
    prompt_messages,
    text_message,
)
from ragtrace.capture.privacy.policy import METADATA, ContentFilter, ContentPolicy
from ragtrace.capture.values import cut, finite, hook, identity, is_request, name, question_in, whole_number
from ragtrace.errors import InputError
from ragtrace.model import Part

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


F = TypeVar("F", bound=Callable[..., Any])
OfCall = Callable[..., Any]
"""Finds a value in the arguments of the decorated function, before it runs."""

DEFAULT_NAME = "rag"
MAX_METADATA = 64
"""Below the SDK's limit of 128 attributes, so that the application's keys never displace ours."""
MAX_TAGS = 64


class CallFacts(TypedDict, total=False):
    """What can be known of a RAG call beside its texts, when it begins or while it runs.

    In a decorator, a value is that of the parameter with this name, or what a function returns for the
    call's arguments. A prompt version, tag or reference that names no parameter is meant itself.
    """

    session_id: str | OfCall | None
    conversation_id: str | OfCall | None
    user_id: str | OfCall | None
    prompt_version: str | OfCall | None
    tags: str | Iterable[str] | OfCall | None
    """At most 64; those of ``update`` are added."""
    reference: str | OfCall | None
    """A reference ("ground truth") answer."""
    metadata: Mapping[str, object] | OfCall | None
    """Your own searchable keys, written as ``ragtrace.metadata.<key>``; at most 64. Those of ``update`` are
    added."""


@overload
def rag(function: F, /) -> F: ...


@overload
def rag(
    question: str | None = None,
    /,
    *,
    name: str = DEFAULT_NAME,
    answer: AnswerOf | None = None,
    parent: Recording | Span | None = None,
    **facts: Unpack[CallFacts],
) -> RagCall: ...


@overload
def rag(
    *,
    question: str | OfCall | None = None,
    name: str = DEFAULT_NAME,
    answer: AnswerOf | None = None,
    parent: Recording | Span | None = None,
    **facts: Unpack[CallFacts],
) -> RagCall: ...


def rag(
    function: F | str | None = None,
    /,
    *,
    question: str | OfCall | None = None,
    name: str = DEFAULT_NAME,
    answer: AnswerOf | None = None,
    parent: Recording | Span | None = None,
    **facts: Unpack[CallFacts],
) -> F | RagCall:
    """Record a RAG call, as a context manager or as a decorator.

    As a context manager, set the answer::

        with ragtrace.rag(question=question, session_id=session) as call:
            call.answer = respond(question)

    As a decorator, of a function or generator, sync or async, the question is the argument that asks: the one
    that ``question`` names, else one called ``question`` or the like, the last user's message of a chat, a
    request with a question, or the only text that is no id or setting. The answer is the return value, or all
    yielded pieces::

        @ragtrace.rag(session_id="conversation_id")
        def ask(question: str, conversation_id: str) -> Iterator[str]: ...

    Args:
        question: The question; in a decorator, the name of the parameter, or a function that finds the
            question in the arguments (for a Flask route: ``lambda: flask.request.json["question"]``).
        name: The name of the pipeline: ``gen_ai.workflow.name``.
        answer: Extracts the text from the returned or yielded values, if ragtrace does not find it.
        parent: The span that the call is part of, if it is not the current one.
        facts: ``session_id``, ``conversation_id``, ``user_id``, ``prompt_version``, ``tags``, ``reference``
            and ``metadata``: [`CallFacts`][ragtrace.capture.calls.CallFacts].

    Raises:
        TypeError: an argument has another name.
    """
    asked = question if function is None or callable(function) else function
    call = RagCall(asked, name, _known(facts), answer, parent)
    return call(function) if callable(function) else call


def current() -> RagCall | None:
    """Return the RAG call that this code runs in; ``None`` outside a call, or while capture is off."""
    return next((each for each in enclosing() if isinstance(each, RagCall)), None)


def update(**facts: Unpack[CallFacts]) -> None:
    """Add facts to the RAG call that this code runs in, wherever it is; nothing happens outside a call.

    Raises:
        TypeError: an argument has a name that is not in [`CallFacts`][ragtrace.capture.calls.CallFacts].
    """
    _known(facts)
    call = current()
    if call is not None:
        call.update(**facts)


def _known(facts: CallFacts) -> CallFacts:
    unknown = sorted(facts.keys() - CallFacts.__annotations__.keys())
    if unknown:
        raise TypeError(f"a RAG call has no {unknown[0]!r}: there are {', '.join(CallFacts.__annotations__)}")
    return facts


@dataclass(eq=False, repr=False)
class RagCall(AnsweredRecording):
    """A RAG call in progress, made by [`rag`][ragtrace.capture.calls.rag]."""

    span_kind: ClassVar[SpanKind] = SpanKind.INTERNAL

    _question: object
    _workflow: str
    _facts: CallFacts
    _answer_of: AnswerOf | None
    _parent: Recording | Span | None

    def __call__(self, function: F) -> F:
        """Decorate a function: each call becomes a RAG call."""
        find = finder(function, self._question)
        parameters = Parameters(function)

        def begin(given: Arguments) -> Recording:
            call = copy(self)
            asked = question_in(find(given))
            call.set_question(asked if asked is not None else _Unasked(called(function), given))
            call._facts = _of_call(self._facts, parameters, given) or {}  # noqa: SLF001 - a copy
            return call

        return traced(function, begin)

    def set_question(self, question: object) -> None:
        """Set the question, if it was unknown at the start: a string, or a request that contains one."""
        self._question = question

    def set_reference(self, text: str | None) -> None:
        """Set a reference answer."""
        self.update(reference=text)

    @guarded
    def update(self, **facts: Unpack[CallFacts]) -> None:
        """Add facts that were unknown at the start. A later value replaces an earlier one."""
        known = self._facts
        if facts.get("tags") is not None:
            facts["tags"] = [*_tags(known.get("tags")), *_tags(facts["tags"])]
        if known.get("metadata") and facts.get("metadata"):
            facts["metadata"] = {**known["metadata"], **facts["metadata"]}  # type: ignore[dict-item]
        self._facts = {**known, **facts}
        if self._open and self._span is not None and self._content_filter is not None:
            self._span.set_attributes(self._content_filter.policy.written(self._identities()))

    def _name(self, attributes: Mapping[str, AttributeValue], policy: ContentPolicy) -> str:
        return f"{semconv.OP_INVOKE_WORKFLOW} {attributes.get(semconv.WORKFLOW_NAME)}"

    def _at_start(self, policy: ContentPolicy) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            semconv.OPERATION_NAME: semconv.OP_INVOKE_WORKFLOW,
            semconv.RAG_KIND: semconv.KIND_RAG,
            semconv.WORKFLOW_NAME: policy.identifier(name(self._workflow, "name") or DEFAULT_NAME)
            or DEFAULT_NAME,
        }
        return attributes | self._identities()

    def _identities(self) -> dict[str, AttributeValue]:
        facts = self._facts
        found: dict[str, AttributeValue | None] = {
            semconv.CONVERSATION_ID: identity(facts.get("conversation_id"), "conversation id"),
            semconv.SESSION_ID: identity(facts.get("session_id"), "session id"),
            semconv.USER_ID: identity(facts.get("user_id"), "user id"),
            semconv.PROMPT_VERSION: identity(facts.get("prompt_version"), "prompt version"),
            semconv.TAGS: _tags(facts.get("tags")) or None,
        }
        return {key: value for key, value in found.items() if value is not None}

    def _at_end(self, content_filter: ContentFilter) -> dict[str, AttributeValue]:
        policy = content_filter.policy
        metadata = self._facts.get("metadata")
        attributes = (None if metadata is None else _metadata(metadata, content_filter)) or {}
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
        reference = content_filter.text(
            self._facts.get("reference"), Part.REFERENCE, policy.max_reference_bytes
        )
        if reference is not None:
            attributes[semconv.REFERENCE_ANSWER] = reference
        return attributes


@guarded
def _of_call(facts: CallFacts, parameters: Parameters, given: Arguments) -> CallFacts:
    """Return the facts of one call of a decorated function."""
    found: dict[str, object] = {}
    for key, fact in facts.items():
        if callable(fact):
            found[key] = guarded(fact)(*given.args, **given.kwargs)
        elif isinstance(fact, str) and (fact in parameters.names or key.endswith("_id")):
            found[key] = parameters.value(fact, given)
        else:
            found[key] = fact
    return found  # type: ignore[return-value]  # the same keys


def _tags(tags: object) -> list[str]:
    return _tags_in(tags) or []


@guarded
def _tags_in(tags: object) -> list[str]:
    listed = (
        [tags] if isinstance(tags, str) else tags if isinstance(tags, list | tuple | set | frozenset) else []
    )
    return [text for tag in islice(listed, MAX_TAGS) if (text := name(tag, "tag"))]


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
        counts["values_unread"] += 1
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
def _metadata(metadata: Any, content_filter: ContentFilter) -> dict[str, AttributeValue]:
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


ChunksOf = Callable[[object], object]
"""Extracts the chunks from a function's return value."""


@overload
def retrieval(function: F, /) -> F: ...


@overload
def retrieval(
    function: str | None = None,
    /,
    *,
    query: str | None = None,
    name: str | None = None,
    data_source: str | None = None,
    top_k: int | None = None,
    parent: Recording | Span | None = None,
    chunks: ChunksOf | None = None,
) -> RetrievalCall: ...


def retrieval(
    function: F | str | None = None,
    /,
    *,
    query: str | None = None,
    name: str | None = None,
    data_source: str | None = None,
    top_k: int | None = None,
    parent: Recording | Span | None = None,
    chunks: ChunksOf | None = None,
) -> F | RetrievalCall:
    """Record a retrieval, as a context manager or as a decorator.

    As a context manager, set the chunks::

        with ragtrace.retrieval(query=question, data_source="handbook") as search:
            search.set_chunks(index.search(question))

    As a decorator, the query is the parameter named by ``query`` (default: ``query``, ``question`` and the
    like, else the first string), and the chunks are the returned or yielded values.

    Args:
        query: The query; in a decorator, the name of the parameter. Also accepted as a positional argument.
        name: The name of the span, if there is no ``data_source``.
        data_source: The index or collection: ``gen_ai.data_source.id``.
        top_k: The number of requested chunks.
        parent: The RAG call, or any OpenTelemetry span, that this is part of, if it is not the current one.
        chunks: Extracts the chunks from the return value.
    """
    asked = query if function is None or callable(function) else function
    call = RetrievalCall(asked, name, data_source, top_k, chunks, parent)
    return call(function) if callable(function) else call


@dataclass(eq=False, repr=False)
class RetrievalCall(Recording):
    """A retrieval in progress, made by [`retrieval`][ragtrace.capture.calls.retrieval]."""

    span_kind: ClassVar[SpanKind] = SpanKind.CLIENT

    _query: object
    _called: str | None
    _data_source: str | None
    _top_k: int | None
    _chunks_of: ChunksOf | None
    _parent: Recording | Span | None
    _documents: ChunkDocuments | None = field(default=None, init=False)
    _yielded: list[object] | None = field(default=None, init=False)

    def __call__(self, function: F) -> F:
        """Decorate a function: each of its calls becomes a retrieval of its own."""
        find = finder(function, self._query, first=("query",))

        def begin(given: Arguments) -> Recording:
            call = copy(self)
            call.set_query(find(given))
            return call

        return traced(function, begin)

    @guarded
    def set_chunks(self, chunks: object) -> None:
        """Tell what was found, best first.

        A chunk is a [`Chunk`][ragtrace.model.Chunk], a mapping ``{"id", "text" | "content" | "page_content",
        "score", "metadata"}``, an object with such attributes, a pair of one of these and its score, or a
        string. Results of vector stores and frameworks may be given as they are. An iterator is not consumed:
        give a list.
        """
        if self._content_filter is None or chunks is None:
            return
        documents = documents_in(chunks)
        if documents is None:
            note_unread("list of chunks", chunks)
        else:
            self._documents = chunk_documents(documents, self._content_filter)

    def set_query(self, query: object) -> None:
        """Set the query, if it was unknown at the start."""
        self._query = query

    @guarded
    def take(self, piece: object) -> None:
        """Note a chunk that a decorated function yields."""
        if self._content_filter is None:
            return
        self._streaming = True
        if self._yielded is None:
            self._yielded = []
        if len(self._yielded) <= MAX_CHUNKS:
            self._yielded.append(piece)

    @guarded
    def conclude(self, result: object) -> None:
        """Note the return value of a decorated function."""
        find = hook(self._chunks_of, "function that finds chunks")
        self.set_chunks(result if find is None else find(result))

    def _name(self, attributes: Mapping[str, AttributeValue], policy: ContentPolicy) -> str:
        called = attributes.get(semconv.DATA_SOURCE_ID)
        if called is None and (given := name(self._called, "name")) is not None:
            called = policy.identifier(given)
        return semconv.OP_RETRIEVAL if called is None else f"{semconv.OP_RETRIEVAL} {called}"

    def _at_start(self, policy: ContentPolicy) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            semconv.OPERATION_NAME: semconv.OP_RETRIEVAL,
            semconv.RAG_KIND: semconv.KIND_RETRIEVAL,
        }
        source = identity(self._data_source, "data source")
        if source is not None:
            attributes[semconv.DATA_SOURCE_ID] = source
        top_k = whole_number(self._top_k, "number of chunks")
        if top_k is not None:
            attributes[semconv.RETRIEVAL_TOP_K] = top_k
        return attributes

    def _at_end(self, content_filter: ContentFilter) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {}
        # some retrievers take a vector, which is not text
        query = content_filter.text(
            question_in(self._query), Part.QUESTION, content_filter.policy.max_question_bytes
        )
        if query is not None:
            attributes[semconv.RETRIEVAL_QUERY] = query
        documents = self._documents
        if documents is None and self._yielded:
            documents = chunk_documents(self._yielded, content_filter)
        if documents is not None:
            attributes[semconv.RETRIEVAL_DOCUMENTS] = documents.document
            attributes[semconv.RAG_DOCUMENTS] = documents.elements
        return attributes


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


@dataclass(eq=False, repr=False)
class GenerationCall(AnsweredRecording):
    """A model call in progress, made by [`generation`][ragtrace.capture.calls.generation]."""

    span_kind: ClassVar[SpanKind] = SpanKind.CLIENT

    _messages: object
    _model: str | None
    _provider: str | None
    _parent: Recording | Span | None
    _answer_of: AnswerOf | None
    _finish_reason: str | None = field(default=None, init=False)
    _facts: dict[str, AttributeValue] | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)

    def __call__(self, function: F) -> F:
        """Decorate a function: each call becomes a generation."""
        find = finder(function, self._messages, first=("messages", "prompt", "input"))

        def begin(given: Arguments) -> Recording:
            call = copy(self)
            call.set_messages(find(given))
            return call

        return traced(function, begin)

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


Thumbs = Literal["up", "down"]
FEEDBACK_NAME: Final = "user_feedback"
COMMENT: Final = "comment"
"""The mark for a truncated or changed comment. It is not one of the judged parts."""


def feedback(
    trace_id: str,
    *,
    span_id: str | None = None,
    thumbs: Thumbs | bool | None = None,
    score: float | None = None,
    comment: str | None = None,
    reference: str | None = None,
    name: str = FEEDBACK_NAME,
    user_id: str | None = None,
) -> bool:
    """Record user feedback on an answer as a small span of its trace; return whether it was recorded.

    Pass the ids to the front end, and call this when the feedback arrives::

        ragtrace.feedback(trace_id, span_id=span_id, thumbs="down", comment="That is last year's price.")

    It does nothing while capture is off, and never raises. Unusable values are counted and logged once.

    Args:
        trace_id: 32 hex digits, as of a call's ``trace_id``.
        span_id: The answer's span (16 hex digits), which the feedback links to; without it, the feedback is
            about the trace.
        thumbs: ``"up"`` or ``"down"``, or ``True`` or ``False``.
        score: From 0 (bad) to 1 (good).
        comment: At most 1,800 bytes, recorded under the content policy.
        reference: The correct answer, for metrics that need a reference.
        name: The name of the rating, if you collect several.
        user_id: The user who gave the feedback.
    """
    recorder = active()
    if recorder is None:
        return False
    said = _Said(thumbs, score, comment, reference, name, user_id)
    return _record(recorder, trace_id, span_id, said) is True


class _Said(NamedTuple):
    """The caller's arguments."""

    thumbs: object
    score: object
    comment: object
    reference: object
    name: object
    user_id: object


@guarded
def _record(recorder: Recorder, trace_id: object, span_id: object, said: _Said) -> bool:
    try:
        trace = _id(trace_id, "trace_id", digits=32)
        about = INVALID_SPAN_ID if span_id is None else _id(span_id, "span_id", digits=16)
        content_filter = ContentFilter(recorder.policy, trace)
        span = _start(recorder.tracer, trace, about, _attributes(trace, about, said, content_filter))
    except InputError as exc:
        counts["feedback_refused"] += 1
        if first_time("feedback", str(exc)):
            log.warning("ragtrace: feedback was not recorded: %s", exc)
        return False
    is_recorded = span.is_recording()
    span.end()
    counts["feedback_recorded"] += is_recorded
    return is_recorded


def _id(text: object, argument: str, *, digits: int) -> int:
    if isinstance(text, str) and re.fullmatch(rf"[0-9a-fA-F]{{{digits}}}", text) and int(text, 16):
        return int(text, 16)
    raise InputError(f"`{argument}` is not an id: give {digits} hex digits, not all of them 0")


def _attributes(
    trace_id: int, span_id: int, said: _Said, content_filter: ContentFilter
) -> dict[str, AttributeValue]:
    limit = min(content_filter.policy.max_question_bytes, semconv.SAFE_STRING_BYTES)
    label, score = _label(said.thumbs), _score(said.score)
    comment = content_filter.text(said.comment, Part.QUESTION, limit, COMMENT)
    reference = content_filter.text(said.reference, Part.REFERENCE, content_filter.policy.max_reference_bytes)
    if all(each is None for each in said[:4]):
        raise InputError("the feedback is empty: give `thumbs`, `score`, `comment` or `reference`")
    asked = content_filter.policy.identifier(name(said.name, "name") or FEEDBACK_NAME) or FEEDBACK_NAME
    found: dict[str, AttributeValue | None] = {
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.FEEDBACK_NAME: asked,
        semconv.FEEDBACK_LABEL: label,
        semconv.FEEDBACK_SCORE: score,
        semconv.FEEDBACK_COMMENT: comment,
        semconv.REFERENCE_ANSWER: reference,
        semconv.USER_ID: identity(said.user_id, "user id"),
        semconv.TARGET_TRACE_ID: format_trace_id(trace_id),
        **(_annotation(asked, label, score, comment) if span_id != INVALID_SPAN_ID else {}),
        **content_filter.marks(),
    }
    return content_filter.policy.written({key: value for key, value in found.items() if value is not None})


def _label(thumbs: object) -> Thumbs | None:
    if thumbs is None:
        return None
    if thumbs is True or thumbs == "up":
        return "up"
    if thumbs is False or thumbs == "down":
        return "down"
    raise InputError('`thumbs` must be "up", "down", True or False')


def _score(score: object) -> float | None:
    if score is None:
        return None
    number = finite(score)
    if number is None or not 0 <= number <= 1:
        raise InputError("`score` must be a number from 0 to 1: map your scale to it")
    return number


def _annotation(
    asked: str, label: str | None, score: float | None, comment: str | None
) -> dict[str, AttributeValue | None]:
    """Return the feedback as OpenInference annotations (``spec/annotations.md``), if there is any."""
    if label is None and score is None and comment is None:
        return {}
    prefix = f"{semconv.OI_ANNOTATIONS}.0.annotation."
    return {
        f"{prefix}name": asked,
        f"{prefix}annotator_kind": semconv.OI_HUMAN,
        f"{prefix}label": label,
        f"{prefix}score": score,
        f"{prefix}explanation": comment,
    }


def _start(tracer: Tracer, trace_id: int, span_id: int, attributes: dict[str, AttributeValue]) -> Span:
    label = attributes.get(semconv.FEEDBACK_LABEL)
    name = semconv.FEEDBACK_SPAN if label is None else f"{semconv.FEEDBACK_SPAN} {label}"
    if span_id == INVALID_SPAN_ID:
        return _in_trace(tracer, trace_id).start_span(name, Context(), attributes=attributes)
    flags = _flags(tracer, trace_id, name)
    about = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    return tracer.start_span(
        name,
        set_span_in_context(NonRecordingSpan(about), Context()),
        attributes={**attributes, semconv.TARGET_SPAN_ID: format_span_id(span_id)},
        links=[Link(about, semconv.LINK_TO_PARENT)],
    )


def _flags(tracer: Tracer, trace_id: int, name: str) -> TraceFlags:
    """Repeat the decision of the application's sampler: feedback on an unsampled trace would be an orphan."""
    sampler = getattr(tracer, "sampler", None)
    if sampler is not None and not sampler.should_sample(Context(), trace_id, name).decision.is_sampled():
        return TraceFlags(TraceFlags.DEFAULT)
    return TraceFlags(TraceFlags.SAMPLED)


def _in_trace(tracer: Tracer, trace_id: int) -> Tracer:
    """Return a tracer whose root spans join this trace: the parent span is unknown."""
    ids = getattr(tracer, "id_generator", None)
    if ids is None:
        raise InputError("a trace id alone needs the tracer of OpenTelemetry's SDK: give `span_id` too")
    joining: Any = copy(tracer)
    joining.id_generator = _IdsOfTrace(trace_id, ids)
    return joining  # type: ignore[no-any-return]


class _IdsOfTrace:
    """An id generator with a fixed trace id and another generator's span ids."""

    def __init__(self, trace_id: int, ids: object) -> None:
        self._trace_id = trace_id
        self._ids = ids

    def generate_trace_id(self) -> int:
        return self._trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)
