"""How to talk to an OpenAI-compatible server: found out from its answers, and remembered.

Servers differ in how they take a schema (the *rung* of a ladder) and in the parameters they know. A rejected
request says which step to take next; the first dialect that works is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from ragtrace.judge.replies import reply_schema

__all__ = ["Dialect", "Rung"]

_BOUND_WORDS = re.compile(r"max_?length|max_?items|minimum|maximum", re.IGNORECASE)
_SEED = 20_240_501
_MAX_REASONING_ROOM = 32_768


class Rung(StrEnum):
    """Ways to get JSON of a given form, best first."""

    JSON_SCHEMA = "json_schema"
    TOOLS = "tools"
    JSON_OBJECT = "json_object"
    TEXT = "text"

    def next_lower(self) -> Rung | None:
        """Return the next rung down."""
        below = list(Rung)[list(Rung).index(self) + 1 :]
        return below[0] if below else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a server understands."""

    rung: Rung = Rung.JSON_SCHEMA
    token_limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    """Names of the output limit that were not refused yet; the first is used."""
    temperature: bool = True
    seed: bool = True
    bounded: bool = True
    """Whether the schema may carry lengths and ranges."""
    reasoning_room: int = 0
    """Tokens to add to the limit for models that reason before they answer."""

    def after_rejection(self, complaint: str) -> Dialect | None:
        """Return what to try after a 400 with this complaint, or ``None`` if nothing is left."""
        if self.temperature and "temperature" in complaint:
            return replace(self, temperature=False)
        if self.seed and re.search(r"\bseed\b", complaint):
            return replace(self, seed=False)
        if self.token_limits and self.token_limits[0] in complaint:
            return replace(self, token_limits=self.token_limits[1:])
        if self.bounded and self.rung in (Rung.JSON_SCHEMA, Rung.TOOLS) and _BOUND_WORDS.search(complaint):
            return replace(self, bounded=False)
        return self.lowered()

    def lowered(self) -> Dialect | None:
        """Return the dialect one rung down."""
        rung = self.rung.next_lower()
        return replace(self, rung=rung) if rung else None

    def with_room_to_reason(self, reasoning_tokens: int) -> Dialect | None:
        """Return a dialect with more room, if a reply was cut off because reasoning used the limit up."""
        if reasoning_tokens == 0 or self.reasoning_room >= _MAX_REASONING_ROOM:
            return None
        room = min(_MAX_REASONING_ROOM, max(4 * reasoning_tokens, 2 * self.reasoning_room))
        return replace(self, reasoning_room=room)

    def parameters(self, name: str, reply_type: type[BaseModel], max_output_tokens: int) -> Mapping[str, Any]:
        """Return the parameters of a chat completion besides model and messages."""
        parameters: dict[str, Any] = dict(self._form(name, reply_type))
        if self.token_limits:
            parameters[self.token_limits[0]] = max_output_tokens + self.reasoning_room
        if self.temperature:
            parameters["temperature"] = 0
        if self.seed:
            parameters["seed"] = _SEED
        return parameters

    def _form(self, name: str, reply_type: type[BaseModel]) -> Mapping[str, Any]:
        schema = reply_schema(reply_type, bounded=self.bounded)
        match self.rung:
            case Rung.JSON_SCHEMA:
                form = {"name": name, "schema": schema, "strict": True}
                return {"response_format": {"type": "json_schema", "json_schema": form}}
            case Rung.TOOLS:
                function = {"name": name, "parameters": schema}
                choice = {"type": "function", "function": {"name": name}}
                return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
            case Rung.JSON_OBJECT:
                return {"response_format": {"type": "json_object"}}
            case Rung.TEXT:
                return {}
