"""The dialect of an OpenAI-compatible server, learned from its responses.

Servers differ in how they accept a schema (the output mode), how they return log-probabilities, and which
parameters they know. A rejected request tells what to try next; the first dialect that works is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from ragtrace.judge.replies import reply_schema
from ragtrace.ports import FreeText, SamplingParameters, YesProbability

_BOUND_WORDS = re.compile(r"max_?length|max_?items|minimum|maximum", re.IGNORECASE)
_SEED = 20_240_501
_MAX_REASONING_ROOM = 32_768
_LONG_OPENING = 8

StepT = TypeVar("StepT", bound=StrEnum)


class OutputMode(StrEnum):
    """Ways to request JSON of a given schema, best first."""

    JSON_SCHEMA = "json_schema"
    TOOLS = "tools"
    JSON_OBJECT = "json_object"
    TEXT = "text"

    def next_lower(self) -> OutputMode | None:
        """Return the next weaker mode, or ``None``."""
        return _next(self)


class Likelihoods(StrEnum):
    """Ways to request the log-probabilities of the likeliest tokens, best first."""

    TOP_20 = "top_logprobs=20"
    TOP_5 = "top_logprobs=5"
    """Some servers return no more than this."""
    COUNT = "logprobs=5"
    """A number instead of a flag, as in the legacy completions API."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of a chat completion."""
        name, count = self.value.split("=")
        return {name: int(count)} if self is Likelihoods.COUNT else {"logprobs": True, name: int(count)}

    def next_lower(self) -> Likelihoods | None:
        """Return the next way, or ``None``."""
        return _next(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a server accepts."""

    output_mode: OutputMode = OutputMode.JSON_SCHEMA
    token_limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    """Parameter names of the output limit that were not refused; the first is used."""
    temperature: bool = True
    top_p: bool = True
    seed: bool = True
    bounded: bool = True
    """Whether the schema may carry lengths and ranges."""
    system_role: bool = True
    """Whether instructions may come in a message of their own; else they begin the user's."""
    json_mode: bool = True
    """Whether free text can be requested as a JSON object."""
    reasoning_room: int = 0
    """Tokens to add to the limit for models that reason before they answer."""
    likelihoods: Likelihoods | None = Likelihoods.TOP_20
    """How to request log-probabilities; ``None`` if the server has none."""
    opening_tokens: int = 1
    """Tokens to read until *yes* or *no*: some models begin with a blank."""

    def after_rejection(
        self,
        complaint: str,
        reply_type: type[BaseModel],
        sampling: SamplingParameters | None = None,
    ) -> Dialect | None:
        """Return the dialect to try after a 400 with this complaint, or ``None`` if none is left."""
        if self.temperature and "temperature" in complaint:
            return replace(self, temperature=False)
        if self.top_p and re.search(r"\btop_p\b", complaint):
            return replace(self, top_p=False)
        if self.seed and re.search(r"\bseed\b", complaint):
            return replace(self, seed=False)
        if self.token_limits and self.token_limits[0] in complaint:
            return replace(self, token_limits=self.token_limits[1:])
        if issubclass(reply_type, YesProbability):
            return self.with_other_likelihoods()
        if issubclass(reply_type, FreeText):
            return replace(self, json_mode=False) if self._asks_for_json(sampling) else None
        if (
            self.bounded
            and self.output_mode in (OutputMode.JSON_SCHEMA, OutputMode.TOOLS)
            and _BOUND_WORDS.search(complaint)
        ):
            return replace(self, bounded=False)
        return self.lowered()

    def lowered(self) -> Dialect | None:
        """Return the dialect with the next weaker output mode."""
        output_mode = self.output_mode.next_lower()
        return replace(self, output_mode=output_mode) if output_mode else None

    def with_other_likelihoods(self) -> Dialect | None:
        """Return the dialect with the next way to request log-probabilities."""
        lower = self.likelihoods and self.likelihoods.next_lower()
        return replace(self, likelihoods=lower) if lower else None

    def with_longer_opening(self) -> Dialect | None:
        """Return the dialect that reads one more token after a blank first one."""
        return replace(self, opening_tokens=_LONG_OPENING) if self.opening_tokens < _LONG_OPENING else None

    def with_room_to_reason(self, reasoning_tokens: int) -> Dialect | None:
        """Return a dialect with a higher limit if reasoning used up the limit of a truncated reply."""
        if reasoning_tokens == 0 or self.reasoning_room >= _MAX_REASONING_ROOM:
            return None
        room = min(_MAX_REASONING_ROOM, max(4 * reasoning_tokens, 2 * self.reasoning_room))
        return replace(self, reasoning_room=room)

    def learning(self, before: Self, after: Self) -> Self:
        """Return this dialect with one exchange's changes; concurrent exchanges may have changed it too."""
        changed = {
            field.name: getattr(after, field.name)
            for field in fields(self)
            if getattr(after, field.name) != getattr(before, field.name)
        }
        return replace(self, **changed)

    def parameters(
        self,
        name: str,
        reply_type: type[BaseModel],
        max_output_tokens: int,
        sampling: SamplingParameters | None = None,
    ) -> Mapping[str, Any]:
        """Return the parameters of a chat completion except model and messages."""
        parameters: dict[str, Any] = {
            **self._form(name, reply_type, sampling),
            **self._sampling(sampling),
        }
        if self.token_limits:
            opening = issubclass(reply_type, YesProbability)
            room = self.opening_tokens if opening else max_output_tokens + self.reasoning_room
            parameters[self.token_limits[0]] = room
        return parameters

    def _sampling(self, prescribed: SamplingParameters | None) -> Mapping[str, Any]:
        """The sampling that the request prescribes (another tool's), else the most repeatable one."""
        chosen: dict[str, float | None] = {"temperature": 0, "seed": _SEED}
        if prescribed is not None:
            chosen = {"temperature": prescribed.temperature, "top_p": prescribed.top_p}
        known = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}
        return {name: value for name, value in chosen.items() if value is not None and known[name]}

    def _form(
        self, name: str, reply_type: type[BaseModel], sampling: SamplingParameters | None
    ) -> Mapping[str, Any]:
        if issubclass(reply_type, YesProbability):
            return self.likelihoods.parameters if self.likelihoods else {}
        if issubclass(reply_type, FreeText):
            return {"response_format": {"type": "json_object"}} if self._asks_for_json(sampling) else {}
        return self._schema_form(name, reply_type)

    def _asks_for_json(self, sampling: SamplingParameters | None) -> bool:
        return self.json_mode and sampling is not None and sampling.json_object

    def _schema_form(self, name: str, reply_type: type[BaseModel]) -> Mapping[str, Any]:
        schema = reply_schema(reply_type, bounded=self.bounded)
        match self.output_mode:
            case OutputMode.JSON_SCHEMA:
                form = {"name": name, "schema": schema, "strict": True}
                return {"response_format": {"type": "json_schema", "json_schema": form}}
            case OutputMode.TOOLS:
                function = {"name": name, "parameters": schema}
                choice = {"type": "function", "function": {"name": name}}
                return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
            case OutputMode.JSON_OBJECT:
                return {"response_format": {"type": "json_object"}}
            case OutputMode.TEXT:
                return {}


def _next(member: StepT) -> StepT | None:
    below = [*type(member)]
    at = below.index(member) + 1
    return below[at] if at < len(below) else None
