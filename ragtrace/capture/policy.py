"""What leaves the application: whether content is recorded, how much of it, and what is blotted out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from json.encoder import encode_basestring as json_string

from ragtrace import semconv
from ragtrace.capture.guard import guarded
from ragtrace.capture.plain import CONTAINERS, compact_json, plain
from ragtrace.errors import ConfigError
from ragtrace.model import Part

__all__ = ["MESSAGES", "ContentPolicy", "Passage", "Redact", "cut", "json_string", "plain_text"]

Redact = Callable[[str, Part], str]
"""Given a text and the part it belongs to, return what may be recorded. If it raises, or returns anything but
a string, the text is dropped."""

MESSAGES = "messages"
"""The mark for a prompt that was cut or changed. It is none of the parts that are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPolicy:
    """What of a RAG call's text may stand on a span. Sizes are bytes of UTF-8.

    The limits keep a span below the 4 MiB that gRPC receivers take by default. Whatever is cut is cut between
    two characters and named in ``ragtrace.content.truncated``; ids, scores and counts are always written.

    Raises:
        ConfigError: a limit is negative.
    """

    capture: bool = True
    """``False`` records ids, scores, models, usage and times, but no text."""
    max_question_bytes: int = 65_536
    max_chunk_bytes: int = 65_536
    max_chunks_total_bytes: int = 1_048_576
    """Of all chunks of one retrieval: those beyond it keep their ids and scores."""
    max_answer_bytes: int = 262_144
    max_messages_bytes: int = 524_288
    """Of all messages given to the model."""
    redact: Redact | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name.startswith("max_") and getattr(self, field.name) < 0:
                raise ConfigError(f"`ContentPolicy.{field.name}` is negative: give a number of bytes, or 0")


class Passage:
    """The way of one span's content through the policy, and the marks it leaves."""

    __slots__ = ("_redacted", "_truncated", "policy")

    def __init__(self, policy: ContentPolicy) -> None:
        self.policy = policy
        self._truncated: set[str] = set()
        self._redacted: set[str] = set()

    def text(self, value: object, part: Part, limit: int, mark: str | None = None) -> str | None:
        """Return what may be recorded of the value, or ``None`` if that is nothing."""
        whole = self.redacted(value, part, mark)
        if whole is None:
            return None
        kept, _, is_cut = cut(whole, limit)
        if is_cut:
            self.truncated(mark or part)
        return kept

    def redacted(self, value: object, part: Part, mark: str | None = None) -> str | None:
        """Return the value as text after the redaction hook, or ``None`` where there is nothing to record."""
        if value is None or not self.policy.capture:
            return None
        text = plain_text(value)
        if self.policy.redact is None:
            return text
        result = _ask_hook(self.policy.redact, text, part)
        if result != text:
            self._redacted.add(mark or part)
        return result

    def truncated(self, mark: str) -> None:
        """Note that this part was cut."""
        self._truncated.add(mark)

    def marks(self) -> dict[str, bool | list[str]]:
        """Return the attributes that say what was done to the content."""
        marks: dict[str, bool | list[str]] = {}
        if not self.policy.capture:
            marks[semconv.RAG_CAPTURE] = False
        if self._truncated:
            marks[semconv.RAG_TRUNCATED] = sorted(self._truncated)
        if self._redacted:
            marks[semconv.RAG_REDACTED] = sorted(self._redacted)
        return marks


def cut(text: str, limit: int) -> tuple[str, int, bool]:
    """Return the longest prefix of at most ``limit`` bytes of UTF-8, its size, and whether it is shorter.

    The text holds no lone surrogates: see [`plain_text`][ragtrace.capture.policy.plain_text].
    """
    if text.isascii():
        return (text, len(text), False) if len(text) <= limit else (text[:limit], limit, True)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text, len(encoded), False
    # Only the last character can be incomplete, and only that is what "ignore" drops.
    prefix = encoded[:limit].decode(errors="ignore")
    return prefix, len(prefix.encode()), True


def plain_text(value: object) -> str:
    """Return the value as text that any OTLP receiver takes: no lone surrogates, no NUL.

    A lone surrogate makes protobuf refuse the batch it is in; some stores refuse NUL. Both become U+FFFD.
    """
    text = value if type(value) is str else _as_str(value) or ""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # By way of UTF-16, two halves of one character that were split by an escape meet again.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@guarded
def _as_str(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, CONTAINERS):  # its own `str` has no end where it holds itself often enough
        return compact_json(plain(value, plain_text).value)
    return str(value)


@guarded
def _ask_hook(redact: Redact, text: str, part: Part) -> str:
    result: object = redact(text, part)
    if not isinstance(result, str):
        raise TypeError(f"`redact` returned {type(result).__name__}: return a string")
    return plain_text(result)
