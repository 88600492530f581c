"""The user's mapping of custom attributes to the question, the chunks and the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._attributes import found_text
from ragtrace.traces.extract._content import FoundValue, parse_loosely
from ragtrace.traces.extract._documents import find_documents
from ragtrace.traces.extract._payload import listed_documents
from ragtrace.traces.extract._span_reader import Role, SpanReading, T
from ragtrace.traces.trace import Span

NAME: Final = "mapping"

_Step: TypeAlias = str | int | None
"""A key, an index, or ``None`` for every element."""

_SEGMENT: Final = re.compile(r"(?P<name>[^.\[\]\s]+)|\[(?P<index>-?\d{1,6})?\]")
_PATH: Final = re.compile(r"[^.\[\]\s]+(\[(-?\d{1,6})?\])*(\.[^.\[\]\s]+(\[(-?\d{1,6})?\])*)*")


@dataclass(frozen=True, slots=True)
class AttributePath:
    """An attribute and a path in its JSON value: ``app.result``, ``app.result.hits[0].text``.

    The longest prefix that is an attribute of the span is the attribute; the rest are keys and indices in its
    value. ``[]`` means every element of a list, ``[-1]`` the last.
    """

    text: str

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            ValueError: the form is wrong; the message shows a valid path.
        """
        if not _PATH.fullmatch(self.text):
            raise ValueError(
                f"{self.text!r} is not an attribute path: write `app.question` or `app.hits[0].text`"
            )

    def find(self, attributes: Mapping[str, AttributeValue]) -> AttributeValue:
        """Return the value at the path, or ``None``."""
        for key, steps in self._splits():
            if key in attributes:
                found = _walk(attributes[key], steps)
                if found is not None:
                    return found
        return None

    def _splits(self) -> Iterator[tuple[str, Sequence[_Step]]]:
        """Yield every split of the path into an attribute and steps, the longest attribute first."""
        segments = list(_SEGMENT.finditer(self.text))
        for count in range(len(segments), 0, -1):
            yield self.text[: segments[count - 1].end()], [_step(each) for each in segments[count:]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeMapping:
    """The user's attributes for the parts of a RAG call; they override every convention."""

    question: tuple[AttributePath, ...] = ()
    answer: tuple[AttributePath, ...] = ()
    context: tuple[AttributePath, ...] = ()
    reference: tuple[AttributePath, ...] = ()
    session: tuple[AttributePath, ...] = ()
    tools: re.Pattern[str] | None = None
    """Name pattern of tools that return context; ``None`` uses ragtrace's own."""

    def session_of(self, span: Span) -> str | None:
        """Return the span's session, or ``None``."""
        _, value = _first(span, self.session)
        return str(value) if isinstance(value, str | int) and value != "" else None


def read_mapped(span: Span, mapping: AttributeMapping) -> SpanReading:
    """Read the mapped attributes. Without a convention, the parts imply the role."""
    question, answer = _text(span, mapping.question), _text(span, mapping.answer)
    reference = _text(span, mapping.reference)
    documents = _documents(span, mapping.context)
    role = Role.CALL if question or answer else Role.RETRIEVAL if documents else None
    return SpanReading(
        span=span,
        convention=NAME,
        role=role or (Role.STEP if reference else None),
        question=question,
        answer=answer,
        documents=documents,
        reference=reference,
    )


def is_mapped(found: FoundValue[T] | None) -> bool:
    """Return whether the value comes from the mapping."""
    return found is not None and found.convention == NAME


def _first(span: Span, paths: Sequence[AttributePath]) -> tuple[str, AttributeValue]:
    """Return the first path with a value on the span or its events, and that value."""
    for path in paths:
        for attributes in (span.attributes, *(event.attributes for event in span.events)):
            value = path.find(attributes)
            if value is not None:
                return path.text, value
    return "", None


def _text(span: Span, paths: Sequence[AttributePath]) -> FoundValue[str] | None:
    attribute, value = _first(span, paths)
    texts = value if isinstance(value, tuple) else (value,)
    text = "\n".join(each for each in texts if isinstance(each, str))
    return found_text(
        text or None, attribute=attribute, convention=NAME, how="as the mapping says", raw=value
    )


def _documents(span: Span, paths: Sequence[AttributePath]) -> FoundValue[tuple[Chunk, ...]] | None:
    attribute, value = _first(span, paths)
    if value is None:
        return None
    listed = listed_documents(value)
    return find_documents(listed, attribute=attribute, convention=NAME, span_id=span.span_id)


def _step(segment: re.Match[str]) -> _Step:
    if segment["name"] is not None:
        return segment["name"]
    return int(segment["index"]) if segment["index"] is not None else None


def _walk(value: AttributeValue, steps: Sequence[_Step]) -> AttributeValue:
    if not steps:
        return value
    node = parse_loosely(value)
    step, rest = steps[0], steps[1:]
    if step is None and isinstance(node, tuple):
        found = tuple(_walk(each, rest) for each in node)
        return tuple(each for each in found if each is not None) or None
    if isinstance(step, int) and isinstance(node, tuple) and -len(node) <= step < len(node):
        return _walk(node[step], rest)
    return _walk(node.get(step), rest) if isinstance(step, str) and isinstance(node, Mapping) else None
