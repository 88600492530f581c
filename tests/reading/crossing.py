"""Two tables: how producers write a span, and what may be in it; `test_crossed` tries each with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from ragtrace.traces.trace import StatusCode
from tests.reading.cases import PAID, UNUSED, A, Case, Expected, Q
from tests.reading.kinds import Node, dumped, node, spans_of

# A table: a case is read more easily in few lines.
# fmt: off
Write: TypeAlias = Callable[..., Node]
"""Writes a span: its kind, what it was given and said, the spans below it."""

_KINDS = ("call", "retriever", "llm", "tool", "reranker", "guardrail", "evaluator")
_TABLE = (
    ("openinference", "openinference.span.kind", "CHAIN RETRIEVER LLM TOOL RERANKER GUARDRAIL EVALUATOR", "input.value", "output.value", str),
    ("langfuse", "langfuse.observation.type", "chain retriever generation tool reranker guardrail evaluator", "langfuse.observation.input", "langfuse.observation.output", str),
    ("mlflow", "mlflow.spanType", "CHAIN RETRIEVER CHAT_MODEL TOOL RERANKER GUARDRAIL EVALUATOR", "mlflow.spanInputs", "mlflow.spanOutputs", dumped),
    ("langsmith", "langsmith.span.kind", "chain retriever llm tool reranker guardrail evaluator", "gen_ai.prompt", "gen_ai.completion", str),
    ("traceloop", "traceloop.span.kind", "workflow task llm tool task - -", "traceloop.entity.input", "traceloop.entity.output", dumped),
    ("genkit", "genkit:metadata:subtype", "flow retriever model tool reranker guardrail evaluator", "genkit:input", "genkit:output", dumped),
    ("confident", "confident.span.type", "agent retriever llm tool reranker guardrail evaluator", "confident.span.input", "confident.span.output", str),
    ("agentops", "agentops.span.kind", "workflow retriever llm tool reranker guardrail evaluator", "agentops.entity.input", "agentops.entity.output", str),
    ("trulens", "ai.observability.span_type", "record_root retrieval generation tool reranking guardrail eval", "ai.observability.call.kwargs", "ai.observability.call.return", str),
    ("laminar", "lmnr.span.type", "DEFAULT TOOL LLM TOOL - - EVALUATOR", "lmnr.span.input", "lmnr.span.output", str),
    ("voltagent", "span.type", "agent retriever llm tool reranker guardrail evaluator", "input", "output", str),
    ("alibaba", "gen_ai.span.kind", "CHAIN RETRIEVER LLM TOOL RERANKER GUARDRAIL EVALUATOR", "input.value", "output.value", str),
)


def _row(kind_at: str, words: str, given_at: str, said_at: str, encoded: Callable[[str], str]) -> Write:
    kinds = dict(zip(_KINDS, words.split(), strict=True))

    def write(kind: str, given: object, said: object, *below: Node, name: str = "", **more: object) -> Node:
        values = {at: encoded(each) if isinstance(each, str) else dumped(each) for at, each in ((given_at, given), (said_at, said)) if each is not None}
        return node(name or {"retriever": "retriever", "tool": "search_docs", "reranker": "reranker"}.get(kind, kind), {kind_at: kinds[kind], **values}, *below, **more)

    return write


def _genai(kind: str, given: object, said: object, *below: Node, name: str = "", **more: object) -> Node:
    operation = {"call": "invoke_agent", "retriever": "retrieval", "llm": "chat", "tool": "execute_tool", "reranker": "rerank", "evaluator": "evaluation"}.get(kind, kind)
    if kind in ("call", "llm"):
        values = {"gen_ai.input.messages": given if not isinstance(given, str) else [{"role": "user", "parts": [{"type": "text", "content": given}]}], "gen_ai.output.messages": said if not isinstance(said, str) else [{"role": "assistant", "parts": [{"type": "text", "content": said}]}]}
    else:
        values = {"tool": {"gen_ai.tool.call.arguments": given, "gen_ai.tool.call.result": said}}.get(kind, {"gen_ai.retrieval.query.text": given, "gen_ai.retrieval.documents": said})
    shown = {key: each if isinstance(each, str) else dumped(each) for key, each in values.items() if each is not None}
    return node(name or operation, {"gen_ai.operation.name": operation, "gen_ai.tool.name": name or "search_docs", **shown}, *below, **more)


def _traceloop(kind: str, given: object, said: object, *below: Node, **more: object) -> Node:
    if kind != "llm":
        return _ROWS["traceloop"](kind, given, said, *below, **more)
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else given
    listed = {f"gen_ai.prompt.{i}.{key}": each for i, turn in enumerate(turns) for key, each in turn.items()}
    text = said if isinstance(said, str) else dumped(said)
    return node("openai.chat", {"llm.request.type": "chat", **listed, "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": text}, *below, **more)


def _mastra(kind: str, given: object, said: object, *below: Node, **more: object) -> Node:
    found = _genai(kind, given, said, *below, **more)
    if kind != "call":
        return found
    values = {f"mastra.agent_run.{at}": each if isinstance(each, str) else dumped(each) for at, each in (("input", given), ("output", said)) if each is not None}
    return node(found.name, {"gen_ai.operation.name": "invoke_agent", "mastra.span.type": "agent_run", **values}, *below, **more)


_ROWS: Mapping[str, Write] = {name: _row(*row) for name, *row in _TABLE}
WRITERS = {**_ROWS, "traceloop": _traceloop, "otel-genai": _genai, "mastra": _mastra}

T = "The refund policy"
D = [{"id": "a", "text": PAID}, {"id": "b", "text": UNUSED}]
"""Two documents in a common form."""


def _each(form: Callable[[str, str, float], object]) -> list[object]:
    return [form("a", PAID, 0.75), form("b", UNUSED, 0.5)]


FOUND: Mapping[str, object] = {
    "text": f"{PAID}\n\n{UNUSED}",
    "texts": [PAID, UNUSED],
    "langchain": _each(lambda i, t, s: {"page_content": t, "metadata": {"source": f"{i}.md"}, "type": "Document"}),
    "langchain-js": _each(lambda i, t, s: {"pageContent": t, "metadata": {"loc": {"lines": {"from": 1, "to": 9}}, "source": i}}),
    "langchain-pairs": _each(lambda i, t, s: [{"page_content": t, "metadata": {}}, s]),
    "langchain-lc": _each(lambda i, t, s: {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "document", "Document"], "kwargs": {"page_content": t, "metadata": {}, "type": "Document"}}),
    "langchain-repr": "[" + ", ".join(f"Document(id='{i}', metadata={{'source': '{i}.md', 'page': 3}}, page_content={t!r})" for i, t in (("a", PAID), ("b", UNUSED))) + "]",
    "langchain-pairs-repr": "[" + ", ".join(f"(Document(metadata={{'source': '{i}.md'}}, page_content={t!r}), {s})" for i, t, s in (("a", PAID, 0.75), ("b", UNUSED, 0.5))) + "]",
    "llamaindex": _each(lambda i, t, s: {"node": {"id_": i, "embedding": None, "metadata": {"file_name": "f.md"}, "relationships": {"1": {"node_id": "d", "hash": "h"}}, "text": t, "class_name": "TextNode"}, "score": s, "class_name": "NodeWithScore"}),
    "llamaindex-repr": "[" + ", ".join(f"NodeWithScore(node=TextNode(id_='{i}', embedding=None, metadata={{'file_name': 'f.md'}}, excluded_embed_metadata_keys=[], relationships={{<NodeRelationship.SOURCE: '1'>: RelatedNodeInfo(node_id='d', node_type=<ObjectType.DOCUMENT: '4'>, metadata={{}}, hash='h')}}, text={t!r}, mimetype='text/plain', start_char_idx=0, end_char_idx=9, metadata_seperator='\\n', text_template='{{metadata_str}}\\n\\n{{content}}'), score={s})" for i, t, s in (("a", PAID, 0.75), ("b", UNUSED, 0.5))) + "]",
    "haystack": {"documents": _each(lambda i, t, s: {"id": i, "content": t, "dataframe": None, "blob": None, "meta": {"file": "f.md"}, "score": s, "embedding": None})},
    "haystack-steps": {"retriever": {"documents": _each(lambda i, t, s: {"id": i, "content": t, "score": s})}},
    "chroma": {"ids": [["a", "b"]], "distances": [[0.1, 0.2]], "embeddings": None, "metadatas": [[{"source": "f"}, {"source": "g"}]], "documents": [[PAID, UNUSED]], "uris": None, "data": None, "included": ["metadatas", "documents", "distances"]},
    "chroma-get": {"ids": ["a", "b"], "embeddings": None, "documents": [PAID, UNUSED], "metadatas": [{"source": "f"}, {"source": "g"}]},
    "pinecone": {"matches": _each(lambda i, t, s: {"id": i, "score": s, "values": [], "metadata": {"text": t, "source": "f"}}), "namespace": "", "usage": {"read_units": 5}},
    "pinecone-search": {"result": {"hits": _each(lambda i, t, s: {"_id": i, "_score": s, "fields": {"chunk_text": t, "category": "policy"}})}, "usage": {"read_units": 1}},
    "qdrant": {"points": _each(lambda i, t, s: {"id": i, "version": 0, "score": s, "payload": {"text": t, "source": "f"}, "vector": None})},
    "qdrant-list": _each(lambda i, t, s: {"id": i, "version": 0, "score": s, "payload": {"page_content": t, "metadata": {"source": "f"}}}),
    "qdrant-http": {"result": _each(lambda i, t, s: {"id": i, "version": 0, "score": s, "payload": {"content": t}}), "status": "ok", "time": 0.001},
    "weaviate-graphql": {"data": {"Get": {"Chunk": _each(lambda i, t, s: {"_additional": {"id": i, "certainty": s}, "content": t})}}},
    "weaviate-v4": {"objects": _each(lambda i, t, s: {"uuid": i, "metadata": {"distance": s, "creation_time": None}, "properties": {"text": t, "source": "f"}, "references": None, "collection": "Docs"})},
    "milvus": [_each(lambda i, t, s: {"id": i, "distance": s, "entity": {"text": t, "subject": "refund"}})],
    "elastic": {"took": 3, "timed_out": False, "hits": {"total": {"value": 2, "relation": "eq"}, "max_score": 0.75, "hits": _each(lambda i, t, s: {"_index": "docs", "_id": i, "_score": s, "_source": {"text": t, "title": T}})}},
    "azure": {"@odata.context": "https://s.example/$metadata#docs", "value": _each(lambda i, t, s: {"@search.score": s, "@search.rerankerScore": 2.5, "id": i, "content": t, "sourcepage": "p.pdf#page=1"})},
    "bedrock": {"retrievalResults": _each(lambda i, t, s: {"content": {"text": t, "type": "TEXT"}, "location": {"type": "S3", "s3Location": {"uri": f"s3://b/{i}"}}, "metadata": {"x-amz-bedrock-kb-chunk-id": i}, "score": s})},
    "kendra-retrieve": {"QueryId": "q", "ResultItems": _each(lambda i, t, s: {"Id": i, "DocumentId": i, "DocumentTitle": T, "Content": t, "DocumentURI": "https://a.example", "ScoreAttributes": {"ScoreConfidence": "HIGH"}})},
    "kendra-query": {"QueryId": "q", "ResultItems": _each(lambda i, t, s: {"Id": i, "Type": "DOCUMENT", "DocumentTitle": {"Text": T, "Highlights": []}, "DocumentExcerpt": {"Text": t, "Highlights": [{"BeginOffset": 0, "EndOffset": 4}]}, "DocumentURI": "https://a.example"}), "TotalNumberOfResults": 2},
    "vertex-rag": {"contexts": {"contexts": _each(lambda i, t, s: {"sourceUri": f"gs://b/{i}", "sourceDisplayName": "f", "text": t, "score": s, "chunk": {"text": t}})}},
    "vertex-search": {"results": _each(lambda i, t, s: {"id": i, "document": {"name": f"projects/1/{i}", "id": i, "derivedStructData": {"title": T, "link": "gs://b", "extractive_answers": [{"pageNumber": "1", "content": t}]}}}), "totalSize": 2},
    "openai-store": {"object": "vector_store.search_results.page", "search_query": [Q], "data": _each(lambda i, t, s: {"file_id": i, "filename": "f.md", "score": s, "attributes": {}, "content": [{"type": "text", "text": t}]}), "has_more": False, "next_page": None},
    "cohere-rerank": {"id": "r", "results": _each(lambda i, t, s: {"document": {"text": t}, "index": 0, "relevance_score": s}), "meta": {"api_version": {"version": "2"}}},
    "jina-rerank": {"model": "m", "object": "list", "results": _each(lambda i, t, s: {"index": 0, "relevance_score": s, "document": t}), "usage": {"total_tokens": 5}},
    "tavily": {"query": Q, "follow_up_questions": None, "answer": None, "images": [], "results": _each(lambda i, t, s: {"title": T, "url": f"https://{i}.example", "content": t, "score": s, "raw_content": None}), "response_time": 1.2},
    "serp": {"search_metadata": {"id": "x", "status": "Success"}, "organic_results": _each(lambda i, t, s: {"position": 1, "title": T, "link": f"https://{i}.example", "snippet": t, "displayed_link": "https://a.example"})},
    "serper": {"searchParameters": {"q": Q, "type": "search"}, "organic": _each(lambda i, t, s: {"title": T, "link": f"https://{i}.example", "snippet": t, "position": 1}), "credits": 1},
    "brave": {"type": "search", "query": {"original": Q}, "web": {"type": "search", "results": _each(lambda i, t, s: {"title": T, "url": f"https://{i}.example", "description": t, "language": "en"})}},
    "duckduckgo": _each(lambda i, t, s: {"title": T, "href": f"https://{i}.example", "body": t}),
    "exa": {"requestId": "r", "results": _each(lambda i, t, s: {"id": f"https://{i}.example", "title": T, "url": f"https://{i}.example", "publishedDate": "2026-01-01", "author": None, "score": s, "text": t}), "costDollars": {"total": 0.005}},
    "google-cse": {"kind": "customsearch#search", "items": _each(lambda i, t, s: {"kind": "customsearch#result", "title": T, "link": f"https://{i}.example", "displayLink": "a.example", "snippet": t, "htmlSnippet": f"<b>{t}</b>"})},
    "bing": {"_type": "SearchResponse", "webPages": {"totalEstimatedMatches": 2, "value": _each(lambda i, t, s: {"id": i, "name": T, "url": f"https://{i}.example", "snippet": t, "language": "en"})}},
    "mem0": {"results": _each(lambda i, t, s: {"id": i, "memory": t, "hash": "h", "metadata": None, "score": s, "created_at": "2026-01-01", "user_id": "u"})},
    "zep": {"edges": _each(lambda i, t, s: {"uuid": i, "name": "HAS_POLICY", "fact": t, "score": s, "created_at": "2026-01-01T00:00:00Z", "source_node_uuid": "n", "target_node_uuid": "m"})},
    "dify": {"query": {"content": Q}, "records": _each(lambda i, t, s: {"segment": {"id": i, "position": 1, "content": t, "answer": None, "word_count": 9, "keywords": ["refund"], "document": {"id": "d", "name": "f.md"}}, "child_chunks": [], "score": s})},
    "dify-node": {"result": _each(lambda i, t, s: {"content": t, "title": "f.md", "url": "", "metadata": {"_source": "knowledge", "dataset_id": "d", "document_name": "f.md", "segment_id": i, "score": s}})},
    "ragflow": {"chunks": _each(lambda i, t, s: {"id": i, "content": t, "document_id": "d", "document_keyword": "f.md", "dataset_id": "x", "similarity": s, "vector_similarity": s, "term_similarity": 0.1, "positions": [[1, 2, 3]]}), "doc_aggs": [{"doc_name": "f.md", "count": 2}], "total": 2},
    "r2r": {"results": {"chunk_search_results": _each(lambda i, t, s: {"id": i, "document_id": "d", "score": s, "text": t, "metadata": {"title": "f"}}), "graph_search_results": []}},
    "vectara": {"search_results": _each(lambda i, t, s: {"text": t, "score": s, "document_id": i, "part_metadata": {"lang": "eng"}, "document_metadata": {}})},
    "langchain4j": _each(lambda i, t, s: {"textSegment": {"text": t, "metadata": {"file_name": "f.md"}}, "metadata": {"SCORE": s, "EMBEDDING_ID": i}}),
    "langchain4j-matches": {"matches": _each(lambda i, t, s: {"score": s, "embeddingId": i, "embedding": {"vector": [0.1]}, "embedded": {"text": t, "metadata": {"file": "f"}}})},
    "spring": _each(lambda i, t, s: {"id": i, "text": t, "media": None, "metadata": {"distance": 0.2, "source": "f.md"}, "score": s}),
    "semantic-kernel": {"Results": _each(lambda i, t, s: {"Record": {"Key": i, "Text": t, "ReferenceLink": "https://a.example"}, "Score": s}), "TotalCount": 2},
    "kernel-memory": {"query": Q, "noResult": False, "results": _each(lambda i, t, s: {"link": f"d/{i}", "index": "default", "documentId": i, "sourceName": "f.md", "partitions": [{"text": t, "relevance": s, "partitionNumber": 0, "lastUpdate": "2026-01-01", "tags": {}}]})},
    "typesense": {"found": 2, "hits": _each(lambda i, t, s: {"document": {"id": i, "text": t}, "highlights": [], "text_match": 57, "vector_distance": 0.2}), "out_of": 9, "page": 1},
    "algolia": {"hits": _each(lambda i, t, s: {"objectID": i, "content": t, "_highlightResult": {"content": {"value": f"<em>{t}</em>", "matchLevel": "full"}}}), "nbHits": 2, "page": 0, "query": Q},
    "meilisearch": {"hits": _each(lambda i, t, s: {"id": i, "title": T, "text": t, "_formatted": {"text": t}, "_rankingScore": s}), "query": Q, "processingTimeMs": 1},
    "solr": {"responseHeader": {"status": 0, "QTime": 5}, "response": {"numFound": 2, "start": 0, "docs": _each(lambda i, t, s: {"id": i, "text_t": [t], "title_s": T, "score": s})}},
    "vespa": {"root": {"id": "toplevel", "relevance": 1.0, "fields": {"totalCount": 2}, "coverage": {"coverage": 100}, "children": _each(lambda i, t, s: {"id": f"id:docs::{i}", "relevance": s, "source": "docs", "fields": {"sddocname": "doc", "documentid": i, "text": t}})}},
    "mongo": _each(lambda i, t, s: {"_id": {"$oid": i}, "text": t, "source": "f.md", "score": s}),
    "redis": {"total": 2, "docs": _each(lambda i, t, s: {"id": f"doc:{i}", "payload": None, "vector_score": "0.2", "content": t})},
    "supabase": _each(lambda i, t, s: {"id": i, "content": t, "metadata": {"source": "f"}, "embedding": "[0.1,0.2,0.3]", "similarity": s}),
    "rows": [[1, PAID, 0.75], [2, UNUSED, 0.5]],
    "rows-repr": f"[(1, {PAID!r}, 0.75), (2, {UNUSED!r}, 0.5)]",
    "rows-text-score": [[PAID, 0.75], [UNUSED, 0.5]],
    "turbopuffer": {"rows": _each(lambda i, t, s: {"id": i, "$dist": s, "text": t})},
    "marqo": {"hits": _each(lambda i, t, s: {"_id": i, "_score": s, "text": t, "_highlights": [{"text": t}]}), "query": Q, "limit": 2},
    "frame-split": {"columns": ["id", "text", "score"], "index": [0, 1], "data": [["a", PAID, 0.75], ["b", UNUSED, 0.5]]},
    "mcp": {"content": [{"type": "text", "text": PAID}, {"type": "text", "text": UNUSED}], "isError": False},
    "mcp-structured": {"content": [{"type": "text", "text": dumped({"result": D})}], "structuredContent": {"result": D}, "isError": False},
    "mcp-resources": {"content": [{"type": "resource", "resource": {"uri": f"kb://{i}", "mimeType": "text/plain", "text": t}} for i, t in (("a", PAID), ("b", UNUSED))]},
    "mastra": {"relevantContext": _each(lambda i, t, s: {"id": i, "text": t, "metadata": {"source": "f"}}), "sources": _each(lambda i, t, s: {"id": i, "score": s, "vector": [], "metadata": {"text": t}, "document": t})},
    "n8n": [[{"json": {"document": {"pageContent": t, "metadata": {"source": "blob"}}, "score": s}, "pairedItem": {"item": 0}} for t, s in ((PAID, 0.75), (UNUSED, 0.5))]],
    "anthropic-results": [{"type": "search_result", "source": f"kb/{i}", "title": T, "content": [{"type": "text", "text": t}], "citations": {"enabled": True}} for i, t in (("a", PAID), ("b", UNUSED))],
    "by-id": {"a": PAID, "b": UNUSED},
    "nested-answer": {"status": "success", "data": {"total": 2, "items": _each(lambda i, t, s: {"chunk_id": i, "chunk_text": t, "rank": 1})}},
    "encoded-twice": dumped(dumped(D)),
    "encoded-each": [dumped(each) for each in D],
    "encoded-inside": {"result": dumped({"documents": D})},
    "camel": {"Documents": _each(lambda i, t, s: {"Id": i, "Content": t, "Score": s})},
    "non-ascii": [{"id": "a", "text": PAID, "titel": "Rückgabe – Fristen"}, {"id": "b", "text": UNUSED, "titel": "返品"}],
    "beside-facts": _each(lambda i, t, s: {"text": t, "title": T, "summary": "On refunds.", "url": "https://a.example", "score": s, "page": 3, "author": "Kim Lee", "keywords": ["refund", "days"]}),
    "tuple-with-query": {"query": Q, "documents": D},
    "tags": f'<documents>\n<document index="1"><source>a.md</source><document_content>{PAID}</document_content></document>\n<document index="2"><source>b.md</source><document_content>{UNUSED}</document_content></document>\n</documents>',
    "flat-tags": f'<doc id="a">{PAID}</doc>\n<doc id="b">{UNUSED}</doc>',
    "json-lines": "\n".join(dumped({"text": t, "score": 0.5}) for t in (PAID, UNUSED)),
    "agno": [{"content": PAID, "meta_data": {"page": 1}, "name": "f", "id": "a", "reranking_score": None}, {"content": UNUSED, "meta_data": {"page": 2}, "name": "f", "id": "b"}],
    "strands": {"status": "success", "content": [{"json": {"results": D}}]},
    "autogen": [{"type": "FunctionExecutionResult", "content": dumped(D), "name": "search_docs", "call_id": "c", "is_error": False}],
    "autogen-memory": {"results": _each(lambda i, t, s: {"content": t, "mime_type": "text/plain", "metadata": {"source": "f", "score": s}})},
    "adk-rag": {"result": [PAID, UNUSED]},
    "letta": {"results": _each(lambda i, t, s: {"id": i, "timestamp": "2026-01-01", "content": t, "tags": []}), "count": 2},
    "foundry": {"response": [{"role": "assistant", "content": [{"type": "text", "text": dumped([{"ref_id": 0, "title": T, "content": PAID}, {"ref_id": 1, "title": T, "content": UNUSED}])}]}]},
    "llm-graph": {"nodes": _each(lambda i, t, s: {"id": i, "labels": ["Chunk"], "properties": {"text": t, "source": "f"}})},
    "neo4j": _each(lambda i, t, s: {"node": {"text": t, "id": i}, "score": s}),
    "neo4j-graphrag": {"items": _each(lambda i, t, s: {"content": t, "metadata": {"score": s, "nodeLabels": ["Chunk"], "id": i}}), "metadata": {"__retriever": "VectorRetriever"}},
    "surreal": [{"result": _each(lambda i, t, s: {"id": f"chunk:{i}", "body": t, "dist": s}), "status": "OK", "time": "1ms"}],
    "http": {"status": 200, "headers": {"content-type": "application/json"}, "data": {"results": D}},
    "lambda": {"statusCode": 200, "body": dumped({"results": D})},
}
"""What a retrieval of both documents returns."""

UNFOUND: Mapping[str, object] = {
    "empty": [],
    "empty-documents": {"documents": [], "total": 0},
    "empty-hits": {"hits": {"total": {"value": 0}, "hits": []}},
    "error": {"error": {"message": "The index was not found in this cluster.", "code": 404}},
    "error-text": {"error": "The index was not found in this cluster."},
    "detail": {"detail": "Not authenticated: the key is missing or wrong."},
    "message": {"message": "No documents match this query, try another one.", "results": []},
    "mcp-error": {"content": [{"type": "text", "text": "The index was not found in this cluster."}], "isError": True},
    "raised": "Error: ConnectionError('the host does not answer')\n Please fix your mistakes.",
    "executing": "Error executing tool search_docs: the host does not answer in time",
    "traceback": "Traceback (most recent call last):\n  File \"a.py\", line 3, in search\nValueError: there is no key",
    "exception": "ValueError: the query has to be a text of one line",
}
"""What a retrieval returns that found nothing or failed: nothing is judged."""

UNSHOWN: Mapping[str, object] = {
    "none": None,
    "ids": [{"id": "a", "score": 0.75}, {"id": "b", "score": 0.5}],
    "counts": {"count": 2, "took": 12},
    "query": {"query": "how long do refunds take in this shop"},
    "vectors": {"ids": ["a", "b"], "embeddings": [[0.1, 0.2, 0.3], [0.2, 0.3, 0.1]], "documents": None},
    "object": "<generator object search at 0x7f0123456789>",
    "redacted": "__REDACTED__",
}
"""What a retrieval returns that does not say what it found: nothing is judged. A tool's JSON is a context."""

_S = _each(lambda i, t, s: {"page_content": t, "metadata": {"source": f"{i}.md"}})
_M = {"role": "assistant", "content": A}
SAID: Mapping[str, object] = {
    "text": A,
    "string-of-json": dumped(A),
    "message": _M,
    "openai": {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": {**_M, "refusal": None, "annotations": []}, "logprobs": None, "finish_reason": "stop"}], "usage": {"total_tokens": 9}, "service_tier": "default"},
    "openai-legacy": {"object": "text_completion", "choices": [{"text": A, "index": 0, "finish_reason": "stop"}]},
    "responses": {"id": "resp", "object": "response", "status": "completed", "output": [{"id": "rs", "type": "reasoning", "summary": []}, {"id": "m", "type": "message", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": A, "annotations": []}]}], "instructions": "Be brief and polite.", "text": {"format": {"type": "text"}}},
    "responses-text": {"output_text": A, "id": "resp", "model": "m"},
    "anthropic": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "thinking", "thinking": "The policy says it takes 14 days.", "signature": "x"}, {"type": "text", "text": A}], "stop_reason": "end_turn", "usage": {"input_tokens": 1}},
    "gemini": {"candidates": [{"content": {"parts": [{"text": "I look into the policy.", "thought": True}, {"text": A}], "role": "model"}, "finishReason": "STOP", "index": 0}], "usageMetadata": {"totalTokenCount": 9}, "modelVersion": "m"},
    "converse": {"output": {"message": {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "The policy says so."}}}, {"text": A}]}}, "stopReason": "end_turn", "usage": {"totalTokens": 9}, "metrics": {"latencyMs": 9}},
    "cohere-1": {"response_id": "r", "text": A, "generation_id": "g", "citations": [{"start": 0, "end": 7, "text": A[:7], "document_ids": ["a"]}], "chat_history": [{"role": "USER", "message": Q}, {"role": "CHATBOT", "message": A}]},
    "cohere-2": {"id": "c", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": A}]}},
    "ollama": {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": _M, "done": True, "done_reason": "stop"},
    "ollama-generate": {"model": "m", "response": A, "done": True, "context": [1, 2, 3]},
    "hugging-face": [{"generated_text": A}],
    "hugging-face-chat": [{"generated_text": [{"role": "user", "content": Q}, _M]}],
    "llm-result": {"generations": [[{"text": A, "generation_info": {"finish_reason": "stop"}, "type": "ChatGeneration", "message": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": A, "type": "ai", "response_metadata": {"model_name": "m"}}}}]], "llm_output": {"model_name": "m"}, "run": None},
    "ai-message": {"content": A, "additional_kwargs": {}, "response_metadata": {"finish_reason": "stop"}, "type": "ai", "name": None, "id": "run-1", "tool_calls": []},
    "ai-message-parts": {"content": [{"type": "text", "text": A, "annotations": []}], "type": "ai", "id": "run-1"},
    "lang-graph": {"messages": [{"type": "human", "content": Q, "id": "1"}, {"type": "ai", "content": "", "tool_calls": [{"name": "search_docs", "args": {"query": "refund"}, "id": "c"}]}, {"type": "tool", "content": PAID, "tool_call_id": "c"}, {"type": "ai", "content": A, "id": "2"}]},
    "executor": {"input": Q, "output": A, "intermediate_steps": [[{"tool": "search_docs", "tool_input": "refund", "log": "Invoking it"}, PAID]]},
    "retrieval-qa": {"query": Q, "result": A, "source_documents": _S},
    "conversational": {"question": Q, "chat_history": [], "answer": A, "source_documents": _S, "generated_question": Q},
    "lcel": {"input": Q, "context": _S, "answer": A},
    "llamaindex": {"response": A, "source_nodes": [{"node": {"id_": "a", "text": PAID}, "score": 0.75}], "metadata": {"a": {"file_name": "f.md"}}},
    "llamaindex-chat": {"message": {"role": "assistant", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": A}]}, "raw": None, "delta": None, "logprobs": None, "additional_kwargs": {}},
    "haystack": {"llm": {"replies": [A], "meta": [{"model": "m", "finish_reason": "stop"}]}},
    "haystack-chat": {"llm": {"replies": [{"role": "assistant", "meta": {"model": "m"}, "name": None, "content": [{"text": A}]}]}},
    "haystack-chat-1": {"llm": {"replies": [{"_role": "assistant", "_content": [{"text": A}], "_name": None, "_meta": {"model": "m"}}]}},
    "haystack-builder": {"answer_builder": {"answers": [{"type": "haystack.dataclasses.answer.GeneratedAnswer", "init_parameters": {"data": A, "query": Q, "documents": [], "meta": {}}}]}},
    "haystack-builder-flat": {"answer_builder": {"answers": [{"data": A, "query": Q, "documents": [{"id": "a", "content": PAID}], "meta": {}}]}},
    "dspy": {"reasoning": "The policy has the refund period, which is what they ask for.", "answer": A},
    "vercel": {"text": A, "reasoning": [], "files": [], "sources": [], "toolCalls": [], "toolResults": [], "finishReason": "stop", "usage": {"totalTokens": 9}, "steps": [{"stepType": "initial", "text": A}]},
    "vercel-ui": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": Q}]}, {"id": "2", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {"q": "refund"}, "output": [PAID]}, {"type": "text", "text": A, "state": "done"}]}],
    "crew": {"raw": A, "pydantic": None, "json_dict": None, "tasks_output": [{"description": "Answer it", "name": "t", "raw": A, "agent": "clerk"}], "token_usage": {"total_tokens": 9}},
    "autogen": {"messages": [{"source": "user", "content": Q, "type": "TextMessage"}, {"source": "clerk", "content": A, "type": "TextMessage"}], "stop_reason": "Maximum number of turns 1 reached."},
    "agno": {"content": A, "content_type": "str", "run_id": "r", "agent_id": "x", "session_id": "s", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": Q}, _M], "status": "COMPLETED"},
    "strands": {"stop_reason": "end_turn", "message": {"role": "assistant", "content": [{"text": A}]}, "metrics": {"cycle_count": 1}, "state": {}},
    "agents-sdk": {"final_output": A, "last_agent": "clerk", "new_items": []},
    "adk": [{"content": {"parts": [{"text": A}], "role": "model"}, "author": "clerk", "invocation_id": "e", "id": "1"}],
    "pydantic-repr": f"AgentRunResult(output={A!r})",
    "bedrock-rag": {"sessionId": "s", "output": {"text": A}, "citations": [{"generatedResponsePart": {"textResponsePart": {"text": A, "span": {"start": 0, "end": 9}}}, "retrievedReferences": [{"content": {"text": PAID}, "location": {"type": "S3"}}]}], "guardrailAction": "NONE"},
    "semantic-kernel": {"Role": {"Label": "assistant"}, "Items": [{"$type": "TextContent", "Text": A}], "ModelId": "m"},
    "semantic-kernel-content": {"Content": A, "Role": {"Label": "assistant"}, "Metadata": {"Id": "c"}},
    "extensions-ai": {"Messages": [{"Role": "assistant", "Contents": [{"$type": "text", "Text": A}]}], "ResponseId": "r", "FinishReason": "stop"},
    "spring": {"result": {"output": {"messageType": "ASSISTANT", "metadata": {"finishReason": "STOP"}, "toolCalls": [], "media": [], "text": A}, "metadata": {"finishReason": "STOP"}}},
    "langchain4j": {"aiMessage": {"text": A, "toolExecutionRequests": []}, "metadata": {"modelName": "m", "finishReason": "STOP"}},
    "dify": {"event": "message", "task_id": "t", "message_id": "m", "mode": "chat", "answer": A, "metadata": {"usage": {"total_tokens": 9}, "retriever_resources": [{"position": 1, "content": PAID, "document_name": "f.md", "score": 0.75}]}},
    "flowise": {"text": A, "question": Q, "chatId": "c", "chatMessageId": "m", "sessionId": "s", "sourceDocuments": [{"pageContent": PAID, "metadata": {}}]},
    "lang-flow": {"session_id": "s", "outputs": [{"inputs": {"input_value": Q}, "outputs": [{"results": {"message": {"text_key": "text", "data": {"text": A, "sender": "Machine"}, "text": A}}, "component_id": "ChatOutput-1"}]}]},
    "ragflow": {"code": 0, "data": {"answer": A, "reference": {"chunks": [{"id": "a", "content": PAID}], "doc_aggs": []}, "session_id": "s"}},
    "n8n": [[{"json": {"output": A}, "pairedItem": {"item": 0}}]],
    "lambda": {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": dumped({"answer": A, "sources": ["f.md"]})},
    "graphql": {"data": {"ask": {"answer": A, "sources": [{"title": T, "url": "https://a.example"}]}}},
    "json-rpc": {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": A}]}},
    "a2a": {"kind": "task", "id": "t", "status": {"state": "completed"}, "artifacts": [{"artifactId": "x", "parts": [{"kind": "text", "text": A}]}]},
    "a2a-message": {"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": A}]},
    "bot-framework": {"type": "message", "text": A, "textFormat": "markdown", "attachments": [], "channelId": "webchat"},
    "slack": {"channel": "C1", "text": A, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": A}}]},
    "data": {"status": "success", "data": {"message": A, "conversation_id": "c"}},
    "answer-object": {"answer": {"text": A, "citations": [{"id": 1, "quote": PAID}]}},
    "pair": [A, _S],
    "pair-texts": [A, [PAID, UNUSED]],
    "answer-beside": {"answer": A, "contexts": [PAID, UNUSED], "question": Q, "latency_ms": 812},
    "reply-de": {"antwort": A, "quellen": ["f.md"], "konfidenz": 0.9},
    "camel": {"finalAnswer": A, "sourceDocuments": _S},
    "thoughts": f"<think>\nThe policy says 14 days.\n</think>\n\n{A}",
    "fenced": f"```json\n{dumped({'answer': A, 'sources': [1]})}\n```",
    "encoded-twice": dumped(dumped({"answer": A})),
    "python": repr({"answer": A, "source_documents": []}),
    "lc-output": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": A, "response_metadata": {}, "type": "ai", "id": "run-1"}},
    "generation-state": {"question": Q, "generation": A, "documents": _S, "loop_step": 1},
    "with-suggestions": {"answer": A, "suggestions": ["How do I return a lamp?", "Who pays for the return shipping?"], "title": "Refund times"},
    "langchain-str": f"content='{A}' additional_kwargs={{}} response_metadata={{}} id='run-1'",
    "lang-graph-repr": f"{{'messages': [HumanMessage(content='{Q}'), AIMessage(content='{A}', id='1')]}}",
    "llamaindex-repr": f"Response(response='{A}', source_nodes=[NodeWithScore(node=<Node 1>)])",
    "dspy-repr": f"Prediction(\n    reasoning='so',\n    answer='{A}'\n)",
    "litellm-repr": f"ModelResponse(id='c', created=1, model='m', object='chat.completion', system_fingerprint=None, choices=[Choices(finish_reason='stop', index=0, message=Message(content={A!r}, role='assistant', tool_calls=None, function_call=None))], usage=Usage(completion_tokens=5, prompt_tokens=5, total_tokens=10))",
    "openai-repr": f"ChatCompletion(id='c', choices=[Choice(finish_reason='stop', index=0, logprobs=None, message=ChatCompletionMessage(content={A!r}, refusal=None, role='assistant', annotations=[], audio=None, function_call=None, tool_calls=None))], created=1, model='m', object='chat.completion')",
    "anthropic-repr": f"Message(id='m', content=[TextBlock(citations=None, text={A!r}, type='text')], model='m', role='assistant', stop_reason='end_turn', type='message')",
    "vercel-stream": "".join(f"0:{dumped(each + ' ')}\n" for each in A.split()) + 'd:{"finishReason":"stop"}\n',
    "sse": "".join(f"data: {dumped({'choices': [{'index': 0, 'delta': {'content': each + ' '}, 'finish_reason': None}]})}\n\n" for each in A.split()) + 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n',
    "sse-vercel": "".join(f"data: {dumped({'type': 'text-delta', 'id': '1', 'delta': each + ' '})}\n\n" for each in A.split()) + 'data: {"type":"finish"}\n\ndata: [DONE]\n\n',
    "sse-dify": "".join(f"data: {dumped({'event': 'message', 'task_id': 't', 'answer': each + ' '})}\n\n" for each in A.split()) + 'data: {"event": "message_end", "metadata": {}}\n\n',
    "chunks-updates": [{"retrieve": {"documents": _S}}, {"generate": {"generation": A}}],
    "chunks-messages": [{"agent": {"messages": [{"type": "ai", "content": A}]}}],
}
"""What an application or a model returns that gives the answer."""

UNSAID: Mapping[str, object] = {
    "error": {"error": {"message": "The model is overloaded. Please try again later.", "type": "server_error", "code": 503}},
    "error-text": {"error": "Rate limit reached for requests per minute."},
    "detail": {"detail": "Internal server error, see the log."},
    "empty": {"answer": "", "sources": []},
    "null": {"answer": None},
    "refused-call": {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "search_docs", "arguments": dumped({"query": "refund of goods"})}}]},
    "ids": {"conversation_id": "c-1", "message_id": "m-1", "tokens": 812},
    "generator": "<generator object Rag.stream at 0x7f0123456789>",
    "async-generator": "<async_generator object Rag.stream at 0x7f0123456789>",
    "streaming-response": "<starlette.responses.StreamingResponse object at 0x7f0123456789>",
    "redacted": "__REDACTED__",
    "documents": D,
    "documents-below": {"documents": D},
    "results": {"results": D, "total": 2},
    "data": {"data": D},
    "output": {"output": D},
    "texts": [PAID, UNUSED],
    "context": {"context": f"{PAID}\n\n{UNUSED}"},
    "prompt": {"prompt": f"Answer from the context.\n{PAID}\n{UNUSED}\nQuestion: {Q}"},
    "queries": {"queries": ["How long does a refund take?", "When is the money back?"]},
    "route": {"route": "refunds", "reason": "The user asks how long a refund takes."},
    "tool-call": {"tool": "search_docs", "tool_input": {"query": "how long do refunds take"}},
    "flag": True,
    "object": "Response(status_code=200)",
    "message-object": "<app.models.Message object at 0x7f0123456789>",
}
"""What holds no answer: nothing is judged."""

_U = {"role": "user", "content": Q}
_OLD = [{"role": "user", "content": "Hello, I have a question."}, {"role": "assistant", "content": "Hello! Go on, please."}]
ASKED: Mapping[str, object] = {
    "text": Q,
    "message": _U,
    "messages": [_U],
    "history": [{"role": "system", "content": "You help customers of a shop."}, *_OLD, _U],
    "body": {"model": "m", "messages": [{"role": "system", "content": "You help customers."}, _U], "temperature": 0.2, "stream": True},
    "question": {"question": Q, "chat_history": []},
    "input": {"input": Q},
    "query": {"query": Q, "top_k": 5, "filters": {"lang": "en"}},
    "args": {"args": [Q], "kwargs": {"k": 4}},
    "kwargs": {"args": [], "kwargs": {"question": Q, "user_id": "u-1"}},
    "self": {"self": "<app.Rag object at 0x7f0123456789>", "question": Q},
    "message-text": {"message": Q, "session_id": "s", "user": {"id": "u", "name": "Kim Lee"}},
    "nested": {"input": {"question": Q}},
    "inputs": {"inputs": {"question": Q}, "tags": [], "metadata": {"thread_id": "t"}, "kwargs": {}},
    "traceloop": {"inputs": {"input": Q}, "tags": ["seq:step:1"], "metadata": {}, "kwargs": {"name": "chain"}},
    "haystack": {"retriever": {"query": Q}, "prompt_builder": {"question": Q}},
    "haystack-embedder": {"text_embedder": {"text": Q}, "prompt_builder": {"question": Q}, "answer_builder": {"query": Q}},
    "lang-graph": {"messages": [{"type": "human", "content": Q, "id": "1"}]},
    "lang-graph-pairs": {"messages": [["user", Q]]},
    "lc": {"messages": [[{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": Q, "type": "human"}}]]},
    "genai-parts": [{"role": "user", "parts": [{"type": "text", "content": Q}]}],
    "openai-parts": [{"role": "user", "content": [{"type": "text", "text": Q}, {"type": "image_url", "image_url": {"url": "https://a.example/i.png"}}]}],
    "responses": {"model": "m", "input": Q, "instructions": "You help customers of a shop."},
    "responses-items": {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": Q}]}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": Q}]}], "systemInstruction": {"parts": [{"text": "You help customers of a shop."}]}},
    "converse": {"modelId": "m", "messages": [{"role": "user", "content": [{"text": Q}]}], "system": [{"text": "You help customers of a shop."}]},
    "vercel-ui": {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": Q}]}], "trigger": "submit-message"},
    "crew": {"inputs": {"topic": "refunds", "question": Q}},
    "bundle": {"query_bundle": {"query_str": Q, "image_path": None, "custom_embedding_strs": None, "embedding": None}},
    "query-str": {"str_or_query_bundle": Q},
    "adk": {"new_message": {"role": "user", "parts": [{"text": Q}]}, "user_id": "u", "session_id": "s"},
    "dify": {"inputs": {}, "query": Q, "response_mode": "streaming", "conversation_id": "", "user": "abc-123"},
    "flowise": {"question": Q, "overrideConfig": {"sessionId": "s"}},
    "lambda": {"httpMethod": "POST", "path": "/ask", "headers": {"user-agent": "curl 8"}, "body": dumped({"question": Q})},
    "json-rpc": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": {"question": Q}}},
    "a2a": {"message": {"role": "user", "kind": "message", "messageId": "m", "parts": [{"kind": "text", "text": Q}]}},
    "request-repr": f"ChatRequest(message={Q!r}, session_id='s', stream=True)",
    "human-repr": f"[HumanMessage(content={Q!r}, additional_kwargs={{}}, response_metadata={{}})]",
    "python": repr({"question": Q, "history": []}),
    "encoded-twice": dumped(dumped({"question": Q})),
    "user-prompt": {"user_prompt": Q, "deps": "<app.Deps object at 0x7f01>", "message_history": None},
    "slack": {"event": {"type": "app_mention", "user": "U1", "text": Q, "channel": "C1"}, "team_id": "T1"},
    "autogen": {"task": Q},
    "n8n": [[{"json": {"sessionId": "s", "action": "sendMessage", "chatInput": Q}, "pairedItem": {"item": 0}}]],
    "beside-names": {"user_id": "u-1", "tenant": "acme corp", "text": Q},
    "langchain-str": f"content='{Q}' additional_kwargs={{}}",
    "frage": {"frage": Q, "sprache": "de", "mandant": "Musterhaus GmbH"},
    "spring": {"user": Q},
    "agno": {"run_input": {"input_content": Q}, "session_id": "s"},
    "tuple": [Q],
    "state": {"state": {"question": Q, "documents": [], "generation": ""}},
    "body-object": {"request": {"method": "POST", "url": "http://a.example/ask"}, "body": {"question": Q, "stream": False}},
}
"""How an application is given the question."""

BOTH = Expected(chunks=(PAID, UNUSED))
ONE = Expected()
LLM = "Answer from the context only.\n\nContext:\n%s\n\nQuestion: %s"
OLD, OLD_A = "Who pays return shipping?", "The shop pays for returns."


def prompt(*texts: str, question: str = Q) -> list[dict[str, str]]:
    return [{"role": "user", "content": LLM % ("\n\n".join(texts), question)}]


def flows(w: Write) -> Iterator[tuple[str, Expected | tuple[Expected, ...] | None, tuple[Node, ...]]]:
    """Yield what applications do, written by one producer."""
    found, model = w("retriever", Q, D), w("llm", prompt(PAID, UNUSED), A)

    def ask(text: str, said: str) -> Node:
        return w("llm", [{"role": "user", "content": text}], said)

    yield "plain", BOTH, (w("call", Q, A, found, model),)
    yield "rewritten", BOTH, (w("call", Q, A, ask(f"Rewrite for search: {Q}", "refund duration"), w("retriever", "refund duration", D), model),)
    yield "hyde", BOTH, (w("call", Q, A, ask(f"Write a passage that answers: {Q}", "Refunds usually take ten days at most shops."), w("retriever", "Refunds usually take ten days at most shops.", D), model),)
    yield "reranked", ONE, (w("call", Q, A, found, w("reranker", Q, D[:1]), w("llm", prompt(PAID), A)),)
    yield "two-retrievers", BOTH, (w("call", Q, A, w("retriever", Q, D[:1]), w("retriever", Q, D[1:]), model),)
    yield "same-twice", BOTH, (w("call", Q, A, found, w("retriever", "refund duration", D), model),)
    yield "nested-retrievers", BOTH, (w("call", Q, A, w("retriever", Q, D, w("retriever", Q, D[:1]), w("retriever", Q, D[1:])), model),)
    yield "tool", BOTH, (w("call", Q, A, ask(Q, "I search the policy."), w("tool", {"query": "refund"}, D), ask(Q, A)),)
    yield "two-tools", BOTH, (w("call", Q, A, w("tool", {"query": "refund"}, D), w("tool", {"city": "Bonn"}, "20 degrees and sunny.", name="get_weather"), ask(Q, A)),)
    yield "nested-call", BOTH, (w("call", Q, A, w("call", Q, A, found, model)),)
    yield "plain-root", BOTH, (node("POST /ask", {"http.route": "/ask"}, w("call", Q, A, found, model)),)
    yield "no-call", BOTH, (node("POST /ask", {}, found, model),)
    yield "judged-beside", BOTH, (w("call", Q, A, found, model), )
    yield "title-after", BOTH, (node("POST /ask", {}, w("call", Q, A, found, model), ask(f"Write a title.\nUSER: {Q}\nASSISTANT: {A}", "Refund times")),)
    yield "graded", BOTH, (w("call", Q, A, found, model, ask(f"Facts: {PAID}\nAnswer: {A}\nIs it grounded? yes or no", "yes")),)
    yield "follow-ups", BOTH, (w("call", Q, A, found, model, ask(f"The user asked: {Q}\nWe said: {A}\nSuggest three questions.", '["How?", "When?"]')),)
    yield "graded-before", BOTH, (w("call", Q, A, found, ask(f"Is this relevant to {Q}?\n{PAID}", "yes"), ask(f"Is this relevant to {Q}?\n{UNUSED}", "yes"), model),)
    yield "retried", BOTH, (w("call", Q, A, found, w("llm", prompt(PAID, UNUSED), None, status=StatusCode.ERROR), model),)
    yield "retrieval-retried", BOTH, (w("call", Q, A, w("retriever", Q, None, status=StatusCode.ERROR), found, model),)
    yield "draft", BOTH, (w("call", Q, A, found, w("llm", prompt(PAID, UNUSED), "Refunds take a while."), ask(f"{LLM % (PAID, Q)}\nDraft: Refunds take a while.\nCritique: name the days.\nWrite the final answer.", A)),)
    yield "refused", Expected(chunks=(PAID, UNUSED), answer="I'm sorry, I can't find that in the documents."), (w("call", Q, "I'm sorry, I can't find that in the documents.", found, w("llm", prompt(PAID, UNUSED), "I'm sorry, I can't find that in the documents.")),)
    yield "nothing-found", None, (w("call", Q, "I don't know.", w("retriever", Q, []), w("llm", prompt("", ""), "I don't know.")),)
    yield "failed", None, (w("call", Q, None, found, w("llm", prompt(PAID, UNUSED), None, status=StatusCode.ERROR), status=StatusCode.ERROR),)
    yield "talk", None, (w("call", "Hi", "Hello! How can I help you today?", ask("Hi", "Hello! How can I help you today?")),)
    yield "agent-without-retrieval", None, (w("call", "Weather?", "It is sunny in Bonn.", w("tool", {"city": "Bonn"}, {"temperature": 20}, name="get_weather"), ask("Weather?", "It is sunny in Bonn.")),)
    turns = (w("call", Q, A, found, model), w("call", OLD, OLD_A, w("retriever", OLD, ["Customers pay for return shipping."]), w("llm", prompt("Customers pay for return shipping.", question=OLD), OLD_A)))
    second = Expected(question=OLD, chunks=("Customers pay for return shipping.",), answer=OLD_A)
    yield "conversation", (BOTH, second), (node("session", {}, *turns),)
    yield "batch", (BOTH, second), (w("call", {"n": 2}, {"done": 2}, *turns),)
    history = [{"role": "user", "content": OLD}, {"role": "assistant", "content": OLD_A}, *prompt(PAID, UNUSED)]
    yield "history", BOTH, (w("call", Q, A, found, w("llm", history, A)),)
    yield "sub-questions", BOTH, (w("call", Q, A, w("call", "How many days?", "14 days.", w("retriever", "How many days?", D[:1]), w("llm", prompt(PAID, question="How many days?"), "14 days.")), w("call", "In what state?", "Unused.", w("retriever", "In what state?", D[1:]), w("llm", prompt(UNUSED, question="In what state?"), "Unused.")), ask(f"Question: {Q}\n14 days.\nUnused.", A)),)
    yield "guarded", BOTH, (w("call", Q, A, w("guardrail", Q, "pass", ask(f"Is this safe? {Q}", "safe")), found, model, w("guardrail", A, "pass", ask(f"Is this safe? {A}", "safe"))),)
    yield "evaluated", BOTH, (w("call", Q, A, found, model, w("evaluator", {"question": Q, "answer": A, "context": [PAID]}, {"score": 1.0}, ask(f"Context: {PAID}\nAnswer: {A}\nSupported?", '{"supported": true}'))),)
    yield "parallel", Expected(chunks=(PAID, UNUSED), answer=A), (w("call", Q, A, found, w("llm", prompt(PAID, UNUSED), "Refunds take long."), model),)
    yield "late-search", BOTH, (w("call", Q, A, found, model, w("retriever", "related pages", ["Gift wrap costs 3 euros."])),)
    yield "vision", BOTH, (w("call", [{"role": "user", "content": [{"type": "text", "text": Q}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}], A, found, model),)
    yield "map-reduce", BOTH, (w("call", Q, A, found, ask(f"Summarize for the question {Q}:\n{PAID}", "Refunds are paid in 14 days."), ask(f"Summarize for the question {Q}:\n{UNUSED}", "Goods must be unused."), ask(f"Refunds are paid in 14 days.\nGoods must be unused.\nQuestion: {Q}", A)),)
    yield "memory", BOTH, (w("call", Q, A, found, model, ask(f"Extract facts about the user.\nuser: {Q}\nassistant: {A}", '{"facts": ["Wants a refund"]}')),)


def _is_text(name: str, value: object) -> bool:
    return isinstance(value, str) and not name.endswith(("-repr", "-str"))


def _is_message(value: object) -> bool:
    listed = value if isinstance(value, list) else [value]
    return all(isinstance(each, dict) and "role" in each for each in listed)


def crossed() -> Iterator[Case]:
    """Yield each thing in each producer's spans, the rest of which is plain."""

    def case(kind: str, name: str, expected: Expected | tuple[Expected, ...] | None, *roots: Node) -> Case:
        wanted = () if expected is None else (expected,) if isinstance(expected, Expected) else expected
        return Case(name=f"{name} by {by}", kind=kind, spans=spans_of(f"{kind} {name} {by}", *roots), expected=wanted)

    for by, write in WRITERS.items():
        model = write("llm", prompt(PAID, UNUSED), A)
        for name, found in FOUND.items():
            yield case("found", name, BOTH, write("call", Q, A, write("retriever", Q, found), model))
            if name != "text" or by not in ("otel-genai", "mastra"):  # whose documents are a list
                yield case("found-alone", name, BOTH, write("call", Q, A, write("retriever", "refund", found)))
            yield case("tool", name, BOTH, write("call", Q, A, write("tool", {"query": "refund"}, found), write("llm", Q, A)))
        for name, found in (UNFOUND | UNSHOWN).items():
            if by != "laminar":  # which has no retrievers but tools
                yield case("unfound", name, None, write("call", Q, A, write("retriever", Q, found), write("llm", Q, A)))
        for name, found in UNFOUND.items():
            yield case("unfound-by-tool", name, None, write("call", Q, A, write("tool", {"query": "refund"}, found), write("llm", Q, A)))
            yield case("found-later", name, BOTH, write("call", Q, A, write("tool", {"query": "refund"}, found), write("tool", {"query": "refund"}, D), write("llm", Q, A)))
        for name, said in SAID.items():
            is_plain = _is_text(name, said) or _is_message(said)
            if by != "otel-genai" or is_plain:  # which has messages only
                yield case("said", name, BOTH, write("call", Q, said, write("retriever", Q, D), model))
                yield case("said-alone", name, BOTH, write("call", Q, said, write("retriever", Q, D)))
            if by not in ("otel-genai", "traceloop", "mastra") or is_plain:
                yield case("said-by-model", name, BOTH, write("call", Q, None, write("retriever", Q, D), write("llm", prompt(PAID, UNUSED), said)))
        for name, said in UNSAID.items():
            yield case("unsaid", name, None, write("call", Q, said, write("retriever", Q, D)))
        for name, asked in ASKED.items():
            if by != "otel-genai" or asked is Q or _is_message(asked):
                yield case("asked", name, BOTH, write("call", asked, A, write("retriever", "refund period", D), model))
                yield case("asked-alone", name, BOTH, write("call", asked, A, write("retriever", "refund period", D)))
        for name, expected, roots in flows(write):
            if (name, by) != ("reranked", "laminar"):  # which knows no rerankers
                yield case("flow", name, expected, *roots)
