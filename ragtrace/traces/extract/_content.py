"""Read text and JSON from attributes: doubly encoded, truncated, redacted, or a Python ``repr``."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.model import AttributeValue, Gap, Part, Provenance, SkipReason
from ragtrace.traces.extract._streams import (
    BEGINNINGS_OF_EVENTS,
    JoinedStream,
    joined_events,
    joined_list,
)
from ragtrace.traces.trace import Span, scrub_surrogates

T = TypeVar("T")

MAX_TEXT_BYTES = 262_144
"""The size limit of a question, an answer or a chunk."""
_MAX_REPR_BYTES = 100_000
_MAX_DEPTH = 32
_MOST_PARSED = 4_096
_STARTS = ("{", "[", '"', "(")
_STARTS_OF_JSON = ('{"', "[{", '["')
_LONGEST_REST = 3  # bytes of a UTF-8 character that truncation can leave
_CLOSING = ("}", "]", ")")
_UNCLEAN = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""The escapes of NUL and of surrogates."""
_BETWEEN_ELEMENTS = re.compile(r"[\s,]*")
_NO_TEXT = re.compile(
    rf"(?P<hashed>{re.escape(semconv.HASHED_PREFIX)}hmac-sha256 [0-9a-f]{{32}} \d+ bytes>)"
    r"|(?P<redacted>(?i:[\W_]*+redacted[\W_]*))"
    r"|(?P<object>(?s:<(?:async_)?generator\b[^>]*>|<[\w.]+(?: object)? at 0x[0-9a-f]+[^<>]*>"
    r"|<\d+-dimensional vector>|<(?:Future|Task|\w*Thread|bound method|coroutine|function)\b.*>"
    r"|[A-Z][a-z]++[A-Z]\w{1,60}+\(\)|[A-Z]\w{1,60}+\(\w{1,40}=.*\)|ChatMessage\(_?role=.*"
    r"|\w{1,60}+\([^()]{0,200}<(?:async_)?generator object .*))"
)


class ContentDamage(NamedTuple):
    """Why a text cannot be trusted."""

    reason: SkipReason
    detail: str

    def gap(self, part: Part) -> Gap:
        """Return what it means for a part of the record."""
        return Gap(part=part, reason=self.reason, detail=self.detail)


class Place(NamedTuple):
    """Where a value is."""

    attribute: str
    convention: str
    span_id: str


class FoundValue(NamedTuple, Generic[T]):
    """A value read from a span. Without a value, ``damage`` gives the reason."""

    value: T | None
    at: Place
    how: str = ""
    """Human-readable: the part of the attribute."""
    damage: ContentDamage | None = None
    is_retrieved: bool = False
    """Whether the form of a tool's result shows that the tool retrieves."""

    def provenance(self, part: Part, span: Span, why: str) -> Provenance:
        """Return where the part is from, with the rule that chose it."""
        return Provenance(
            part=part,
            span_id=span.span_id,
            span_name=span.name,
            attribute=self.at.attribute,
            convention=self.at.convention,
            why=why,
        )


def best(*candidates: FoundValue[T] | None) -> FoundValue[T] | None:
    """Return the first undamaged candidate, else the first with a value, else the first."""
    found = [candidate for candidate in candidates if candidate is not None]
    if len(found) < 2:
        return found[0] if found else None
    whole = (each for each in found if each.value is not None and each.damage is None)
    damaged = (each for each in found if each.value is not None)
    return next(whole, None) or next(damaged, None) or next(iter(found), None)


def clean(text: str) -> str:
    """Replace lone surrogates and NUL, which stores and judges do not accept, with U+FFFD."""
    return scrub_surrogates(text).replace("\0", "\ufffd")


def without_excess(text: str) -> tuple[str, bool]:
    """Limit a clean text to ``MAX_TEXT_BYTES``; return it and whether it was truncated."""
    if len(text) * 4 <= MAX_TEXT_BYTES:
        return text, False
    encoded = text.encode()
    return encoded[:MAX_TEXT_BYTES].decode(errors="ignore"), len(encoded) > MAX_TEXT_BYTES


def is_cut_by_tempo(text: str) -> bool:
    """Return whether the string has the length that Tempo's truncation leaves.

    Truncation inside a character leaves bytes that come back as replacement characters.
    """
    if len(text) > semconv.TEMPO_STRING_BYTES:
        return False
    size = len(text.encode(errors="replace"))
    size_before_cut = len(text.rstrip("\ufffd").encode(errors="replace"))
    return size == semconv.TEMPO_STRING_BYTES or (
        size_before_cut < size and 0 < semconv.TEMPO_STRING_BYTES - size_before_cut <= _LONGEST_REST
    )


def text_damage(text: str, attribute: str) -> ContentDamage | None:
    """Return the damage of a plain text, if any."""
    may_be = text[-1:] in (">", ")") or "(" in text[:64] or "redacted" in text.lower()
    found = _NO_TEXT.fullmatch(text) if may_be else None
    if found is None:
        return None
    reason, said = {
        "hashed": (
            SkipReason.REDACTED,
            "a digest instead of text: content is hashed; the mode `redacted` keeps the text judgeable",
        ),
        "redacted": (SkipReason.REDACTED, "a redaction mark instead of text"),
        "object": (
            SkipReason.NO_CONTENT,
            "the name of a Python object instead of text: some instrumentations do not wait for a stream",
        ),
    }[found.lastgroup or ""]
    hint = ": unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and similar variables"
    return ContentDamage(reason, f"`{attribute}` holds {said}{hint * (text == semconv.OI_REDACTED)}")


def cut_damage(attribute: str) -> ContentDamage:
    """Return the damage of a string that the back end truncated."""
    return ContentDamage(
        SkipReason.TRUNCATED,
        f"`{attribute}` was cut at {semconv.TEMPO_STRING_BYTES} bytes, as Tempo does by default: "
        "raise `max_attribute_bytes`, or use ragtrace's own instrumentation, whose lists are not cut",
    )


def broken_damage(value: AttributeValue, attribute: str) -> ContentDamage:
    """Return the damage of an attribute with broken JSON."""
    text = value if isinstance(value, str) else ""
    if is_cut_by_tempo(text):
        return cut_damage(attribute)
    damage = text_damage(text, attribute)
    return damage or ContentDamage(SkipReason.TRUNCATED, f"`{attribute}` holds incomplete JSON")


def text_of(attributes: Mapping[str, AttributeValue], key: str) -> str | None:
    """Return a clean string attribute; ``None`` if it is absent, empty or of another type."""
    value = attributes.get(key)
    return clean(value) or None if isinstance(value, str) else None


def first_text(span: Span, *keys: str) -> str | None:
    """Return the first of these attributes that is a string."""
    return next((text for key in keys if (text := text_of(span.attributes, key))), None)


def found_text(text: str | None, at: Place, how: str, raw: AttributeValue = None) -> FoundValue[str] | None:
    """Check a text from an attribute; the raw value may show that it was truncated."""
    if text is None:
        return None
    kept, has_excess = without_excess(clean(text))
    damage = text_damage(kept, at.attribute)
    value = None if damage else kept
    if has_excess:
        damage = ContentDamage(SkipReason.TRUNCATED, f"`{at.attribute}` is longer than ragtrace reads")
    elif damage is None and isinstance(raw, str) and is_cut_by_tempo(raw):
        damage = cut_damage(at.attribute)
    return FoundValue(value, at, how, damage)


def parse_loosely(value: AttributeValue) -> AttributeValue:
    """Parse JSON, JSON in a JSON string, a Python literal, or the events of a stream, which are joined.

    Any other value is returned unchanged.
    """
    if not isinstance(value, str) or not may_be_parsed(value):
        return value
    return _parsing.get()(value)


def may_be_parsed(text: str) -> bool:
    """Return whether a text begins like JSON, a Python literal, an object's ``repr`` or events."""
    begins = text.lstrip()
    return begins.startswith((*_STARTS, *BEGINNINGS_OF_EVENTS)) or _REPR.match(begins) is not None


@contextmanager
def each_text_parsed_once() -> Iterator[None]:
    """Parse a text once within: several conventions, and several parts of one, look into an attribute."""
    token = _parsing.set(lru_cache(maxsize=_MOST_PARSED)(_parse))
    try:
        yield
    finally:
        _parsing.reset(token)


def open_damage(parsed: AttributeValue, attribute: str) -> ContentDamage | None:
    """Return the damage of a recorded stream whose end is missing."""
    if not isinstance(parsed, JoinedStream) or parsed.is_whole:
        return None
    return ContentDamage(
        SkipReason.INCOMPLETE, f"`{attribute}` holds a stream that breaks off before its end"
    )


def in_camel_case(node: AttributeValue) -> AttributeValue:
    """Return an object of .NET, whose keys begin with capitals, with small ones."""
    if isinstance(node, tuple):
        first = in_camel_case(node[0]) if node else None
        return (first, *map(in_camel_case, node[1:])) if node and first is not node[0] else node
    if not isinstance(node, dict) or not next((key for key in node if key[:1] != "$"), "")[:1].isupper():
        return node
    return {key[:1].lower() + key[1:]: in_camel_case(value) for key, value in node.items()}


def snake(name: str) -> str:
    """Divide the words of a name in camel case: ``finalAnswer`` becomes ``final_Answer``."""
    return _CAMEL.sub("_", name)


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_broken_json(raw: AttributeValue, parsed: AttributeValue) -> bool:
    """Return whether a text begins like JSON, but `parse_loosely` could not parse it."""
    return isinstance(raw, str) and parsed == raw and raw.lstrip()[:2] in _STARTS_OF_JSON


def recover_elements(text: str) -> tuple[AttributeValue, ...]:
    """Parse the complete elements of a truncated JSON list."""
    stripped = text.lstrip()
    return tuple(_complete_elements(stripped)) if stripped.startswith("[") else ()


def number_of(value: AttributeValue) -> float | None:
    """Return a finite number, or ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _parse(text: str) -> AttributeValue:
    stripped = scrub_surrogates(text).strip()
    if stripped.startswith(BEGINNINGS_OF_EVENTS):
        return joined_events(stripped) or text
    node = _loaded(stripped)
    if node is None:
        literal = _of_repr(stripped) if _REPR.match(stripped) else _python_literal(stripped)
        parsed: AttributeValue = text if literal is None else literal
    else:
        is_clean = "\\u" not in stripped or not _UNCLEAN.search(stripped)
        parsed = joined_list(stripped, node) or _as_value(node, is_clean)
    return parse_loosely(parsed) if isinstance(parsed, str) and parsed != text else parsed


def _loaded(text: str) -> object:
    """Parse JSON, or a text with an object in each line; ``None`` if it is neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        lines = [line for line in text.splitlines() if line.strip()] if text.startswith('{"') else []
    return _loaded(f"[{','.join(lines)}]") if len(lines) > 1 else None


_parsing: ContextVar[Callable[[str], AttributeValue]] = ContextVar("parsing", default=_parse)


def _as_value(node: object, is_clean: bool, depth: int = 0) -> AttributeValue:
    """Convert a value from ``json`` or ``ast`` to an attribute value with clean text."""
    if isinstance(node, str):
        return node if is_clean else clean(node)
    if node is None or isinstance(node, bool | int | float | bytes):
        return node
    if depth > _MAX_DEPTH:
        return None
    if isinstance(node, dict):
        return {
            key if is_clean else clean(str(key)): (
                value if is_clean and type(value) in _LEAVES else _as_value(value, is_clean, depth + 1)
            )
            for key, value in node.items()
        }
    if isinstance(node, list | tuple | set):
        return tuple([_as_value(item, is_clean, depth + 1) for item in node])
    return None


_LEAVES = frozenset({str, int, float, bool, type(None)})


def _python_literal(text: str) -> AttributeValue:
    if len(text) > _MAX_REPR_BYTES or text[-1:] not in _CLOSING:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in foreign text must not warn
            return _as_value(ast.literal_eval(_Constructors().visit(ast.parse(text, mode="eval"))), False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _of_repr(text: str) -> AttributeValue:
    """Read the ``repr`` or ``str`` of an object that holds a text; of one that is no literal, the text."""
    held = _python_literal(text)
    if isinstance(held, dict) and not held.keys().isdisjoint(_FIELDS):
        return held
    first = _FIRST_FIELD.match(text)
    return {first["name"]: clean(str(ast.literal_eval(first["text"])))} if first else None


_FIELDS = (
    *("content", "page_content", "text", "answer", "response", "output", "result", "raw", "messages"),
    *("question", "query", "input", "message", "prompt", "choices"),
)
_REPR = re.compile(rf"[A-Z]\w{{1,60}}\(\s*[a-z_]\w*=|(?:{'|'.join(_FIELDS)})=['\"]")
_FIRST_FIELD = re.compile(
    rf"(?:[A-Z]\w{{1,60}}\(\s*)?(?P<name>{'|'.join(_FIELDS)})="
    r"""(?P<text>'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")(?:,? \w+=|,?\s*\)\Z)"""
)


class _Constructors(ast.NodeTransformer):
    """Turns ``Document(page_content='…', metadata={})`` into a mapping; a message gets its type."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not isinstance(node.func, ast.Name) or node.args or not all(each.arg for each in node.keywords):
            raise ValueError
        given = {str(each.arg): self.visit(each.value) for each in node.keywords}
        kind, _, rest = node.func.id.partition("Message")
        if kind and not rest:
            given.setdefault("type", ast.Constant(kind.lower()))
        return ast.Dict([ast.Constant(key) for key in given], list(given.values()))


def _complete_elements(text: str) -> Iterator[AttributeValue]:
    decoder, position = json.JSONDecoder(), 1
    while separator := _BETWEEN_ELEMENTS.match(text, position):
        try:
            element, position = decoder.raw_decode(text, separator.end())
        except (ValueError, RecursionError):
            return
        yield _as_value(element, False)
