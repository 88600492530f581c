"""Read the JSON of a step's input and output, and of tools' results: a question, an answer or documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._content import (
    FoundValue,
    Place,
    broken_damage,
    cut_damage,
    first_text,
    found_text,
    in_camel_case,
    is_broken_json,
    is_cut_by_tempo,
    open_damage,
    parse_loosely,
    snake,
    text_damage,
)
from ragtrace.traces.extract._documents import (
    find_documents,
    has_text,
    is_document,
    is_passage,
    is_prose,
    is_stored,
)
from ragtrace.traces.extract._messages import (
    MESSAGES_KEYS,
    Message,
    hosted_documents,
    last_answer_text,
    last_user_text,
    listed_documents,
    message_text,
    messages_of,
    tool_messages,
)
from ragtrace.traces.extract._prompts import QUESTION_MARKS, REPLY_ABROAD
from ragtrace.traces.extract._span_reader import ToolResult
from ragtrace.traces.extract._streams import joined_tokens
from ragtrace.traces.trace import Span

_MAX_WRAPPERS: Final = 6
_QUESTION_KEYS: Final = ("question", "query", "input", "user_input", "query_str", "inputs", "user_query")
_QUESTION_NAME: Final = re.compile(
    r"question|query|utterance|^(user|human|customer|current|last|new|chat)_?(message|text|prompt|turn)$|^(message|prompt|ask)$",
    re.IGNORECASE,
)
_REPLY_KEYS: Final = ("answers", "replies", "choices", "generations")
_ANSWER_KEYS: Final = ("answer", "output", "result", "response", *_REPLY_KEYS)
_OTHER_ANSWER_KEYS: Final = ("message", "data", "outputs", "text", "body", "final_output", "raw", "value")
ANSWER_NAME: Final = re.compile(
    r"(^|_)(final_?)?(answer|response|reply|replies|generation|completion)(_text|_to_\w+)?$"
    rf"|^(\w+_)?{REPLY_ABROAD}(_\w+)?$",
    re.IGNORECASE,
)
RESULT_NAME: Final = re.compile(
    r"(^|_)(output|result|text|content|message|choices|final|summary)$", re.IGNORECASE
)
ASIDE_NAME: Final = re.compile(
    r"(^|_)(reasoning|rationale|thoughts?|thinking|analysis|sources?|citations?|references?|quotes?|evidence"
    r"|context|contexts|documents?|docs|chunks?|passages?|question|query|queries|input|inputs|prompt|history"
    r"|user|user_message|title|tags?|id|ids|url|urls|model|language|lang|channel|status|confidence|follow_?ups?"
    r"|suggest\w*|metadata|memory|role|type|name|intent|topic|sql|error)$",
    re.IGNORECASE,
)
_PROMPT_KEYS: Final = ("prompt", "input", "inputs", "kwargs")
_SYSTEM_KEYS: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_SYNTHESIS: Final = "text_chunks"


def question_in(value: AttributeValue, at: Place) -> FoundValue[str] | None:
    """Read the question of an input: a string, a usual key, the only string, or the last user message."""
    return _text_in(value, at, _question)


def answer_in(value: AttributeValue, at: Place) -> FoundValue[str] | None:
    """Read the answer of an output: a string, a usual key, or the model's last message."""
    return _text_in(value, at, answer_of)


def _text_in(
    value: AttributeValue, at: Place, read: Callable[[AttributeValue, int], tuple[str | None, str]]
) -> FoundValue[str] | None:
    parsed = parse_loosely(value)
    if is_broken_json(value, parsed):
        return FoundValue(None, at, "its text", broken_damage(value, at.attribute))
    text, how = read(in_camel_case(parsed), 0)
    if damage := open_damage(parsed, at.attribute):
        return FoundValue(text or None, at, how, damage)
    return found_text(text or None, at, how, value)


def documents_in(value: AttributeValue, at: Place) -> FoundValue[tuple[Chunk, ...]]:
    """Read the documents of an output, under any key."""
    return find_documents(listed_documents(value), at)


def returned_documents(value: AttributeValue, at: Place) -> FoundValue[tuple[Chunk, ...]] | None:
    """Read what a retriever returned: documents under any key, or one text; ``None`` without any text."""
    node = parse_loosely(value)
    if is_prose(node) and not is_broken_json(value, node) and listed_documents(node) == node:
        node = ({"text": node},)
    found = documents_in(node, at)
    is_empty = node == () and found.damage is None
    return found if is_empty or any(chunk.text for chunk in found.value or ()) else None


def prompt_in(value: AttributeValue, at: Place) -> FoundValue[tuple[Message, ...]] | None:
    """Read a model's input: messages, with a separate system prompt, or one string."""
    parsed = parse_loosely(value)
    if is_broken_json(value, parsed):
        return FoundValue(messages_of(value)[0], at, damage=broken_damage(value, at.attribute))
    messages = _prompt_messages(in_camel_case(parsed))
    if not messages:
        return None
    is_cut = any(
        isinstance(each, str) and is_cut_by_tempo(each) for each in (value, *map(message_text, messages))
    )
    return FoundValue(messages, at, damage=cut_damage(at.attribute) if is_cut else None)


def _prompt_messages(node: AttributeValue) -> tuple[Message, ...]:
    if isinstance(node, str):
        return ({"role": "user", "content": node},) if node else ()
    if isinstance(node, dict) and "role" not in node and not any(key in node for key in MESSAGES_KEYS):
        text = next((node[key] for key in _PROMPT_KEYS if node.get(key)), None)
        listed = _prompt_messages(parse_loosely(text)) if text is not None else ()
    else:
        listed, _ = messages_of(node)
    system = (
        next((node[key] for key in _SYSTEM_KEYS if node.get(key)), None) if isinstance(node, dict) else None
    )
    if isinstance(system, dict):
        system = system.get("parts")
    return ({"role": "system", "content": system}, *listed) if system and listed else listed


def texts_for_synthesis(span: Span, key: str) -> tuple[AttributeValue, ...]:
    """Read the input texts of a LlamaIndex synthesizer, which are the final chunks."""
    raw = span.attributes.get(key)
    parsed = parse_loosely(raw) if isinstance(raw, str) and _SYNTHESIS in raw else None
    texts = parsed.get(_SYNTHESIS) if isinstance(parsed, dict) else None
    return texts if isinstance(texts, tuple) else ()


def handed_on(span: Span, key: str) -> AttributeValue:
    """Return the input documents of a LangChain step, with the ids that retrievers' spans omit."""
    raw = span.attributes.get(key)
    parsed = parse_loosely(raw) if isinstance(raw, str) and '"page_content"' in raw else None
    return listed_documents(parsed.get("inputs")) if isinstance(parsed, dict) else None


def returns_documents(span: Span, key: str) -> bool:
    """Return whether a decorated function returned documents: then its name decides, like a tool's."""
    listed = listed_documents(first_text(span, key))
    return isinstance(listed, tuple) and bool(listed) and all(map(is_document, listed))


def _question(node: AttributeValue, depth: int) -> tuple[str | None, str]:
    if isinstance(node, str):
        return last_user_text(({"role": "user", "content": node},)) or node, "its text"
    if depth > _MAX_WRAPPERS:
        return None, ""
    if isinstance(node, dict):
        return _question_in_mapping(node, depth)
    only = node[0] if isinstance(node, tuple) and len(node) == 1 else None
    if isinstance(only, str | tuple) or (isinstance(only, dict) and only.keys().isdisjoint(("role", "type"))):
        return _question(only, depth + 1)
    text = last_user_text(messages_of(node)[0])
    parsed = parse_loosely(text) if text and text.lstrip()[:1] == "{" else None
    if isinstance(parsed, dict) and any(name in parsed for name in _QUESTION_KEYS):  # a chain's input
        text, _ = _question(parsed, 1)
    return text, "the last message of the user"


def _question_in_mapping(node: Mapping[str, AttributeValue], depth: int) -> tuple[str | None, str]:
    if "kwargs" in node and "args" in node:  # a call of a Python function
        args = node["args"] if isinstance(node["args"], tuple) else ()
        texts = (each for each in args if isinstance(each, str) and each and text_damage(each, "") is None)
        if first := next(texts, None):
            return first, "the first argument"
        found = (_question(each, depth + 1) for each in (node["kwargs"], *args))
        return next((each for each in found if each[0]), (None, ""))
    name = next((name for name in _QUESTION_KEYS if node.get(name)), None)
    if name is not None:
        text, how = _question(parse_loosely(node[name]), depth + 1)
        return text, how if how.startswith("the last") else f"`{name}` in its JSON"
    text = last_user_text(messages_of(node)[0])
    if text or "role" in node:
        return text, "the last message of the user"
    text, how = _question_by_its_name(node)
    if isinstance(body := parse_loosely(text), dict):
        return _question(body, depth + 1)
    if text is None or " " not in text.strip():
        below = _asked_below(node, _QUESTIONS) or _asked_below(node, _INPUTS)
        text, how = (below, "the question in its JSON") if below else (text, how)
    return text, how


def _question_by_its_name(node: Mapping[str, AttributeValue]) -> tuple[str | None, str]:
    texts = [
        (key, value)
        for key, value in node.items()
        if isinstance(value, str) and value and not _ID.search(key)
    ]
    if len(texts) == 1:
        return texts[0][1], f"`{texts[0][0]}`, the only text in its JSON"
    named = [(key, value) for key, value in texts if _QUESTION_NAME.search(key)]
    prose = named or [(key, value) for key, value in texts if " " in value.strip()]
    if len(prose) > 1 and not named:
        prose = [(key, value) for key, value in prose if value.strip()[-1:] in QUESTION_MARKS]
    return (prose[0][1], f"`{prose[0][0]}` in its JSON") if len(prose) == 1 or named else (None, "")


_ID: Final = re.compile(r"(^|[a-z_])(id|Id|ID|uuid|key|token|session|url|lang|locale|model)$")


def _asked_below(node: AttributeValue, names: re.Pattern[str], depth: int = 0) -> str | None:
    """Return the user's message in an envelope of unknown keys, else what has one of these names."""
    if depth > _MAX_WRAPPERS:
        return None
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, tuple) else ():
        if not isinstance(value, dict | tuple):
            continue
        texts = value.items() if isinstance(value, dict) and "role" not in value else ()
        named = (each for key, each in texts if isinstance(each, str) and names.fullmatch(snake(key)))
        found = last_user_text(messages_of(value)[0]) or next(filter(None, named), None)
        if found or (found := _asked_below(value, names, depth + 1)):
            return found
    return None


_QUESTIONS: Final = re.compile(r"(user_?)?(question|query)(_str)?", re.IGNORECASE)
_INPUTS: Final = re.compile(
    r"(\w+_)?(question|query|prompt|message|input|content|text)s?(_content|_text)?", re.IGNORECASE
)


def answer_of(node: AttributeValue, depth: int = 0) -> tuple[str | None, str]:
    """Return the answer in what a call returned, and how it is told: by names of keys, or in messages."""
    if isinstance(node, str):
        return node, "its text"
    if depth > _MAX_WRAPPERS or not node or not isinstance(node, dict | tuple):
        return None, ""
    if isinstance(node, tuple):
        if text := joined_tokens(node):
            return text, "the pieces of its text"
        if text := last_answer_text(messages_of(node)[0]):
            return text, "the last message of the model"
        are_parts = all(isinstance(each, dict) and "type" in each for each in node)
        if are_parts and (text := message_text({"role": "assistant", "content": node})):
            return text, "the text of its parts"
        if all(map(is_stored, node)) or (len(node) > 1 and all(map(is_prose, node))):
            return None, ""  # what was found, not what was said
        return _first_answer((node[0], *node[:0:-1]), depth)  # the first choice, else the last update
    if text := message_text(node):
        return text, "the text of the message"
    keys = [key for key in node if ANSWER_NAME.search(snake(key))]
    for name in (*_ANSWER_KEYS, *keys, *_OTHER_ANSWER_KEYS, *filter(RESULT_NAME.search, node)):
        if node.get(name):
            held = parse_loosely(node[name])
            if isinstance(held, tuple) and name in _REPLY_KEYS and isinstance(held[0], str):
                held = held[0]
            text, how = answer_of(held, depth + 1)
            if text:
                return text, how if how.startswith("the last") else f"`{name}` in its JSON"
    if text := last_answer_text(messages_of(node)[0]):
        return text, "the last message of the model"
    inner = [each for key, each in node.items() if not ASIDE_NAME.search(snake(key)) and key != "errors"]
    return _first_answer([each for each in reversed(inner) if isinstance(each, dict | tuple)], depth)


def _first_answer(nodes: Sequence[AttributeValue], depth: int) -> tuple[str | None, str]:
    found = (answer_of(each, depth + 1) for each in nodes)
    return next((each for each in found if each[0]), (None, ""))


RETRIEVAL_TOOLS: Final = re.compile(
    r"retriev|search|look_?up|knowledge|vector|query_engine|(^|_|\b)rag(_|\b|$)"
    r"|graph_?(query|rag)|(find|get|fetch|query|read)_?(the_)?(doc|context|passage|chunk|article|kb|index|faq|corpus)",
    re.IGNORECASE,
)
"""The default pattern of retrieval tools' names, if the user's mapping has none."""


def tool_documents(value: AttributeValue, at: Place) -> FoundValue[tuple[Chunk, ...]] | None:
    """Read a tool's result: documents, messages with documents, or the text for the model."""
    node = parse_loosely(value)
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


def _shown(item: AttributeValue) -> AttributeValue:
    """Return an object without text as JSON, as the model saw it."""
    if isinstance(item, dict) and has_text(item):
        return item
    return {"text": item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)}
