"""Prompts are versioned files; what they are filled with is fenced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ragtrace.errors import ConfigError
from ragtrace.metrics.fence import fenced
from ragtrace.metrics.forms import ExtractInput, NumberedText, VerifyInput
from ragtrace.model import RagRecord

__all__ = ["Prompt", "built_in_prompt", "content_sha256", "render_extract", "render_verify"]

_HEADER_FENCE = "---\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The static instructions of a judge step."""

    name: str
    version: str
    text: str
    sha256: str
    """Of the file, header included: stands on every score."""

    @classmethod
    def parse(cls, source: str) -> Prompt:
        """Read a prompt file: a ``---`` fenced header with ``name`` and ``version``, then the text.

        Raises:
            ConfigError: the header is missing or incomplete.
        """
        opening, header, text = [*source.split(_HEADER_FENCE, 2), "", ""][:3]
        fields = dict(line.split(": ", 1) for line in header.splitlines() if ": " in line)
        if opening or not {"name", "version"} <= fields.keys() or not text.strip():
            raise ConfigError("a prompt file begins with a `---` header that gives `name` and `version`")
        digest = hashlib.sha256(source.encode()).hexdigest()
        return cls(name=fields["name"], version=fields["version"], text=text.strip(), sha256=digest)


@cache
def built_in_prompt(file_name: str) -> Prompt:
    """Load a prompt that comes with ragtrace, such as ``extract.v2.md``."""
    return Prompt.parse(files("ragtrace.metrics").joinpath("prompts", file_name).read_text("utf-8"))


def content_sha256(record: RagRecord) -> str:
    """Digest what a judge can see of the record: question, answer, reference, and chunks in their order."""
    seen = [
        record.question,
        record.answer,
        record.reference,
        [[chunk.id, chunk.text] for chunk in record.chunks],
    ]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def render_extract(given: ExtractInput, code: str) -> str:
    """Render the material of step A."""
    question = fenced("question", code, [given.question or "(not recorded)"])
    around = fenced("surroundings", code, _lines(given.surroundings)) if given.surroundings else []
    return "\n".join([*question, *around, *fenced("answer", code, _lines(given.sentences))])


def render_verify(given: VerifyInput, code: str) -> str:
    """Render the material of step B: chunks first, so that calls about the same chunks share a prefix."""
    chunks = [line for chunk in given.chunks for line in fenced(f"chunk {chunk.number}", code, [chunk.text])]
    return "\n".join([*chunks, *fenced("claims", code, _lines(given.claims))])


def _lines(texts: Iterable[NumberedText]) -> list[str]:
    # one line each: a line break inside could pass for the next number
    return [f"[{item.number}] {' '.join(item.text.split())}" for item in texts]
