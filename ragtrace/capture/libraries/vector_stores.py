"""Record the queries of vector stores as retrievals, because their instrumentors omit the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from opentelemetry import trace

from ragtrace import semconv
from ragtrace.capture._recording import Recording
from ragtrace.capture._wrapping import Argument, Arguments, traced
from ragtrace.capture.calls import ChunksOf, RetrievalCall, retrieval
from ragtrace.capture.libraries.langchain_runs import in_retriever
from ragtrace.model import Chunk

TakeBack = Callable[[], object]
Query = Callable[[Any, Arguments], RetrievalCall]
"""Makes the retrieval of one call from the called object."""


def instrument_chroma() -> TakeBack:
    """Record ``Collection.query``, sync and async, with documents, ids and distances."""
    owners = [
        import_module("chromadb.api.models.Collection").Collection,
        import_module("chromadb.api.models.AsyncCollection").AsyncCollection,
    ]
    return _all_back([_record(owner, "query", _chroma_query) for owner in owners])


def instrument_qdrant() -> TakeBack:
    """Record the queries of ``QdrantClient`` and ``AsyncQdrantClient`` with payloads, ids and scores."""
    module = import_module("qdrant_client")
    return _all_back(
        [
            _record(owner, method, _qdrant_query)
            for owner in (module.QdrantClient, module.AsyncQdrantClient)
            for method in ("query_points", "query_batch_points", "query_points_groups", "search")
            if hasattr(owner, method)
        ]
    )


def instrument_weaviate() -> TakeBack:
    """Record ``collection.query.near_text`` and the like, with properties, ids, distances or scores."""
    module = import_module("weaviate.collections.query")
    return _all_back(
        [
            _record(owner, method, _weaviate_query)
            for owner in (module._QueryCollection, module._QueryCollectionAsync)  # noqa: SLF001 - private
            for method in ("near_text", "near_vector", "near_object", "hybrid", "bm25")
            if hasattr(owner, method)
        ]
    )


def _record(owner: type, method: str, query: Query) -> TakeBack:
    """Replace a method with one that records its calls; return a function that restores it."""
    own = owner.__dict__.get(method)
    function = getattr(owner, method)

    def begin(given: Arguments) -> Recording:
        return Recording() if _in_retrieval() else query(given.args[0], given)

    recorded = traced(function, begin)
    setattr(owner, method, recorded)

    def take_back() -> None:
        if owner.__dict__.get(method) is not recorded:
            return  # another library wrapped it since: our wrapper does nothing while capture is off
        if own is None:
            delattr(owner, method)
        else:
            setattr(owner, method, own)

    return take_back


def _all_back(take_backs: Sequence[TakeBack]) -> TakeBack:
    def take_back() -> None:
        for put_back in take_backs:
            put_back()

    return take_back


def _in_retrieval() -> bool:
    """Return whether a framework or the application already records the enclosing retrieval."""
    attributes = getattr(trace.get_current_span(), "attributes", None) or {}
    return (
        in_retriever()
        or attributes.get(semconv.RAG_KIND) == semconv.KIND_RETRIEVAL
        or attributes.get(semconv.OI_KIND) == semconv.OI_RETRIEVER
    )


def _retrieval(query: object, source: object, top_k: object, chunks: ChunksOf) -> RetrievalCall:
    return retrieval(
        query if isinstance(query, str) else None,
        data_source=source if isinstance(source, str) else None,
        top_k=top_k if isinstance(top_k, int) else None,
        chunks=chunks,
    )


def _argument(given: Arguments, name: str, position: int | None = None) -> Any:
    return Argument(name, position).value(given)


def _chroma_query(collection: Any, given: Arguments) -> RetrievalCall:
    texts = _argument(given, "query_texts", 2)
    query = texts if isinstance(texts, str) else "\n".join(texts or ()) or None
    return _retrieval(query, collection.name, _argument(given, "n_results", 6) or 10, _chroma_chunks)


def _chroma_chunks(result: Any) -> list[Chunk]:
    """Read one list per query; a chunk in several of them becomes one chunk."""
    chunks: dict[str, Chunk] = {}
    for query, ids in enumerate(result["ids"]):
        texts, distances, metadatas = (
            _row(result, key, query) for key in ("documents", "distances", "metadatas")
        )
        for rank, identity in enumerate(ids):
            chunks.setdefault(
                identity,
                Chunk(
                    id=identity,
                    text=_at(texts, rank),
                    score=_at(distances, rank),
                    score_kind="distance",
                    metadata=_at(metadatas, rank) or {},
                ),
            )
    return list(chunks.values())


def _row(result: Mapping[str, Any], key: str, query: int) -> Sequence[Any]:
    return _at(result.get(key) or (), query) or ()


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _qdrant_query(_client: object, given: Arguments) -> RetrievalCall:
    query = _argument(given, "query", 2)
    asked = getattr(query, "nearest", query)  # a document, which the client or the server embeds
    return _retrieval(
        getattr(asked, "text", None),
        _argument(given, "collection_name", 1),
        _argument(given, "limit") or 10,
        _qdrant_chunks,
    )


def _qdrant_chunks(result: object) -> list[Chunk]:
    return [
        _chunk(point.id, point.payload or {}, score=getattr(point, "score", None))
        for point in _qdrant_points(result)
    ]


def _qdrant_points(result: Any) -> Iterator[Any]:
    if isinstance(result, list):
        for each in result:
            yield from _qdrant_points(each)
    elif hasattr(result, "groups"):
        for group in result.groups:
            yield from group.hits
    elif hasattr(result, "points"):
        yield from result.points
    else:
        yield result


def _weaviate_query(queries: Any, given: Arguments) -> RetrievalCall:
    query = _argument(given, "query", 1)
    text = (
        query if isinstance(query, str) or not isinstance(query, Collection) else "\n".join(map(str, query))
    )
    return _retrieval(text, getattr(queries, "_name", None), _argument(given, "limit"), _weaviate_chunks)


def _weaviate_chunks(result: Any) -> list[Chunk]:
    chunks = []
    for found in result.objects:
        distance, score, certainty = (
            getattr(found.metadata, name, None) for name in ("distance", "score", "certainty")
        )
        score = certainty if score is None else score
        if distance is not None and not score:  # a score that was not requested may be 0
            chunks.append(_chunk(found.uuid, found.properties, score=distance, score_kind="distance"))
        else:
            chunks.append(_chunk(found.uuid, found.properties, score=score))
    return chunks


TEXT_KEYS = ("text", "content", "page_content", "document", "chunk", "body")
"""Field names of a chunk's text, in this order; else the longest string is the text."""


def _chunk(
    identity: object, stored: Mapping[str, Any], *, score: float | None, score_kind: str = "similarity"
) -> Chunk:
    key = next((key for key in TEXT_KEYS if isinstance(stored.get(key), str)), None)
    if key is None:
        key = _longest(stored.items())
    rest = {name: value for name, value in stored.items() if name != key}
    return Chunk(
        id=str(identity),
        text=None if key is None else stored[key],
        score=score,
        score_kind=score_kind,
        metadata=rest,
    )


def _longest(fields: Iterable[tuple[str, object]]) -> str | None:
    texts = [(len(value), key) for key, value in fields if isinstance(value, str)]
    return max(texts, default=(0, None))[1]
