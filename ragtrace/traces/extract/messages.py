"""Chat messages to text, in the parts form of OpenTelemetry and in the form of the providers' own APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragtrace.model import AttributeValue
from ragtrace.traces.extract.content import parse_loosely, salvage_elements

__all__ = ["Message", "answer_text", "last_answer_text", "last_user_text", "message_text", "messages_of"]

Message = Mapping[str, AttributeValue]

_USER_ROLES = frozenset({"user", "human"})
_ANSWER_ROLES = frozenset({"assistant", "ai", "model"})
_TEXT_TYPES = ("text", "input_text", "output_text")


def messages_of(value: AttributeValue) -> tuple[tuple[Message, ...], bool]:
    """Read a list of messages: structured, as one JSON string, or as one JSON string an element.

    Say whether it was whole; of a cut list the complete messages are kept.
    """
    parsed = parse_loosely(value) if isinstance(value, str) else value
    is_whole = not isinstance(parsed, str)
    if isinstance(parsed, str):
        parsed = salvage_elements(parsed)
    if isinstance(parsed, Mapping):
        inner = parsed.get("messages")
        parsed = inner if isinstance(inner, tuple) else (parsed,)
    return _flat(parsed if isinstance(parsed, tuple) else ()), is_whole


def last_user_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the last message of the user that has one."""
    texts = (message_text(message) for message in reversed(messages) if _role(message) in _USER_ROLES)
    return next((text for text in texts if text), None)


def answer_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the first choice; reasoning and tool calls are not the answer."""
    return (message_text(messages[0]) or None) if messages else None


def last_answer_text(messages: Sequence[Message]) -> str | None:
    """Return the text of the last message of the model, in a list that holds the whole conversation."""
    texts = (message_text(message) for message in reversed(messages) if _role(message) in _ANSWER_ROLES)
    return next((text for text in texts if text), None)


def message_text(message: Message) -> str:
    """Join the text parts of a message."""
    parts = message.get("parts", message.get("content"))
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
    role = message.get("role", message.get("type"))
    return role.lower() if isinstance(role, str) else ""


def _flat(items: tuple[AttributeValue, ...]) -> tuple[Message, ...]:
    """Read elements that are JSON strings, and lists in the list (one a batch item)."""
    found: list[Message] = []
    for item in items:
        parsed = parse_loosely(item) if isinstance(item, str) else item
        for each in parsed if isinstance(parsed, tuple) else (parsed,):
            if isinstance(each, Mapping):
                inner = each.get("kwargs")  # LangChain's serialized messages
                found.append(inner if isinstance(inner, Mapping) else each)
    return tuple(found)
