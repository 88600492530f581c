"""Read text from chat messages, in OpenTelemetry's parts form and in the providers' own forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ragtrace.model import AttributeValue
from ragtrace.traces.extract._content import parse_loosely, recover_elements

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
_TOOL_ROLES = frozenset({"tool", "function", "function_call_output"})
_CALL_TYPES = ("tool_call", "tool_use", "function_call", "function")
_RESULT_TYPES = ("tool_call_response", "tool_result", "function_call_output")
_ANSWER_ROLES = frozenset({"assistant", "ai", "model"})
_PARTS_KEYS = ("parts", "content", "_content")
_ROLE_KEYS = ("role", "type", "_role")
"""With an underscore, as in Haystack's messages that are serialized as plain objects."""
_TEXT_TYPES = ("text", "input_text", "output_text")


def messages_of(value: AttributeValue) -> tuple[tuple[Message, ...], bool]:
    """Read a list of messages: structured, as one JSON string, or as one JSON string per element.

    Return also whether it was complete; a truncated list keeps its complete messages.
    """
    parsed = parse_loosely(value)
    is_whole = not isinstance(parsed, str)
    if isinstance(parsed, str):
        parsed = recover_elements(parsed)
    if isinstance(parsed, Mapping):
        inner = parsed.get("messages")
        parsed = inner if isinstance(inner, tuple) else (parsed,)
    return _flat(parsed if isinstance(parsed, tuple) else ()), is_whole


def last_user_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the last user message with text."""
    texts = (message_text(message) for message in reversed(messages) if _role(message) in _USER_ROLES)
    return next((text for text in texts if text), None)


def turns_of(messages: Sequence[Message]) -> tuple[ChatTurn, ...]:
    """Return the messages with text as turns; tool results are not turns."""
    names = {
        **dict.fromkeys(_SYSTEM_ROLES, "system"),
        **dict.fromkeys(_USER_ROLES, "user"),
        **dict.fromkeys(_ANSWER_ROLES, "assistant"),
    }
    turns = (ChatTurn(names.get(_role(each), ""), message_text(each)) for each in messages)
    return tuple(turn for turn in turns if turn.role and turn.text)


def calls_tools(messages: Sequence[Message]) -> bool:
    """Return whether the conversation has tool calls or tool results."""
    return any(
        each.get("tool_calls")
        or _role(each) in (*_TOOL_ROLES, *_CALL_TYPES)
        or any(part.get("type") in (*_CALL_TYPES, *_RESULT_TYPES) for part in _parts(each))
        for each in messages
    )


def answer_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the first choice, without reasoning and tool calls."""
    return (message_text(messages[0]) or None) if messages else None


def last_answer_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the model's last message in a whole conversation."""
    texts = (message_text(message) for message in reversed(messages) if _role(message) in _ANSWER_ROLES)
    return next((text for text in texts if text), None)


def tool_messages(messages: Sequence[Message]) -> tuple[ToolMessage, ...]:
    """Return the tool results since the last user message: earlier ones belong to another call."""
    asked = [i for i, each in enumerate(messages) if _role(each) in _USER_ROLES and message_text(each)]
    names = {call_id: name for each in messages for call_id, name in _called(each)}
    recent = messages[asked[-1] + 1 if asked else 0 :]
    return tuple(found for message in recent for found in _returned(message, names))


def _called(message: Message) -> Iterator[tuple[AttributeValue, str]]:
    """Yield the ids and names of a message's tool calls."""
    listed = message.get("tool_calls")
    for call in (*(listed if isinstance(listed, tuple) else ()), *_parts(message), message):
        if not isinstance(call, Mapping) or (call is message and _role(call) != "function_call"):
            continue
        function = call.get("function")
        name = function.get("name") if isinstance(function, Mapping) else call.get("name")
        call_id = call.get("id", call.get("call_id"))
        is_call = call.get("type", "tool_call") in _CALL_TYPES
        if is_call and isinstance(name, str) and isinstance(call_id, str):
            yield call_id, name


def _returned(message: Message, names: Mapping[AttributeValue, str]) -> Iterator[ToolMessage]:
    results = [part for part in _parts(message) if part.get("type") in _RESULT_TYPES]
    if not results and _role(message) in _TOOL_ROLES:
        results = [message]
    for result in results:
        call_id = next((result[key] for key in _RESULT_ID_KEYS if result.get(key)), None)
        content = next((result[key] for key in _RESULT_KEYS if result.get(key)), None)
        name = result.get("name", message.get("name"))
        known = name if isinstance(name, str) else names.get(call_id) if isinstance(call_id, str) else None
        yield ToolMessage(known, content)


_RESULT_ID_KEYS = ("tool_call_id", "tool_use_id", "call_id", "id")
_RESULT_KEYS = ("response", "result", "content", "output", "parts")


def _parts(message: Message) -> tuple[Message, ...]:
    parts = message.get("parts", message.get("content"))
    items = parts if isinstance(parts, tuple) else ()
    return tuple(part for part in items if isinstance(part, Mapping))


def message_text(message: Message) -> str:
    """Join the text parts of a message."""
    parts = next((message[key] for key in _PARTS_KEYS if key in message), None)
    if isinstance(parts, str):
        return parts
    return "\n".join(filter(None, map(_part_text, parts))) if isinstance(parts, tuple) else ""


def _part_text(part: AttributeValue) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type", "text") not in _TEXT_TYPES:
        return ""
    text = part.get("content", part.get("text"))
    return text if isinstance(text, str) else ""


def _role(message: Message) -> str:
    role = next((message[key] for key in _ROLE_KEYS if key in message), None)
    return role.lower() if isinstance(role, str) else ""


def _flat(items: tuple[AttributeValue, ...]) -> tuple[Message, ...]:
    """Read elements that are JSON strings, and nested lists (one per batch item)."""
    found: list[Message] = []
    for item in items:
        parsed = parse_loosely(item)
        for each in parsed if isinstance(parsed, tuple) else (parsed,):
            if isinstance(each, Mapping):
                inner = each.get("kwargs", each.get("data"))  # LangChain's serialized messages
                found.append(inner if isinstance(inner, Mapping) else each)
    return tuple(found)
