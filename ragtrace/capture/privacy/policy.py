"""The content policy: whether and how much content leaves the application, and what is redacted."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ragtrace import semconv
from ragtrace.capture._guard import guarded, hint
from ragtrace.capture.values import INT64, MAX_VALUES, cut, plain_text
from ragtrace.errors import ConfigError
from ragtrace.model import Part

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from ragtrace.capture.privacy._redaction import Pseudonyms

_PROCESS_KEY = os.urandom(32)
"""A random default key: digests are then comparable only within one process."""


def hashed(text: str, key: bytes | None) -> str:
    """Return the replacement of a text: its digest, 128 bits of HMAC-SHA-256, and its length.

    A key is always used: a plain hash of a short text can be found by hashing all likely texts.
    """
    return f"{semconv.HASHED_PREFIX}hmac-sha256 {digest(text, key)} {len(text.encode())} bytes>"


def digest(text: str, key: bytes | None) -> str:
    """Return 32 hex digits."""
    return hmac.digest(key or _PROCESS_KEY, text.encode(), "sha256").hex()[:32]


__all__ = ["ContentFilter", "ContentPolicy"]


Redact = Callable[[str, Part], str]
"""Takes a text and its part, and returns the text to record. If it raises or returns anything but a string,
the text is dropped."""

ContentMode = Literal["on", "redacted", "hashed", "off"]
"""Texts unchanged; with pseudonyms for personal data; as digests; not at all."""
MODES: tuple[ContentMode, ...] = get_args(ContentMode)

MESSAGES = "messages"
"""The mark for a truncated or changed prompt. It is not one of the judged parts."""
METADATA = "metadata"
"""The mark for metadata, likewise."""
LONGEST_VALUE = 4_096
"""Characters past a limit that are also scanned, so that a value across the limit is found whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPolicy:
    """Which text of a RAG call is recorded on a span. Sizes are bytes of UTF-8.

    The limits keep a span below the 4 MiB that gRPC receivers accept by default. Truncation happens between
    two characters, and ``ragtrace.content.truncated`` names the part. Ids, scores and counts are always
    written.

    Raises:
        ConfigError: a limit is negative, or the mode, the key or the list of metadata is invalid.
    """

    mode: ContentMode | None = None
    """``on`` records texts, ``redacted`` texts with pseudonyms such as ``<EMAIL_1>`` (needs the extra
    ``privacy``), ``hashed`` digests and lengths, ``off`` no text: ids, scores, models, usage and times.
    ``None`` leaves it to ``RAGTRACE_CAPTURE_CONTENT``, and is ``on`` without it."""
    max_question_bytes: int = 65_536
    max_chunk_bytes: int = 65_536
    max_chunks_total_bytes: int = 1_048_576
    """Of all chunks of one retrieval; chunks beyond it keep their ids and scores."""
    max_answer_bytes: int = 262_144
    max_reference_bytes: int = 262_144
    max_messages_bytes: int = 524_288
    """Of all input messages of the model."""
    max_metadata_bytes: int = 65_536
    """Of all metadata of one RAG call; each text keeps at most 1,800. In a chunk, it counts as text."""
    metadata: Collection[str] | None = None
    """The metadata keys to record; ``ragtrace.content.metadata_dropped`` counts the others. ``None`` means
    all keys in the modes ``on`` and ``redacted``, and no keys in the other modes."""
    phone_regions: tuple[str, ...] = ("US", "GB", "DE")
    """Countries (ISO 3166) whose phone numbers ``redacted`` finds without a leading ``+``."""
    key: str | None = field(default=None, repr=False)
    """The secret key of digests. With it, digests and pseudonyms are the same in every process; without it,
    they are comparable only within one process. Else ``RAGTRACE_CONTENT_KEY``."""
    redact: Redact | None = None
    """Called after the mode's own processing, unless no text is left."""

    def __post_init__(self) -> None:
        if self.mode is not None and self.mode not in MODES:
            raise ConfigError(f"`ContentPolicy.mode` is none of {', '.join(MODES)}")
        if isinstance(self.metadata, str):
            raise ConfigError("`ContentPolicy.metadata` is a single string: give a list of keys")
        if self.key is not None and len(self.key) < SHORTEST_KEY:
            raise ConfigError(f"`ContentPolicy.key` is short: give {SHORTEST_KEY} random characters or more")
        for limit in fields(self):
            if limit.name.startswith("max_") and getattr(self, limit.name) < 0:
                raise ConfigError(f"`ContentPolicy.{limit.name}` is negative: give a number of bytes, or 0")

    @property
    def capture(self) -> bool:
        """Whether any text is recorded, in any form."""
        return self.mode != "off"

    @property
    def verbatim(self) -> bool:
        """Whether texts are recorded unchanged."""
        return (self.mode is None or self.mode == "on") and self.redact is None

    @property
    def foreign_content(self) -> bool:
        """Whether other libraries' instrumentors may record texts: ragtrace cannot know which to hash."""
        return self.mode not in {"hashed", "off"}

    @property
    def kept_answer_chars(self) -> int:
        """How many characters of a streamed answer to keep.

        A value that begins before the limit is redacted whole, so this exceeds the limit.
        """
        return self.max_answer_bytes if self.verbatim else 2 * self.max_answer_bytes + LONGEST_VALUE

    @property
    def key_bytes(self) -> bytes | None:
        """The key as bytes."""
        return None if self.key is None else self.key.encode("utf-8", "surrogatepass")

    def may_record(self, metadata_key: object) -> bool:
        """Return whether metadata with this key may be recorded."""
        if self.metadata is not None:
            return _is_among(metadata_key, self.metadata) is True
        return self.mode not in {"hashed", "off"}

    def identifier(self, value: object) -> str | None:
        """Return an id or a name of the application in recordable form, at most 1,800 bytes, or ``None``.

        In all modes but ``on``, what is not plainly an opaque token (hex digits, a UUID, a short slug) is
        treated like a text: ``hashed`` writes a digest and ``off`` nothing. So does ``redacted`` write one of
        what holds personal data: a pseudonym would be the same for the users of all traces.
        """
        text = plain_text(value)
        if self.mode not in {None, "on"} and not self._may_stay(text):
            return None if self.mode == "off" else digest(text, self.key_bytes)
        return text if len(text) < _SURELY_SHORT else cut(text, semconv.SAFE_STRING_BYTES)[0]

    def written(self, attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
        """Return what may be written on a span: each string that is no filtered text is an id or a name."""
        written: dict[str, AttributeValue] = {}
        for key, value in attributes.items():
            if key in _TEXTS or key.startswith(_TEXTS_BELOW):
                written[key] = value
            elif isinstance(value, str):
                if (named := self.identifier(value)) is not None:
                    written[key] = named
            elif isinstance(value, list | tuple):
                listed = [self.identifier(each) if isinstance(each, str) else each for each in value]
                written[key] = [each for each in listed if each is not None]
            else:
                written[key] = value
        return written

    def _may_stay(self, text: str) -> bool:
        is_opaque = bool(_OPAQUE.fullmatch(text))
        if self.mode != "redacted":
            is_surely = is_opaque and len(text) < _SHORTEST_SECRET and text.count(".") < _DOTS_OF_IP
            return is_surely or (
                is_opaque and not (_detects() and _is_identifying(text, True, ()) is not False)
            )
        if _is_identifying(text, is_opaque, self.phone_regions) is not False:
            return False
        return is_opaque or self.redact is None or _ask_hook(self.redact, text, Part.QUESTION) == text

    def limit_of(self, part: Part, mark: str | None = None) -> int:
        """Return the byte limit for a text of this part."""
        if mark == MESSAGES:
            return self.max_messages_bytes
        return {
            Part.QUESTION: self.max_question_bytes,
            Part.CONTEXT: self.max_chunk_bytes,
            Part.ANSWER: self.max_answer_bytes,
            Part.REFERENCE: self.max_reference_bytes,
        }[part]


_OPAQUE: Final = re.compile(
    r"(?=.{1,100}\Z)"
    r"(?![A-Z]{2}\d\d[A-Z0-9]{11,30}\Z)"  # as an IBAN
    r"(?!\d+(?:\.\d+){3}\Z)(?!(?=\d+\D)(?:[^\w]*\d){7,}\Z)"  # an IP address, a phone number
    r"[A-Za-z0-9]+(?:(?:[.:/#]|[-_]{1,3})[A-Za-z0-9]+)*"
)
"""Hex digits, a UUID, a number, a slug, a model's name, a path of slugs: no spaces, ``@``, ``+`` or ``://``."""
_SHORTEST_SECRET: Final = 14
"""Characters of the shortest key, login or IBAN that detectors find in such a token."""
_DOTS_OF_IP: Final = 3
_TEXTS: Final = frozenset(
    {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.RAG_QUESTION, semconv.RAG_ANSWER}
    | {semconv.REFERENCE_ANSWER, semconv.RETRIEVAL_QUERY, semconv.RETRIEVAL_DOCUMENTS}
    | {semconv.RAG_DOCUMENTS, semconv.FEEDBACK_COMMENT}
    | {f"{semconv.OI_ANNOTATIONS}.0.annotation.explanation"}
)
"""Attributes whose value a [`ContentFilter`][ragtrace.capture.privacy.policy.ContentFilter] has written."""
_TEXTS_BELOW: Final = semconv.RAG_METADATA_PREFIX
_SURELY_SHORT = semconv.SAFE_STRING_BYTES // 4
"""Characters, of at most four bytes each."""
SHORTEST_KEY = 16
_SHORTEST_NUMBER = 10**10


class ContentFilter:
    """Applies the policy to one span's content and collects the marks."""

    _names: Pseudonyms | None = None
    _truncated: frozenset[str] = frozenset()
    _redacted: frozenset[str] = frozenset()
    _dropped = 0

    def __init__(self, policy: ContentPolicy, trace_id: int = 0) -> None:
        self.policy = policy
        self._verbatim = policy.verbatim
        self._trace_id = trace_id

    def text(self, value: object, part: Part, limit: int, mark: str | None = None) -> str | None:
        """Return the recordable text of the value, or ``None``."""
        whole = self.redacted(value, part, mark)
        if whole is None:
            return None
        kept, _, is_cut = cut(whole, limit)
        if is_cut:
            self.truncated(mark or part)
        return kept

    def redacted(self, value: object, part: Part, mark: str | None = None) -> str | None:
        """Return the value as text in the policy's mode, or ``None`` if there is nothing to record."""
        if self._verbatim and type(value) is str and value.isascii() and "\x00" not in value:
            return value  # the most frequent case
        if value is None or self.policy.mode == "off":
            return None
        text = plain_text(value)
        return text if self._verbatim else self._changed(text, part, mark)

    def metadata(self, metadata: Mapping[Any, object]) -> Mapping[Any, object]:
        """Return the metadata to record, and count the rest."""
        policy = self.policy
        if policy.metadata is None and policy.may_record(None):
            return metadata
        seen = dict(islice(metadata.items(), MAX_VALUES))
        kept = {key: value for key, value in seen.items() if policy.may_record(key)}
        self._dropped += len(seen) - len(kept)
        return kept

    def metadata_value(self, value: object, part: Part, mark: str | None = None) -> str | None:
        """Return a metadata value in recordable form: in the mode ``hashed``, listed values stay plain."""
        text = plain_text(value)
        if self._verbatim or self.policy.mode in {"hashed", "off"}:
            return text
        return self._changed(text, part, mark)

    @property
    def longest_number(self) -> int:
        """The limit for plain numbers in metadata: longer ones may be a card or phone number."""
        return _SHORTEST_NUMBER if self.policy.mode == "redacted" else INT64

    def truncated(self, mark: str) -> None:
        """Note that this part was truncated."""
        self._truncated |= {mark}

    def marks(self) -> dict[str, bool | int | str | list[str]]:
        """Return the attributes that describe the changes to the content."""
        marks: dict[str, bool | int | str | list[str]] = {}
        mode = self.policy.mode
        if mode is not None and mode != "on":
            marks[semconv.RAG_CONTENT_MODE] = mode
            if mode == "off":
                marks[semconv.RAG_CAPTURE] = False
        if self._truncated:
            marks[semconv.RAG_TRUNCATED] = sorted(self._truncated)
        if self._redacted:
            marks[semconv.RAG_REDACTED] = sorted(self._redacted)
        if self._dropped:
            marks[semconv.RAG_METADATA_DROPPED] = self._dropped
        return marks

    def _changed(self, text: str, part: Part, mark: str | None) -> str | None:
        # Twice the limit, because pseudonyms are shorter than the values they replace; the rest is not read.
        limit = 2 * self.policy.limit_of(part, mark)
        if len(text) > limit:
            self.truncated(mark or part)
        if self.policy.mode == "hashed":
            result: str | None = hashed(text[:limit], self.policy.key_bytes)
        elif self.policy.mode == "redacted":
            result = self._with_pseudonyms(text, limit)
        else:
            result = text
        if result is not None and self.policy.redact is not None and self.policy.mode != "hashed":
            result = _ask_hook(self.policy.redact, result, part)
        if result != text:
            self._redacted |= {mark or part}
        return result

    @guarded
    def _with_pseudonyms(self, text: str, limit: int) -> str:
        from ragtrace.capture.privacy._redaction import Pseudonyms, redact

        if self._names is None:
            self._names = Pseudonyms(self._trace_id, self.policy.key_bytes)
        return redact(text, limit, self._names, self.policy.phone_regions)


@guarded
def _is_among(key: object, keys: Collection[str]) -> bool:
    return key in keys  # calls the key's `__eq__` too


def possible(mode: ContentMode) -> ContentMode:
    """Return the mode, or ``off``, with a hint, if it needs an extra that is not installed."""
    if mode != "redacted":
        return mode
    try:
        import ragtrace.capture.privacy._redaction  # noqa: F401 - load it now, not in the first call
    except ImportError as exc:
        from ragtrace.extras import install_command

        hint("redaction", f"content is off: redaction needs {exc.name}: {install_command('privacy')}")
        return "off"
    return mode


@lru_cache
def _detects() -> bool:
    """Return whether the extra ``privacy`` is installed."""
    try:
        import ragtrace.capture.privacy._redaction  # noqa: F401
    except ImportError:
        return False
    return True


@guarded
def _is_identifying(identifier: str, is_opaque: bool, phone_regions: tuple[str, ...]) -> bool:
    from ragtrace.capture.privacy._redaction import is_identifying

    return is_identifying(identifier, is_opaque, phone_regions)


@guarded
def _ask_hook(redact: Redact, text: str, part: Part) -> str:
    result: object = redact(text, part)
    if not isinstance(result, str):
        raise TypeError(f"`redact` returned {type(result).__name__}: return a string")
    return plain_text(result)
