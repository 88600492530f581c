"""Join the pieces of a model's stream that was recorded as it came.

Such a recording is a list of events, a JSON object a line (Ollama), or server-sent events as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

BEGINNINGS_OF_EVENTS: Final = ("data:", "event:", "id:", "retry:", ": ", '0:"', 'f:{"')
"""How server-sent events begin (WHATWG HTML, 9.2.5), and the lines of Vercel's data stream."""
_FIELD: Final = re.compile(r"(data|event|id|retry)?:(.*)")
_PART: Final = re.compile(
    r"(?:(0):(\"(?:[^\"\\\x00-\x1f]|\\[\"\\/bfnrt]|\\u[\da-fA-F]{4})*\")|([1-9a-k]):.*)"
)
_END: Final = "[DONE]"
_MARKS: Final = re.compile(
    r'"(delta|done|candidates|contentBlockDelta|textDelta|text-delta|text-generation|AIMessageChunk)"'
)
_LOOKED_AT: Final = 4_000
"""Characters of a list in which a stream shows that it is one."""
_CHUNK: Final = "AIMessageChunk"
_PIECES: Final[Mapping[str, tuple[str, ...]]] = {
    "content_block_delta": ("delta", "text"),
    "response.output_text.delta": ("delta",),
    "content-delta": ("delta", "message", "content", "text"),
    "text-generation": ("text",),
    _CHUNK: ("content",),
}
"""Where the text is, by the type of the event: Anthropic, OpenAI's Responses, Cohere, LangChain."""
_OTHERS: Final = (
    ("choices", "0", "delta", "content"),
    ("contentBlockDelta", "delta", "text"),
    ("candidates", "0", "content", "parts"),
)
"""Of events without a type: OpenAI and its like, Bedrock, Gemini."""
_ENDS: Final = frozenset(
    {"message_stop", "response.completed", "finish", "message-end", "stream-end", "message_end"}
)
_REASONS: Final = (
    ("choices", "0", "finish_reason"),
    ("candidates", "0", "finishReason"),
    ("candidates", "0", "finish_reason"),
    ("delta", "stop_reason"),
    ("messageStop", "stopReason"),
)
_OF_EVENTS: Final = ("token", "content", "text", "delta", "answer", "response", "chunk", "message", "output")
"""Keys of a piece in events of an application's own."""


class JoinedStream(dict[str, Any]):
    """The message that a stream adds up to."""

    is_whole: bool
    """Whether the stream was read to its end, as far as its form tells."""

    def __init__(self, text: str, *, is_whole: bool) -> None:
        super().__init__(role="assistant", content=text)
        self.is_whole = is_whole


def joined_list(text: str, node: object) -> JoinedStream | None:
    """Join a list of events that this text holds; ``None`` if it is none."""
    if not isinstance(node, list) or not node or not _MARKS.search(text, 0, _LOOKED_AT):
        return None
    return _joined(node, has_ended=False)


def joined_events(text: str) -> JoinedStream | None:
    """Join server-sent events; ``None`` if the text is none."""
    parts = [_PART.fullmatch(line) for line in text.splitlines() if line]
    if all(parts):
        pieces = (json.loads(each[2]) for each in parts if each and each[1] == "0")
        return JoinedStream("".join(pieces), is_whole=any(each and each[3] == "d" for each in parts))
    said: list[str] = []
    for block in re.split(r"\r?\n\r?\n", text.strip()):
        lines = [_FIELD.fullmatch(line) for line in block.splitlines()]
        if not all(lines):
            return None
        data = [each[2].removeprefix(" ") for each in lines if each and each[1] == "data"]
        said += ["\n".join(data)] * bool(data)
    if not said:
        return None
    has_ended = said[-1].strip() == _END
    said = [each for each in said if each.strip() != _END]
    try:
        events = [json.loads(each) for each in said]
    except (ValueError, RecursionError):
        return JoinedStream("".join(said), is_whole=True) if len(said) > 1 or has_ended else None
    if all(isinstance(each, str) for each in events):
        return JoinedStream("".join(events), is_whole=True)
    if joined := _joined(events, has_ended=has_ended):
        return joined
    found = [each for each in events if isinstance(each, dict)]
    key = next((key for key in _OF_EVENTS if sum(isinstance(e.get(key), str) for e in found) > 1), None)
    pieces = (each[key] for each in found if key and isinstance(each.get(key), str))
    return JoinedStream("".join(pieces), is_whole=True)


def joined_tokens(texts: Sequence[object]) -> str | None:
    """Join texts that are a model's tokens, many of which begin with a space; ``None`` if they are not."""
    said = [each for each in texts if isinstance(each, str)]
    if len(said) < 2 or len(said) < len(texts):
        return None
    between = [(before[-1:] + after[:1]).strip(" \n") for before, after in pairwise(said)]
    whole = sum(before.rstrip()[-1:] in _MARKS_OF_ENDS for before in said[:-1])
    spaced = sum(len(each) < 2 for each in between)
    return "".join(said) if 4 * spaced >= len(between) and 2 * whole <= len(between) else None


_MARKS_OF_ENDS: Final = frozenset(".!?\u3002\uff01\uff1f")


def _joined(events: Sequence[object], *, has_ended: bool) -> JoinedStream | None:
    """Join events of a known form; ``None`` if one is no object, or none holds a piece."""
    pieces: list[str] = []
    is_stream, tells_end = False, True
    for event in events:
        if not isinstance(event, dict):
            return None
        kind = event.get("id")
        if isinstance(event.get("kwargs"), dict) and isinstance(kind, list) and kind[-1:] == [_CHUNK]:
            event = {**event["kwargs"], "type": _CHUNK}  # as LangChain serializes it
        found = list(_pieces(event))
        is_stream = is_stream or bool(found)
        pieces += (piece for piece in found if isinstance(piece, str))
        tells_end = tells_end and event.get("type") != _CHUNK
        has_ended = has_ended or _ends(event)
    return JoinedStream("".join(pieces), is_whole=has_ended or not tells_end) if is_stream else None


def _pieces(event: Mapping[str, Any]) -> Iterator[object]:
    """Yield what an event adds: texts; an empty text of what is a piece of something else."""
    kind = event.get("type", event.get("event_type"))
    if isinstance(kind, str) and kind in _PIECES:
        yield from _texts(_at(event, _PIECES[kind]))
    elif kind == "text-delta":  # of Vercel's SDK, by version
        yield next((event[key] for key in ("delta", "textDelta", "text") if key in event), "")
    elif isinstance(event.get("done"), bool):  # of Ollama
        yield _at(event, ("message", "content")) or event.get("response", "")
    else:
        for way in _OTHERS:
            if way[0] in event and (_at(event, way[:-1]) is not None):
                yield from _texts(_at(event, way))


def _texts(node: object) -> Iterator[str]:
    """Yield the text of a piece, which may have parts; an empty one if it has none."""
    if not isinstance(node, list):
        yield node if isinstance(node, str) else ""
        return
    for part in node:
        text = part.get("text") if isinstance(part, dict) and not part.get("thought") else part
        yield text if isinstance(text, str) else ""


def _ends(event: Mapping[str, Any]) -> bool:
    kind = event.get("type", event.get("event_type"))
    return kind in _ENDS or event.get("done") is True or any(_at(event, way) for way in _REASONS)


def _at(node: object, way: Sequence[str]) -> Any:
    for step in way:
        if isinstance(node, list) and step == "0":
            node = node[0] if node else None
        else:
            node = node.get(step) if isinstance(node, dict) else None
    return node
