"""Read text from chat messages, in OpenTelemetry's parts form and in the providers' own forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ragtrace.model import AttributeValue
from ragtrace.traces.extract._content import in_camel_case, parse_loosely, recover_elements
from ragtrace.traces.extract._documents import (
    OF_QUESTIONS,
    documents_in_repr,
    has_text,
    is_document,
    is_prose,
    plain,
    text_in,
)
from ragtrace.traces.extract._passages import documents_in_tags
from ragtrace.traces.trace import Span

Message = Mapping[str, AttributeValue]


class ToolMessage(NamedTuple):
    """A tool result, as a prompt repeats it."""

    tool: str | None
    """The tool's name, if the message or its tool call has it."""
    content: AttributeValue


class ChatTurn(NamedTuple):
    """A message of the system, the user or the model."""

    role: str
    """``system``, ``user`` or ``assistant``, normalized."""
    text: str


_SYSTEM_ROLES = frozenset({"system", "developer"})
_USER_ROLES = frozenset({"user", "human"})
_TOOL_ROLES = frozenset({"tool", "function", "function_call_output", "mcp_call"})
_CALL_TYPES = ("tool_call", "tool_use", "function_call", "function", "tool-call", "mcp_tool_use")
_RESULT_TYPES = (
    "tool_call_response",
    "tool_result",
    "function_call_output",
    "tool-result",
    "mcp_tool_result",
)
_ANSWER_ROLES = frozenset({"assistant", "ai", "model", "chatbot", "bot"})
_PARTS_BY_KEY = {
    "toolUse": "tool_call",
    "function_call": "tool_call",
    "functionCall": "tool_call",
    "toolRequest": "tool_call",
    "toolResult": "tool_call_response",
    "function_response": "tool_call_response",
    "functionResponse": "tool_call_response",
    "toolResponse": "tool_call_response",
    "reasoningContent": "reasoning",
}
"""Parts without a type, such as Bedrock's and Gemini's: ``{"toolUse": {…}}``."""
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE_EVENT = "gen_ai.choice"
_SEARCHES = re.compile(
    r"server_tool_call_response|(file|web|document)_search(_tool)?_(call|result)|.*_search_tool_result"
)
"""Types of parts that hold what the provider's own search found."""
_GIVEN = ("documents", "docs")
"""Plain keys of documents that a request or a response lists."""
_RETURNED = (
    *("searchresults", "groundingchunks", "retrievedreferences", "retrievalresults"),
    *("retrieverresources", "sourceattributions", "sourcedocuments"),
)
_CITING = ("citations", "annotations")
"""Plain keys of what a message cites. Outside a message, a model may have written them itself."""
_OF_OTHERS = ("tools", "functions", "toolcalls", "toolresults", "arguments", "functionresponse", "toolresult")
_OF_TOOLS = (*_TOOL_ROLES, *_CALL_TYPES, *_RESULT_TYPES)
_NESTED = (tuple, dict)
_DEEPEST = 12
MESSAGES_KEYS = ("messages", "contents", "candidates", "choices", "output")
"""Where a request or a response of a provider has its messages."""
_PARTS_KEYS = ("parts", "content", "_content")
_PARTS_KEYS_OF_ROLES = ("text", "blocks", "contents", "items")
_TEXT_TYPES = ("text", "input_text", "output_text")
_PARTS_AS_JSON = tuple(f'[{{"type":{space}"{kind}"' for space in ("", " ") for kind in _TEXT_TYPES)


def messages_of(value: AttributeValue) -> tuple[tuple[Message, ...], bool]:
    """Read a list of messages: structured, as one JSON string, or as one JSON string per element.

    Return also whether it was complete; a truncated list keeps its complete messages.
    """
    parsed = in_camel_case(parse_loosely(value))
    is_whole = not isinstance(parsed, str)
    if isinstance(parsed, str):
        parsed = recover_elements(parsed)
    if isinstance(parsed, dict):
        inner = next((parsed[key] for key in MESSAGES_KEYS if isinstance(parsed.get(key), tuple)), None)
        parsed = (parsed,) if inner is None else inner
    return _flat(parsed if isinstance(parsed, tuple) else ()), is_whole


def event_messages(span: Span, *, choices: bool) -> tuple[tuple[Message, ...], str]:
    """Read the messages that events hold, in their order: what the model was given, or what it said.

    Return also the name of the events. Without an event for the choice, the answer is what the assistant said
    after the user's last message.
    """
    found: list[tuple[str, Message]] = []
    for event in span.events:
        role = _EVENT_ROLES.get(event.name, "assistant" if event.name == _CHOICE_EVENT else "")
        if role:
            found.append((event.name, _event_message(event.attributes, role)))
    said = [(name, each) for name, each in found if name == _CHOICE_EVENT]
    if choices:
        if not said:
            asked = max((i for i, (_, each) in enumerate(found) if _role(each) in _USER_ROLES), default=-1)
            said = [each for each in found[asked + 1 :] if _role(each[1]) in _ANSWER_ROLES]
        return tuple(each for _, each in said), said[0][0] if said else ""
    given = tuple(each for name, each in found if name != _CHOICE_EVENT)
    asked_in = next((name for name, _ in reversed(found) if name == "gen_ai.user.message"), "")
    return given, asked_in or (found[0][0] if found else "")


def _event_message(attributes: Mapping[str, AttributeValue], role: str) -> Message:
    body = parse_loosely(attributes.get("gen_ai.event.content", attributes.get("message")))
    if isinstance(body, str) and body:
        return {"role": role, "content": body}
    if isinstance(body, tuple):
        return {"role": role, "content": body}
    fields = dict(body) if isinstance(body, dict) else dict(attributes)
    inner = fields.get("message")
    if isinstance(inner, dict):
        fields = {**fields, **inner}
    content = parse_loosely(fields.get("content"))
    if isinstance(content, tuple | dict):
        fields["content"] = content if isinstance(content, tuple) else (content,)
    return {"role": role, **fields}


def may_hold_results(value: AttributeValue) -> bool:
    """Return whether a text may have, in any notation, a tool's result or what the provider found."""
    if not isinstance(value, str):
        return True
    lowered = value.lower()
    return any(mark in lowered for mark in _MARKS_OF_RESULTS)


_MARKS_OF_RESULTS = (
    *("tool", "function", "mcp_call", "search", "docum", "docs", "citation", "annotation"),
    *("grounding", "retriev", "attribution"),
)


def hosted_documents(node: AttributeValue, *, is_response: bool) -> tuple[AttributeValue, ...]:
    """Return the documents in a model's request, or what its provider found and cites in its response."""
    return tuple(_hosted(node, is_response=is_response, is_said=False, depth=0))


def _hosted(
    node: AttributeValue, *, is_response: bool, is_said: bool, depth: int
) -> Iterator[AttributeValue]:
    if isinstance(node, tuple):
        for each in node:
            if isinstance(each, _NESTED):
                yield from _hosted(each, is_response=is_response, is_said=is_said, depth=depth + 1)
        return
    if not isinstance(node, dict) or depth > _DEEPEST:
        return
    if of_tools(node):
        return
    role, kind = _role(node), node.get("type")
    if kind in ("search_result", "document"):
        yield from shown_document(node)
        return
    if is_response and isinstance(kind, str) and _SEARCHES.fullmatch(kind):
        listed = listed_documents({key: each for key, each in node.items() if key != "queries"})
        yield from (each for each in (listed if isinstance(listed, tuple) else ()) if isinstance(each, dict))
        return
    for key, inner in node.items():
        if not isinstance(inner, _NESTED) or (name := plain(key)) in _OF_OTHERS:
            continue
        listed = inner if isinstance(inner, tuple) else (inner,)
        if name in _GIVEN or (is_response and name in _RETURNED):
            yield from (each for each in listed if isinstance(each, str) or is_document(each))
        elif is_response and name in _CITING and (is_said or role):
            for each in listed:
                cited = tuple(_hosted(each, is_response=True, is_said=True, depth=depth + 1))
                yield from cited or _cited(each)
        else:
            yield from _hosted(inner, is_response=is_response, is_said=is_said or bool(role), depth=depth + 1)


def _cited(item: AttributeValue) -> Iterator[AttributeValue]:
    """Read a citation. With a start and an end, its text is that of the answer."""
    if isinstance(item, dict):
        quoted = item.get("file_citation", item.get("url_citation"))
        fields = {plain(key): each for key, each in (quoted if isinstance(quoted, dict) else item).items()}
        if any(key.startswith(("start", "end")) for key in fields) or quoted is not None:
            fields.pop("text", None)
        fields.pop("title", None)
        if has_text(fields):
            yield fields


def shown_document(part: Message) -> Iterator[AttributeValue]:
    """Read a document or a search result of the request, if its text is there."""
    source = part.get("source", part.get("document"))
    inner = source if isinstance(source, dict) else part
    if inner.get("type") in ("base64", "url", "file"):
        return
    content = next((inner[key] for key in ("content", "data", "text", "context") if inner.get(key)), None)
    text = content if isinstance(content, str) else message_text({"content": content})
    named = part.get("id") or (source if isinstance(source, str) else None) or part.get("title")
    yield {"text": text, "id": named, "title": part.get("title")} if text else part


def last_user_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the last user message with text."""
    asking = [message for message in messages if _role(message) in _USER_ROLES]
    texts = (
        turn.text for each in reversed(asking) for turn in reversed(_spoken(each)) if turn.role == "user"
    )
    return next(texts, None)


def turns_of(messages: Sequence[Message]) -> tuple[ChatTurn, ...]:
    """Return the messages with text as turns; tool results are not turns."""
    return tuple(turn for each in messages for turn in _spoken(each))


_NAMES = {
    **dict.fromkeys(_SYSTEM_ROLES, "system"),
    **dict.fromkeys(_USER_ROLES, "user"),
    **dict.fromkeys(_ANSWER_ROLES, "assistant"),
}
_SPEAKER = re.compile(
    r"(?:^[ \t]{0,3}(?:#{1,6} |\*\*|\[)?|(?P<token><\|(?:[a-z_]{1,20}\|>)?|<start_of_turn>))"
    rf"(?P<role>{'|'.join(_NAMES)})(?(token)(?:\|>|<\|[a-z_]{{1,20}}\|>|\n)|(?:\*\*:|:\*\*|\]:?|:))",
    re.MULTILINE | re.IGNORECASE,
)
_END_OF_TURN = re.compile(r"\s*(?:<\|[a-z_]{1,20}\|>|<end_of_turn>|</?s>)\s*\Z|\A\s+|\s+\Z")


def _spoken(message: Message) -> tuple[ChatTurn, ...]:
    """Read a message; one of the user may be a whole prompt as one text: ``system: …``, ``user: …``."""
    role, text = _NAMES.get(_role(message), ""), message_text(message)
    marks = (
        list(_SPEAKER.finditer(text))
        if role == "user" and any(map(text.lower().__contains__, _USER_ROLES))
        else []
    )
    if not any(_NAMES[each["role"].lower()] == "user" for each in marks) or _END_OF_TURN.sub(
        "", text[: marks[0].start()]
    ):
        return (ChatTurn(role, text),) if role and text else ()
    ends = [*(each.start() for each in marks[1:]), len(text)]
    turns = [
        ChatTurn(_NAMES[each["role"].lower()], _END_OF_TURN.sub("", text[each.end() : end]))
        for each, end in zip(marks, ends, strict=True)
    ]
    return tuple(turn for turn in turns if turn.text)


def calls_tools(messages: Sequence[Message]) -> bool:
    """Return whether the conversation has tool calls or tool results."""
    return any(
        each.get("tool_calls")
        or _role(each) in (*_TOOL_ROLES, *_CALL_TYPES)
        or any(part.get("type") in (*_CALL_TYPES, *_RESULT_TYPES) for part in _parts(each))
        for each in messages
    )


def last_answer_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the model's last message in a whole conversation."""
    texts = (message_text(message) for message in reversed(messages) if _role(message) in _ANSWER_ROLES)
    return next((text for text in texts if text), None)


def tool_messages(messages: Sequence[Message]) -> tuple[ToolMessage, ...]:
    """Return the tool results since the last user message: earlier ones belong to another call."""
    asked = (i for i, each in enumerate(messages) if _role(each) in _USER_ROLES and message_text(each))
    recent = messages[max(asked, default=-1) + 1 :]
    returned = [(each, result) for each in recent for result in _returned(each)]
    names = dict(called for each in messages for called in _called(each)) if returned else {}
    found: list[ToolMessage] = []
    for message, result in returned:
        call_id = next((result[key] for key in _RESULT_ID_KEYS if result.get(key)), None)
        content = next((result[key] for key in _RESULT_KEYS if result.get(key)), None)
        name = result.get("name", message.get("name", result.get("toolName")))
        known = name if isinstance(name, str) else names.get(call_id) if isinstance(call_id, str) else None
        found.append(ToolMessage(known, content))
    return tuple(found)


def _returned(message: Message) -> Sequence[Message]:
    results = [part for part in _parts(message) if part.get("type") in _RESULT_TYPES]
    return results or ([message] if _role(message) in _TOOL_ROLES else [])


def _tool_calls(message: Message) -> Iterator[tuple[Message, Message]]:
    """Yield a message's tool calls, each with the function that it is or that it holds."""
    listed = message.get("tool_calls")
    itself = (message,) if _role(message) == "function_call" else ()
    for call in (*(listed if isinstance(listed, tuple) else ()), *_parts(message), *itself):
        if isinstance(call, dict):
            function = call.get("function")
            yield call, function if isinstance(function, dict) else call


def _called(message: Message) -> Iterator[tuple[AttributeValue, str]]:
    """Yield the ids and names of a message's tool calls."""
    for call, function in _tool_calls(message):
        name = function.get("name", call.get("toolName"))
        call_id = next((call[key] for key in _CALL_ID_KEYS if call.get(key)), None)
        is_call = call.get("type", "tool_call") in _CALL_TYPES
        if is_call and isinstance(name, str) and isinstance(call_id, str):
            yield call_id, name


def final_result(messages: Sequence[Message]) -> AttributeValue:
    """Return what the model gave a tool for the final answer, as agents with a structured output have one."""
    for _, function in (each for message in messages for each in _tool_calls(message)):
        if _FINAL.fullmatch(plain(str(function.get("name")))):
            return function.get("arguments", function.get("input"))
    return None


_FINAL = re.compile(r".{0,20}final(answer|result|response|output)")


_CALL_ID_KEYS = ("id", "call_id", "toolUseId", "toolCallId", "ref")
_RESULT_ID_KEYS = ("tool_call_id", "tool_use_id", "call_id", "toolUseId", "toolCallId", "id", "ref")
_RESULT_KEYS = ("response", "result", "content", "output", "parts")


def _parts(message: Message) -> tuple[Message, ...]:
    parts = message.get("parts", message.get("content"))
    items = parts if isinstance(parts, tuple) else ()
    return tuple(_typed(part) for part in items if isinstance(part, dict))


def _typed(part: Message) -> Message:
    """Give a part without a type the one that its only key tells."""
    if "type" in part:
        return part
    key = next((key for key in _PARTS_BY_KEY if isinstance(part.get(key), dict)), None)
    inner = part.get(key) if key else None
    return {"type": _PARTS_BY_KEY[key], **inner} if key and isinstance(inner, dict) else part


def message_text(message: Message) -> str:
    """Join the text parts of a message."""
    keys = (*_PARTS_KEYS, *_PARTS_KEYS_OF_ROLES) if _role(message) else _PARTS_KEYS
    parts = next((message[key] for key in keys if message.get(key) is not None), None)
    if isinstance(parts, str) and parts.startswith(_PARTS_AS_JSON) and _role(message):
        listed = parse_loosely(parts)
        parts = listed if isinstance(listed, tuple) else parts
    if isinstance(parts, str):
        return parts
    if isinstance(parts, dict):
        return part_text(parts)
    texts = [text for each in parts if (text := part_text(each))] if isinstance(parts, tuple) else []
    if len(texts) > 1 and speaks(message):
        return _joined(texts)
    return "\n".join(texts)


def _joined(texts: Sequence[str]) -> str:
    """Join the parts of an answer: providers begin a new one where a citation begins, within a sentence."""
    joined = texts[0]
    for text in texts[1:]:
        is_within = joined[-1:].isspace() or text[:1].isspace() or _WITHIN.match(text)
        joined += text if is_within else f"\n{text}"
    return joined


_WITHIN = re.compile(r"[.,;:!?)\]](?:\s|\Z)")


def part_text(part: AttributeValue) -> str:
    """Return the text of a part of a message, if it is one of text."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type", "text") not in _TEXT_TYPES:
        return ""
    if part.get("thought") is True:  # Gemini's
        return ""
    if isinstance(cited := part.get("citationsContent"), dict):  # Bedrock's
        return message_text({**cited, "role": "assistant"})
    text = part.get("content", part.get("text"))
    if isinstance(text, dict):
        text = text.get("value", text.get("text"))
        if isinstance(text, dict):
            text = text.get("value")
    return text if isinstance(text, str) else ""


def speaks(message: Message) -> bool:
    """Return whether the model says the message."""
    return _role(message) in _ANSWER_ROLES


def of_tools(node: Message) -> bool:
    """Return whether a message or a part is a call of a tool, or its result."""
    return _role(node) in _OF_TOOLS or node.get("type") in _OF_TOOLS


def _role(message: Message) -> str:
    role = message.get("role", message.get("type", message.get("_role")))  # as Haystack serializes objects
    if "source" in message and "role" not in message and str(role).endswith("Message"):  # as AutoGen does
        role = "user" if message["source"] == "user" else "assistant"
    if isinstance(role, dict):  # of .NET
        role = role.get("label")
    role = role.lower() if isinstance(role, str) else ""
    # Phoenix writes the role of the message around it, not the tool's
    return "tool" if role in _ANSWER_ROLES and message.get("tool_call_id") else role


def _flat(items: tuple[AttributeValue, ...]) -> tuple[Message, ...]:
    """Read elements that are JSON strings, and nested lists (one per batch item)."""
    found: list[Message] = []
    for item in items:
        parsed = parse_loosely(item)
        if isinstance(parsed, tuple) and len(parsed) == 2 and str(parsed[0]) in _NAMES:
            parsed = {"role": parsed[0], "content": parsed[1]}  # as LangChain takes it
        for each in parsed if isinstance(parsed, tuple) else (parsed,):
            if not isinstance(each, dict):
                continue
            inner = each.get("kwargs", each.get("data"))  # LangChain's serialized messages
            said = each.get("message", each.get("content"))  # a choice, a candidate
            if isinstance(inner, dict):
                found.append(inner)
            elif isinstance(said, dict) and "role" not in each and ("message" in each or "parts" in said):
                found.append({"role": "assistant", **said})
            else:
                found.append(each)
    return tuple(found)


_MAX_WRAPPERS = 6
_LIST_KEYS = (*("documents", "nodes", "output", "result", "results", "chunks", "hits", "matches", "context"),)


def listed_documents(value: AttributeValue, depth: int = 0) -> AttributeValue:
    """Return the documents in envelopes of any keys: the first objects with text, else the longest texts.

    What has the same keys above it belongs together. Without documents, it is the value.
    """
    node = parse_loosely(value)
    if _is_error(node):
        return ()
    if not isinstance(node, tuple | dict):
        text = node if isinstance(node, str) else ""
        return (documents_in_repr(text) if _REPRS.match(text) else documents_in_tags(text)) or node
    groups: list[tuple[bool, list[AttributeValue]]] = [(isinstance(node, tuple), [node])]
    texts: list[tuple[AttributeValue, ...]] = []
    others: list[tuple[AttributeValue, ...]] = []
    for _ in range(_MAX_WRAPPERS):
        below: list[tuple[bool, list[AttributeValue]]] = []
        for is_list, group in groups:
            items = tuple(_items(group))
            found = [is_document(each) for each in items]
            if (all(found) or (is_list and any(found))) and items and not _is_envelope(items):
                if not isinstance(group[0], tuple) and len(items) == 1:
                    return _held(items[0], depth) or items[0]
                return tuple(one for each in items for one in (_held(each, depth) or (each,)))
            if items and all(map(is_prose, items)):
                texts.append(items)
            elif is_list:
                others.append(items)
            objects = [each for each in items if isinstance(each, dict)]
            for each in objects:
                if len(each) > 1 and all(map(is_prose, each.values())):
                    by_id = ((key, text) for key, text in each.items() if not _is_aside(key))
                    texts.append(tuple({"id": key, "text": text} for key, text in by_id))
            keys = dict.fromkeys(key for each in objects for key in each if not _is_aside(key))
            for key in sorted(keys, key=lambda key: plain(key) not in _LIST_KEYS):
                inner = [_parsed(each[key]) for each in objects if key in each]
                below.append((plain(key) in _LIST_KEYS and isinstance(inner[0], tuple), inner))
        groups = below
    return max(texts, key=lambda listed: len(str(listed)), default=next(iter(others), node))


def _is_aside(key: str) -> bool:
    return bool(OF_QUESTIONS.fullmatch(plain(key)) or _OF_ERRORS.fullmatch(plain(key)))


def _is_error(node: AttributeValue) -> bool:
    """Return whether a result only tells of an error, or that nothing was found."""
    if not isinstance(node, dict):
        return isinstance(node, str) and bool(_RAISED.match(node))
    if node.get("isError", node.get("is_error")) is True or node.get("status") in ("error", "failed"):
        return True
    said = [key for key, value in node.items() if value and not isinstance(value, int)]
    is_told = (_OF_ERRORS.fullmatch(plain(key)) and not isinstance(node[key], tuple) for key in said)
    return bool(said) and all(is_told)


_OF_ERRORS = re.compile(
    r"(error)?(errors?|exception|traceback|details?|message|reason|warnings?|status|code)"
)
_RAISED = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|(?:[\w.]{0,80}(?:Error|Exception)|error)"
    r"(?: (?:executing|calling|invoking|running|in|while)\b[^:\n]{0,80})?:\s)"
)


def _items(group: Sequence[AttributeValue]) -> Iterator[AttributeValue]:
    """Yield what is in lists, however nested, and what is in none; a row with one text as an object."""
    for each in group:
        if not isinstance(each, tuple):
            yield each
        elif _is_row(each):
            yield _scored(each)
        elif not each or not isinstance(each[0], float):  # an embedding
            yield from _items([_parsed(item) for item in each])


def _parsed(value: AttributeValue) -> AttributeValue:
    return parse_loosely(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else value


def _is_envelope(items: Sequence[AttributeValue]) -> bool:
    """Return whether an object only surrounds the parts of a result, as the Model Context Protocol has it."""
    only = items[0] if len(items) == 1 and isinstance(items[0], dict) else {}
    return _OF_ENVELOPES.issuperset(map(plain, only)) and isinstance(
        _parsed(only.get("content")), tuple | dict
    )


_OF_ENVELOPES = frozenset({"content", "iserror", "structuredcontent", "meta", "status", "tooluseid"})
_REPRS = re.compile(r"\s*[\[(]{0,2}[A-Z]\w{1,40}\(")


def _held(document: AttributeValue, depth: int) -> tuple[AttributeValue, ...]:
    """Return the documents in the text of another, or the texts of a tool's message."""
    if not isinstance(document, dict) or depth > _MAX_WRAPPERS:
        return ()
    results = [each.content for each in tool_messages(messages_of((document,))[0]) if each.content]
    texts: list[AttributeValue] = [*results] or [text_in(document)]
    found = [listed_documents(each, depth + 1) for each in texts if isinstance(_parsed(each), tuple | dict)]
    inner = tuple(one for each in found for one in (each if isinstance(each, tuple) else (each,)))
    return inner if inner and all(is_document(each) or is_prose(each) for each in inner) else tuple(results)


def _is_row(item: tuple[AttributeValue, ...]) -> bool:
    """Return whether a list is ``(document, score)``, or a row of a database with one text in it."""
    numbers = sum(isinstance(each, int | float) for each in item)
    return bool(numbers) and sum(isinstance(each, dict) or is_prose(each) for each in item) == 1


def _scored(row: tuple[AttributeValue, ...]) -> AttributeValue:
    """Convert ``(document, score)``, as vector stores return it, or a database's row to a document."""
    document = next(each for each in row if isinstance(each, dict) or is_prose(each))
    score = row[-1] if isinstance(row[-1], float | int) else None
    return {**(document if isinstance(document, dict) else {"text": document}), "score": score}
