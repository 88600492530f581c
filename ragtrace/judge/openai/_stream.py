"""Replies that a server streams although it was not asked to: the chunks of a completion, joined."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

JsonObject = dict[str, Any]


def is_stream(body: bytes) -> bool:
    """Whether a body is a stream of server-sent events."""
    return body.lstrip()[:8].startswith((b"data:", b"event:", b": ", b":\n", b"id:", b"retry:"))


def joined(body: bytes) -> JsonObject:
    """Return the chat completion whose chunks a stream has; or its error, as an endpoint tells one.

    Raises:
        ValueError: an event is no JSON object.
    """
    whole: JsonObject = {}
    choice: JsonObject = {}
    parts: dict[str, list[str]] = {name: [] for name in ("content", "reasoning_content", "arguments")}
    for event in _events(body):
        if "error" in event:
            return event
        whole |= {name: event[name] for name in ("model", "system_fingerprint", "usage") if event.get(name)}
        for said in _listed(event.get("choices"))[:1]:
            delta = said.get("delta") or said.get("message") or {}
            if said.get("finish_reason"):
                choice["finish_reason"] = said["finish_reason"]
            if said.get("logprobs"):
                choice.setdefault("logprobs", said["logprobs"])
            _take(delta, parts)
    message: JsonObject = {name: "".join(parts[name]) or None for name in ("content", "reasoning_content")}
    if parts["arguments"]:
        message["tool_calls"] = [{"type": "function", "function": {"arguments": "".join(parts["arguments"])}}]
    return {**whole, "choices": [{**choice, "message": message}]}


def _events(body: bytes) -> Iterator[JsonObject]:
    for line in body.decode("utf-8", "replace").splitlines():
        name, _, data = line.partition(":")
        if name != "data" or data.strip() in ("", "[DONE]"):
            continue
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError("an event is no JSON object")  # noqa: TRY004  it is of JSON
        yield event


def _take(delta: Any, parts: dict[str, list[str]]) -> None:
    if not isinstance(delta, dict):
        return
    for name in ("content", "reasoning_content"):
        if isinstance(delta.get(name), str):
            parts[name].append(delta[name])
    for call in _listed(delta.get("tool_calls"))[:1]:
        function = call.get("function")
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            parts["arguments"].append(function["arguments"])


def _listed(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
