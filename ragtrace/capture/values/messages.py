"""Messages in the parts form of the OpenTelemetry GenAI conventions, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragtrace.capture._guard import guarded
from ragtrace.capture.privacy.policy import MESSAGES, ContentFilter
from ragtrace.capture.values.plain import cut, json_string, name, plain_text
from ragtrace.model import Part

MAX_MESSAGES = 1_000
"""Per request: further messages are dropped, and ``messages`` is marked as truncated."""

_ROLES = {"human": "user", "ai": "assistant"}


def text_message(role: str, text: str, finish_reason: str | None = None) -> str:
    """Return a list of one message with one text part."""
    ending = f',"finish_reason":{json_string(plain_text(finish_reason))}' if finish_reason else ""
    return f'[{{"role":"{role}","parts":[{{"type":"text","content":{json_string(text)}}}]{ending}}}]'


def prompt_messages(messages: object, content_filter: ContentFilter) -> str | None:
    """Write a model's input, within the limit of the policy; ``None`` if there is nothing to write.

    A string is a user message. A message is a mapping or object with ``role`` and ``content`` (a string or a
    list of parts), or with ``role`` and ``parts``. Of parts that are not text, only the type is written.
    """
    if messages is None or not content_filter.policy.capture:
        return None
    listed = _listed(messages) or ()
    if len(listed) > MAX_MESSAGES:
        content_filter.truncated(MESSAGES)
    budget = content_filter.policy.max_messages_bytes
    written: list[str] = []
    for message in listed[:MAX_MESSAGES]:
        parts, used = _parts(message, budget, content_filter) or ([], 0)
        budget -= used
        written.append(
            f'{{"role":{json_string(_role(message, content_filter))},"parts":[{",".join(parts)}]}}'
        )
    return f"[{','.join(written)}]"


def _role(message: object, content_filter: ContentFilter) -> str:
    said = (name(_of(message, key), "role") for key in ("role", "type"))
    role = content_filter.policy.identifier(next((text for text in said if text), "user")) or "user"
    return _ROLES.get(role, role)


@guarded
def _parts(message: object, budget: int, content_filter: ContentFilter) -> tuple[list[str], int]:
    content = message if isinstance(message, str | bytes) else _of(message, "content")
    written: list[str] = []
    spent = 0
    for part in _listed(content if content is not None else _of(message, "parts")) or ():
        kept, used = _part(part, budget - spent, content_filter) or ('{"type":"unknown"}', 0)
        spent += used
        written.append(kept)
    return written, spent


@guarded
def _part(part: object, budget: int, content_filter: ContentFilter) -> tuple[str, int]:
    text = part if isinstance(part, str | bytes) else _of(part, "text") or _of(part, "content")
    if isinstance(text, str | bytes):
        return _text_part(text, budget, content_filter)
    kind = content_filter.policy.identifier(name(_of(part, "type"), "type") or "unknown") or "unknown"
    return f'{{"type":{json_string(kind)}}}', 0


def _text_part(text: str | bytes, budget: int, content_filter: ContentFilter) -> tuple[str, int]:
    whole = content_filter.redacted(text, Part.CONTEXT, MESSAGES)
    kept, used, is_cut = cut(whole or "", budget)
    if is_cut:
        content_filter.truncated(MESSAGES)
    return f'{{"type":"text","content":{json_string(kept)}}}', used


@guarded
def _listed(value: object) -> Sequence[object]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _of(message: object, key: str) -> object:
    # a dict is the most frequent case; checking for a Mapping is slow
    return message.get(key) if type(message) is dict else _held(message, key)


@guarded
def _held(message: object, key: str) -> object:
    if isinstance(message, Mapping):
        return message.get(key)
    return None if isinstance(message, str | bytes) else getattr(message, key, None)
