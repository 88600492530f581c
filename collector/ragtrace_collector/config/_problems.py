"""Error messages for a configuration: which key, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ragtrace.validation import in_words
from ragtrace_collector.config.sections import CollectorConfig
from ragtrace_collector.config.values import Section


def problems(errors: list[ErrorDetails]) -> list[str]:
    """Return one line for each error of a validation."""
    return list(dict.fromkeys(_problem(error) for error in _root_causes(errors)))


def _root_causes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Omit that a list is too short if one of its items is wrong."""
    places = [error["loc"] for error in errors]
    return [
        error
        for error in errors
        if error["type"] != "too_short"
        or not any(place != error["loc"] and place[: len(error["loc"])] == error["loc"] for place in places)
    ]


def _problem(error: ErrorDetails) -> str:
    location = list(error["loc"])
    key = _dotted(location)
    if error["type"] == "extra_forbidden":
        return f"unknown key `{key}`{_suggestion(location)}"
    if error["type"] == "missing":
        return f"`{key}` is missing"
    message = in_words(error)
    return f"`{key}`: {message}" if key else message


def _dotted(location: list[int | str]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).lstrip(".")


def _suggestion(location: list[int | str]) -> str:
    known = list(_known_keys(location[:-1]))
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    if close:
        return f": did you mean `{close[0]}`?"
    return f": there is {', '.join(f'`{name}`' for name in known)}" if known else ""


def _known_keys(location: list[int | str]) -> Iterator[str]:
    section: type[BaseModel] | None = CollectorConfig
    for part in location:
        if isinstance(part, int) or section is None:
            continue
        field = section.model_fields.get(part)
        section = _section_in(field.annotation) if field else None
    if section is not None:
        yield from section.model_fields


def _section_in(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation]
    for each in candidates:  # it grows: sections stand in tuples, unions and annotations
        candidates.extend(getattr(each, "__args__", ()))
        candidates.extend([each.__origin__] if hasattr(each, "__metadata__") else [])
    sections = (each for each in candidates if isinstance(each, type) and issubclass(each, Section))
    return cast("type[BaseModel] | None", next(sections, None))
