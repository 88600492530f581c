"""Say what text a trace holds that nothing reads, and propose a mapping for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace.model import AttributeValue
from ragtrace.traces.extract._content import parse_loosely
from ragtrace.traces.trace import Span

_OF_THE_MACHINE: Final = re.compile(
    r"(?:http|url|db\.(?!vector)|exception|code|net|network|server|client|user_agent|otel|telemetry|thread|process"
    r"|faas|k8s|aws|cloud|container|host|os|rpc|messaging|peer|error|service|ragtrace|enduser|tls)\b|.*\.(?:url|uri)$"
)
_NAMES: Final = (
    (
        "context",
        re.compile(r"context|document|docs?\b|chunk|passage|retriev|hits\b|knowledge|snippet", re.IGNORECASE),
    ),
    (
        "answer",
        re.compile(r"answer|response|reply|completion|generat|output|result|said|antwort", re.IGNORECASE),
    ),
    ("question", re.compile(r"question|query|input|prompt|ask|message|request|frage\b", re.IGNORECASE)),
)
_MOST: Final = 8
_MOST_SPANS: Final = 500
_SHORTEST: Final = 8
_LONGEST_PATH: Final = 200
_DEEPEST: Final = 3
_SEGMENT: Final = re.compile(r"[^.\[\]\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A trace that holds text for people or models, in attributes that nothing reads."""

    producer: str
    """The scope that wrote most of them, else the service."""
    attributes: tuple[str, ...]
    """Paths of the attributes that hold text, the most frequent first."""
    mapping: Mapping[str, str]
    """What to write below ``extract.mapping``: a path for each part that has a likely one."""

    @property
    def advice(self) -> str:
        """One sentence with the attributes and a mapping that can be pasted."""
        listed = ", ".join(f"`{each}`" for each in self.attributes)
        parts = ", ".join(f"{part}: [{path}]" for part, path in self.mapping.items())
        proposed = f"; if they are the parts of a RAG call, map them: `extract: {{mapping: {{{parts}}}}}`"
        return f"these attributes hold text: {listed}{proposed if parts else ''}"


def unread_text(spans: Iterable[Span]) -> Unread | None:
    """Return what text the spans hold; ``None`` if there is none but the machine's own."""
    paths: Counter[str] = Counter()
    producers: Counter[str] = Counter()
    for span, _ in zip(spans, range(_MOST_SPANS), strict=False):
        found = [path for path in _text_paths(span) if len(path) <= _LONGEST_PATH]
        paths.update(found)
        if found:
            service = span.resource.attributes.get("service.name")
            producers[span.scope.name or (service if isinstance(service, str) else "")] += len(found)
    if not paths:
        return None
    listed = tuple(path for path, _ in paths.most_common())
    mapping: dict[str, str] = {}
    for part, name in (_NAMES[2], _NAMES[0], _NAMES[1]):
        best = [path for path in listed if _part_of(path) == part and name.search(path)]
        if best:
            mapping[part] = best[0]
    return Unread(producer=producers.most_common(1)[0][0], attributes=listed[:_MOST], mapping=mapping)


def _part_of(path: str) -> str | None:
    """Return the part that the last telling word of a path names."""
    for segment in reversed(_SEGMENT.findall(path)):
        for part, name in _NAMES:
            if name.search(segment):
                return part
    return None


def _text_paths(span: Span) -> Iterator[str]:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for key, value in attributes.items():
            if not _OF_THE_MACHINE.match(key) and _SEGMENT.fullmatch(key.replace(".", "")):
                yield from _paths(key, value, 0)


def _paths(path: str, value: AttributeValue, depth: int) -> Iterator[str]:
    node = parse_loosely(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    if isinstance(node, str):
        if len(node.strip()) >= _SHORTEST and (" " in node.strip() or not node.isascii()):
            yield path
    elif isinstance(node, tuple):
        if depth <= _DEEPEST and any(True for each in node[:3] for _ in _paths(path, each, depth + 1)):
            yield path
    elif isinstance(node, dict):
        if depth >= _DEEPEST:
            if any(isinstance(each, str) and " " in each for each in node.values()):
                yield path
            return
        for key, each in list(node.items())[:20]:
            if _SEGMENT.fullmatch(key):
                yield from _paths(f"{path}.{key}", each, depth + 1)
