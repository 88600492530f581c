"""What a judge is asked with: prompts (versioned files), the form of verify requests, and limits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from ragtrace.errors import ConfigError
from ragtrace.judge_steps import HEADER_FENCE, LATER, PROMPTS, Prompt, PromptName, VerifyForm

PromptSource: TypeAlias = "Prompt | Path | str"
"""A prompt, the path of its file, or its text: a string of several lines is a text."""


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
    """Load a built-in prompt, such as ``extract.v6.md``."""
    return Prompt.parse(built_in_source(file_name))


def built_in_source(file_name: str) -> str:
    """Return the file of a built-in prompt with its header."""
    return files("ragtrace.metrics").joinpath("prompts", file_name).read_text("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The instructions of the steps; the built-in ones by default."""

    extract: Prompt = field(default_factory=partial(built_in_prompt, "extract.v6.md"))
    relevance: Prompt = field(default_factory=partial(built_in_prompt, "relevance.v3.md"))
    verify: Prompt = field(default_factory=partial(built_in_prompt, "verify.v4.md"))
    verify_yes_no: Prompt = field(default_factory=partial(built_in_prompt, "verify_yes_no.v2.md"))
    """Replaces ``verify`` if claims are judged one by one."""
    verify_again: Prompt = field(default_factory=partial(built_in_prompt, "verify_again.v2.md"))
    """Replaces ``verify`` for a second look."""
    chunks: Prompt = field(default_factory=partial(built_in_prompt, "chunks.v1.md"))
    recall: Prompt = field(default_factory=partial(built_in_prompt, "recall.v1.md"))
    retrieval: Prompt = field(default_factory=partial(built_in_prompt, "retrieval.v2.md"))
    """Replaces ``chunks`` and ``recall`` if both are combined in one request."""
    questions: Prompt = field(default_factory=partial(built_in_prompt, "questions.v1.md"))
    criteria: Prompt = field(default_factory=partial(built_in_prompt, "criteria.v1.md"))

    @classmethod
    @cache
    def built_in(cls) -> Prompts:
        """Return the built-in prompts."""
        return cls()

    @property
    def sha256(self) -> str:
        """The digest of all prompts that a metric which declares no steps may use."""
        return self.sha256_of(name for name in PROMPTS if name not in LATER)

    def sha256_of(self, names: Iterable[PromptName]) -> str:
        """Return the digest of these prompts in their order; for a single one, the digest of its file."""
        digests = [self.named(name).sha256 for name in names]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    def named(self, name: PromptName) -> Prompt:
        """Return the prompt with this name."""
        prompt: Prompt = getattr(self, name)
        return prompt

    def is_built_in(self, *names: PromptName) -> bool:
        """Whether these prompts are the built-in ones."""
        built_in = Prompts.built_in()
        return all(self.named(name) == built_in.named(name) for name in names)

    def replaced(self, own: Mapping[PromptName, Prompt]) -> Prompts:
        """Return these prompts with some replaced."""
        return replace(self, **{str(name): prompt for name, prompt in own.items()}) if own else self


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """The settings of verify requests, which are part of the evaluator's version.

    Raises:
        ConfigError: a number is outside [0, 1].
    """

    form: VerifyForm = VerifyForm.AUTO
    calibrated: VerifyForm = VerifyForm.JSON
    """The form that ``auto`` tries first; `ragtrace calibrate` measures it."""
    threshold: float = 0.5
    """The least P(yes) of a supported claim."""
    second_look: bool = False
    """Ask again about each claim that is not supported, with the chunks in another order. Both must agree."""
    sentinel_rate: float = 1.0
    """Share of the records, chosen by digest, whose requests contain canary claims."""

    def __post_init__(self) -> None:
        for name in ("threshold", "sentinel_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"`{name}` of the verify step is {getattr(self, name)!r}: give 0 to 1")

    @property
    def uncalibrated(self) -> VerifySettings:
        """The same settings without the calibration."""
        return replace(self, calibrated=VerifyForm.JSON, threshold=0.5)

    @property
    def first_form(self) -> VerifyForm:
        """The form to try first: ``json`` or ``logprobs``."""
        chosen = self.calibrated if self.form is VerifyForm.AUTO else self.form
        return VerifyForm.LOGPROBS if chosen is VerifyForm.LOGPROBS else VerifyForm.JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """Limits of a call and of the judged part of a record."""

    sentences_per_call: int = 60
    claims_per_call: int = 20
    """Also limits the sentences of a reference."""
    chunks_per_call: int = 40
    statements_per_call: int = 60
    context_chars: int = 60_000
    """Characters of chunks in one call; longer contexts need several calls."""
    max_sentences: int = 300
    """Further sentences of an answer or a reference are not judged; the evaluation reports it."""
    max_packs: int = 8
    """Chunks in further packs are not shown; claims that need them are unjudged."""
    retrieval: Literal["merged", "separate"] = "merged"
    """Whether steps C and D share one call if both are needed."""
    verify: VerifySettings = field(default_factory=VerifySettings)
    """The form of verify requests, and their canary claims."""
