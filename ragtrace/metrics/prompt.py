"""Prompts: versioned files, with fenced inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from ragtrace.errors import ConfigError
from ragtrace.judge_forms import (
    ChunksInput,
    ExtractInput,
    NumberedText,
    QuestionsInput,
    RelevanceInput,
    RetrievalInput,
    VerifyInput,
)
from ragtrace.judge_steps import HEADER_FENCE, PROMPTS, STEPS, Prompt, PromptName, StepName
from ragtrace.metrics.fence import Section, fenced
from ragtrace.model import RagRecord

_PROMPTS_OF: Mapping[StepName, tuple[PromptName, ...]] = {
    "verify": ("verify", "verify_yes_no", "verify_again"),
    "chunks": ("chunks", "retrieval"),
    "recall": ("recall", "retrieval", "verify_yes_no"),
}

PromptSource: TypeAlias = "Prompt | Path | str"
"""A prompt, the path of its file, or its text: a string of several lines is a text."""


def prompts_of(steps: Iterable[StepName]) -> tuple[PromptName, ...]:
    """Return the names of the prompts that these steps may use."""
    return _prompts_of(tuple(steps))


@cache
def _prompts_of(steps: tuple[StepName, ...]) -> tuple[PromptName, ...]:
    return tuple(dict.fromkeys(name for step in steps for name in _PROMPTS_OF.get(step, (step,))))


@lru_cache(maxsize=256)
def _joint_sha256(digests: tuple[str, ...]) -> str:
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def read_prompts(
    sources: Mapping[str, PromptSource], *, known: Collection[PromptName] = PROMPTS
) -> Mapping[PromptName, Prompt]:
    """Read a user's prompts, by the name of the prompt they replace. They need no header.

    Raises:
        ConfigError: a name is not among ``known``, a file cannot be read, or a text is empty.
    """
    if strange := sources.keys() - set(known):
        raise ConfigError(f"there is no prompt {min(strange)!r} here: choose from {', '.join(known)}")
    return {name: _read(name, sources[name]) for name in known if name in sources}


def _read(name: PromptName, source: PromptSource) -> Prompt:
    if isinstance(source, Prompt):
        return source
    text = source if isinstance(source, str) and "\n" in source else _file_text(name, Path(source))
    if text.startswith(HEADER_FENCE):
        return Prompt.parse(text)
    if not text.strip():
        raise ConfigError(f"the prompt {name!r} is empty: give its path or its text")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Prompt(name=name, version=digest[:12], text=text.strip(), sha256=digest)


def _file_text(name: PromptName, path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigError(f"the prompt {name!r} cannot be read from {str(path)!r}: {why}") from exc


@cache
def built_in_prompt(file_name: str) -> Prompt:
    """Load a built-in prompt, such as ``extract.v5.md``."""
    return Prompt.parse(files("ragtrace.metrics").joinpath("prompts", file_name).read_text("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The instructions of the steps; the built-in ones by default."""

    extract: Prompt = field(default_factory=partial(built_in_prompt, "extract.v5.md"))
    relevance: Prompt = field(default_factory=partial(built_in_prompt, "relevance.v3.md"))
    verify: Prompt = field(default_factory=partial(built_in_prompt, "verify.v3.md"))
    verify_yes_no: Prompt = field(default_factory=partial(built_in_prompt, "verify_yes_no.v1.md"))
    """Replaces ``verify`` if claims are judged one by one."""
    verify_again: Prompt = field(default_factory=partial(built_in_prompt, "verify_again.v1.md"))
    """Replaces ``verify`` for a second look."""
    chunks: Prompt = field(default_factory=partial(built_in_prompt, "chunks.v1.md"))
    recall: Prompt = field(default_factory=partial(built_in_prompt, "recall.v1.md"))
    retrieval: Prompt = field(default_factory=partial(built_in_prompt, "retrieval.v2.md"))
    """Replaces ``chunks`` and ``recall`` if both are combined in one request."""
    questions: Prompt = field(default_factory=partial(built_in_prompt, "questions.v1.md"))

    @classmethod
    @cache
    def built_in(cls) -> Prompts:
        """Return the built-in prompts."""
        return cls()

    @property
    def sha256(self) -> str:
        """The digest of all prompts."""
        return self.sha256_of(STEPS)

    def sha256_of(self, steps: Collection[str]) -> str:
        """Return the digest of these steps' prompts; for a single prompt, the digest of its file."""
        names = _prompts_of(tuple(step for step in STEPS if step in steps))
        return _joint_sha256(tuple([getattr(self, name).sha256 for name in names]))

    def is_built_in(self, *names: PromptName) -> bool:
        """Whether these prompts are the built-in ones."""
        built_in = Prompts.built_in()
        return all(getattr(self, name) == getattr(built_in, name) for name in names)

    def replaced(self, own: Mapping[PromptName, Prompt]) -> Prompts:
        """Return these prompts with some replaced."""
        return replace(self, **{str(name): prompt for name, prompt in own.items()}) if own else self


def content_sha256(record: RagRecord) -> str:
    """Digest what the judge sees of a record: question, answer, reference, and chunks in their order."""
    seen = [
        record.question,
        record.answer,
        record.reference,
        [[chunk.id, chunk.text] for chunk in record.chunks],
    ]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def render_extract(given: ExtractInput, code: str) -> str:
    """Render the material of step A."""
    around = [_numbered("surroundings", given.surroundings)] if given.surroundings else []
    asked = ("question", [given.question or "(not recorded)"])
    return fenced(code, [asked, *around, _numbered("answer", given.sentences)])


def render_verify(given: VerifyInput, code: str) -> str:
    """Render the material of step B: chunks first, so that calls about the same chunks share a prefix."""
    return fenced(code, [*chunk_sections(given.chunks), _numbered("claims", given.claims)])


def render_chunks(given: ChunksInput, code: str) -> str:
    """Render the material of step C: the common part of all calls comes first."""
    reference: list[Section] = [("reference", [given.reference])] if given.reference else []
    return fenced(code, [("question", [given.question]), *reference, *chunk_sections(given.chunks)])


def render_retrieval(given: RetrievalInput, code: str) -> str:
    """Render the material of the combined steps C and D."""
    claims = _numbered("claims", given.claims)
    return fenced(code, [("question", [given.question]), *chunk_sections(given.chunks), claims])


def render_relevance(given: RelevanceInput, code: str) -> str:
    """Render the material of step R."""
    return fenced(code, [("question", [given.question]), _numbered("statements", given.statements)])


def render_questions(given: QuestionsInput, code: str) -> str:
    """Render the material of step Q."""
    return fenced(code, [("answer", [given.answer])])


def chunk_sections(chunks: Iterable[NumberedText]) -> list[Section]:
    """Put each chunk under its number."""
    return [(f"chunk {chunk.number}", [chunk.text]) for chunk in chunks]


def _numbered(name: str, texts: Iterable[NumberedText]) -> Section:
    # one line each: after a line break, a text could fake the next number
    return name, [f"[{item.number}] {' '.join(item.text.split())}" for item in texts]
