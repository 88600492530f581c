"""Read tool results, which are context if the tool retrieves."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._content import (
    FoundValue,
    Place,
    cut_damage,
    is_broken_json,
    is_cut_by_tempo,
    parse_loosely,
)
from ragtrace.traces.extract._documents import find_documents, has_text, is_passage
from ragtrace.traces.extract._messages import Message, hosted_documents, messages_of, tool_messages
from ragtrace.traces.extract._payload import listed_documents
from ragtrace.traces.extract._span_reader import ToolResult

RETRIEVAL_TOOLS: Final = re.compile(
    r"retriev|search|look_?up|knowledge|vector|query_engine|(^|_|\b)rag(_|\b|$)"
    r"|graph_?(query|rag)|(find|get|fetch|query|read)_?(the_)?(doc|context|passage|chunk|article|kb|index|faq|corpus)",
    re.IGNORECASE,
)
"""The default pattern of retrieval tools' names, if the user's mapping has none."""

_WRAPPERS: Final = ("output", "outputs", "result", "data", "kwargs")
_MAX_WRAPPERS: Final = 6


def tool_documents(value: AttributeValue, at: Place) -> FoundValue[tuple[Chunk, ...]] | None:
    """Read a tool's result: documents, messages with documents, or the text for the model."""
    node = _unwrapped(value)
    if node is None or node == "":
        return None
    if is_broken_json(value, node):
        return find_documents(value, at)
    cited = hosted_documents(node, is_response=True) if isinstance(node, dict) and "citations" in node else ()
    listed = cited or listed_documents(node)
    items = listed if isinstance(listed, tuple) else (listed,)
    found = find_documents(tuple(map(_shown, items)), at)
    is_cut = isinstance(value, str) and is_cut_by_tempo(value)
    return found._replace(
        damage=cut_damage(at.attribute) if is_cut else found.damage,
        is_retrieved=isinstance(listed, tuple) and bool(listed) and all(map(is_passage, listed)),
    )


def retrieves(tool: str, result: FoundValue[tuple[Chunk, ...]] | None, tools: re.Pattern[str] | None) -> bool:
    """Return whether a tool retrieves: as the mapping says, else by its name or by the form of its result."""
    if tools is not None:
        return bool(tools.search(tool))
    return bool(RETRIEVAL_TOOLS.search(tool)) or bool(result and result.is_retrieved)


def handed_documents(messages: Sequence[Message], at: Place) -> tuple[ToolResult, ...]:
    """Read tool results from the messages of a prompt."""
    results = ((each.tool, tool_documents(each.content, at)) for each in tool_messages(messages))
    return tuple(ToolResult(tool, documents) for tool, documents in results if documents is not None)


def _unwrapped(value: AttributeValue) -> AttributeValue:
    """Unwrap the content from frameworks' messages and envelopes."""
    node = parse_loosely(value)
    for _ in range(_MAX_WRAPPERS):
        if (
            isinstance(node, tuple)
            and node
            and all(isinstance(each, dict) and tool_messages((each,)) for each in node)
        ):
            results = [each.content for each in tool_messages(messages_of(node)[0])]
            node = parse_loosely(results[0]) if len(results) == 1 else tuple(map(parse_loosely, results))
            continue
        if not isinstance(node, dict):
            break
        content = parse_loosely(node.get("content"))
        if "content" in node and ("tool_call_id" in node or node.get("type") == "tool"):
            node = content
            continue
        if isinstance(node.get("content"), str) and isinstance(content, tuple | dict):
            node = content
            continue
        if isinstance(content, tuple):  # of the Model Context Protocol
            only = content[0] if len(content) == 1 and isinstance(content[0], dict) else {}
            held = parse_loosely(only.get("text", only.get("json")))
            node = held if isinstance(held, tuple | dict) else content
            if node is content:
                break
            continue
        inner = next((node[key] for key in _WRAPPERS if node.get(key)), None)
        if inner is None or has_text(node):
            break
        node = parse_loosely(inner)
    return node


def _shown(item: AttributeValue) -> AttributeValue:
    """Return an object without text as JSON, as the model saw it."""
    if isinstance(item, dict) and not has_text(item):
        return {"text": json.dumps(item, ensure_ascii=False, default=str)}
    if isinstance(item, str):
        return {"text": item}
    return item if isinstance(item, dict) else {"text": json.dumps(item, default=str)}
