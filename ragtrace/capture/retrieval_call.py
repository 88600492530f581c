"""The span of a retrieval: query in, chunks out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from opentelemetry.trace import Span, SpanKind

from ragtrace import semconv
from ragtrace.capture._guard import guarded, note_unread
from ragtrace.capture._recording import Recording
from ragtrace.capture._wrapping import Arguments, finder, traced
from ragtrace.capture.privacy.policy import ContentFilter, ContentPolicy
from ragtrace.capture.values.documents import MAX_CHUNKS, ChunkDocuments, chunk_documents, documents_in
from ragtrace.capture.values.names import hook, identity, name, whole_number
from ragtrace.capture.values.questions import question_in
from ragtrace.model import Part

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


F = TypeVar("F", bound=Callable[..., Any])
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
    call = RetrievalCall(asked, name, data_source, top_k, parent, chunks)
    return call(function) if callable(function) else call


class RetrievalCall(Recording):
    """A retrieval in progress, made by [`retrieval`][ragtrace.capture.retrieval_call.retrieval]."""

    span_kind: ClassVar[SpanKind] = SpanKind.CLIENT

    _documents: ChunkDocuments | None = None
    _yielded: list[object] | None = None

    def __init__(
        self,
        query: object,
        called: str | None,
        data_source: str | None,
        top_k: int | None,
        parent: Recording | Span | None,
        chunks_of: ChunksOf | None,
    ) -> None:
        self._query = query
        self._called = called
        self._data_source = data_source
        self._top_k = top_k
        self._parent = parent
        self._chunks_of = chunks_of

    def __call__(self, function: F) -> F:
        """Decorate a function: each of its calls becomes a retrieval of its own."""
        find = finder(function, self._query, first=("query",))

        def begin(given: Arguments) -> Recording:
            call = copy(self)
            call.set_query(find(given))
            return call

        return traced(function, begin, self)

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
